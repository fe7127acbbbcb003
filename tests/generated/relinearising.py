"""One run's partial order, played in another order: it must come to the same, for each thread and on the disk."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from racecheck.model.nouns import Op, Outcome, Point
from racecheck.model.ops.footprint import Dependence
from racecheck.scheduling.file_times import Timed
from racecheck.scheduling.happens_before import Order, Step
from racecheck.scheduling.relation import Relation

from .programs import Program
from .toy import Toy, world_of


def difference(program: Program, rng: Random) -> str:
    """What is different after another order of all that is independent, "" for nothing."""
    outcome, effect = Toy(program, lambda point: rng.randrange(len(point.options))).run()
    relation = Timed(Relation(world_of(program)), set())
    relation.learn(outcome)
    steps = _steps(relation, outcome)
    order = _extension(steps, rng)
    player = Player(relation, [steps[each].op.thread for each in order])
    again, ends = Toy(program, player.choose).run()
    player.take(again.trace)
    if player.lost:
        return player.lost
    if effect != ends:
        return f"ended with {effect}, in another order with {ends}"
    now = _steps(relation, again)
    return next(
        (f"{one} is now {other}" for one, other in zip(_told(steps), _told(now), strict=True) if one != other), ""
    )


def _steps(relation: Dependence, outcome: Outcome) -> Sequence[Step]:
    order = Order(relation)
    order.extend(outcome.trace)
    return order.steps


def _extension(steps: Sequence[Step], rng: Random) -> list[int]:
    """Steps in an order that leaves each behind those that happen before it."""
    done: dict[str, int] = {}
    left, order = [*range(len(steps))], []
    while left:
        free = [at for at in left if _is_free(steps[at], done)]
        order.append(rng.choice(free))
        left.remove(order[-1])
        done[steps[order[-1]].op.thread] = steps[order[-1]].number
    return order


def _is_free(step: Step, done: dict[str, int]) -> bool:
    before = {**step.clock, step.op.thread: step.number - 1}
    return all(done.get(thread, 0) >= count for thread, count in before.items())


def _told(steps: Sequence[Step]) -> list[tuple[str, int, str, str]]:
    return sorted((step.op.thread, step.number, step.op.syscall, _result(step.op)) for step in steps)


def _result(op: Op) -> str:
    assert op.result is not None
    return f"{op.result.errno} {op.result.digest}"


class Player:
    """Lets the steps go in the given order of threads; ``lost`` says where that was not possible."""

    def __init__(self, relation: Dependence, threads: Sequence[str]) -> None:
        self._threads, self._order = threads, Order(relation)
        self._seen = 0
        self.lost = ""

    def take(self, trace: Sequence[object]) -> None:
        self._order.extend(event for event in trace[self._seen :] if isinstance(event, Op))
        self._seen = len(trace)
        went = [step.op.thread for step in self._order.steps]
        if went != [*self._threads[: len(went)]]:
            self.lost = self.lost or f"{went[-1]} went out of its turn"

    def choose(self, point: Point) -> int:
        self.take(point.trace)
        threads, done = [op.thread for op in point.options], len(self._order.steps)
        wanted = self._threads[done] if done < len(self._threads) else "nobody"
        if wanted not in threads:
            self.lost = self.lost or f"{wanted} should go next, but there is: {', '.join(threads)}"
            return 0
        return threads.index(wanted)
