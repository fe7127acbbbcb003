"""Every run that differs from the others in something that matters, and then no more: dynamic partial order reduction.

Source sets with sleep sets (Abdulla, Aronis, Jonsson, Sagonas: "Source Sets: A Foundation for Optimal Dynamic Partial
Order Reduction", JACM 2017).  Each run is looked at for races that could have gone the other way; where one could, a
thread is entered at the point before it, to go first there in a later run.  A thread that has gone first at a point
*sleeps* in the runs that follow, until something is done that depends on what it did there: as long as it sleeps, to
let it go would only repeat a run that has been.

A wakeup tree would spare the runs in which at last everybody sleeps; they are few, and counted as redundant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from racecheck.dependence import Footprint, depends
from racecheck.errors import InternalError
from racecheck.happens_before import Order, Step, is_step, yields
from racecheck.model import Event, Op, Outcome, Point
from racecheck.storage import Storage
from racecheck.strategies.protocol import Diverged, Enough, Strategy

_PATIENCE = "who polls is taken to wait as long as it takes"
_SLEEPS = "a sleep overtakes the others by 5 s at most"
_ASKS = {
    "test": "ranks ask whether a collective is done, and what else they could have been told was not tried",
    "check": "ranks ask what is in the store, and what else they could have been told was not tried",
}


@dataclass(slots=True)
class _Node:
    """A point, before the run's step number ``step``.

    ``options`` are the pending ops by thread; ``back`` are the threads that have to go first here in some run, ``done``
    those that have, each with the footprint that its step had; to let one of ``asleep`` go would repeat a run.
    """

    step: int
    options: dict[str, Op]
    asleep: dict[str, Footprint]
    chosen: str
    back: set[str]
    done: dict[str, Footprint] = field(default_factory=dict)

    @property
    def left(self) -> list[str]:
        """The threads that are to go first here in runs to come."""
        return [each for each in self.options if each in self.back - self.done.keys() - self.asleep.keys()]


class DPOR(Strategy):
    """Ends by itself, and ``is_proof`` then says whether everything has been covered."""

    def __init__(self, storage: Storage) -> None:
        self.traces = self.redundant = self.steps = 0
        self._storage = storage
        self._nodes: list[_Node] = []
        self._known: list[tuple[object, ...]] = []
        self._exhausted = False
        self._bounds: set[str] = set()
        self._doubts: set[str] = set()

    def begin(self, rng: Random) -> bool:
        del rng
        if self.traces or self.redundant:
            while self._nodes and not self._nodes[-1].left:
                self._nodes.pop()
            self._exhausted = not self._nodes
            if self._exhausted:
                return False
            self._nodes[-1].chosen = self._nodes[-1].left[0]
        self._order = Order(self._storage)
        self._seen, self._depth, self._first_new = 0, 0, self._nodes[-1].step if self._nodes else 0
        self._at: _Node | None = None
        self._asleep: dict[str, Footprint] = {}
        self._repeats = False
        return True

    def choose(self, point: Point) -> int:
        self._follow(point.trace)
        options = {op.thread: op for op in point.options}
        if self._depth == len(self._nodes):
            self._repeats |= options.keys() <= self._asleep.keys()
            if self._repeats:
                self._look_back(())
                raise Enough
            self._nodes.append(self._enter(options))
        self._at = node = self._nodes[self._depth]
        self._depth += 1
        if _labels(options) != _labels(node.options):
            raise Diverged(_difference(node.step, _labels(node.options), _labels(options)))
        return [*options].index(node.chosen)

    def end(self, outcome: Outcome) -> None:
        self._follow(outcome.trace)
        self._look_back(outcome.pending)

    @property
    def is_proof(self) -> bool:
        """Whether every interleaving has been covered, as far as the claim goes."""
        return self._exhausted and not self._doubts

    @property
    def left(self) -> int:
        """How many threads are known that have to go first at some point in runs to come."""
        return sum(len(node.left) for node in self._nodes)

    @property
    def covered(self) -> float:
        """The part that is done, from 0 to 1: an estimate, as if nothing were found any more and all branches alike."""
        share, done = 1.0, 0.0
        for node in self._nodes:
            share /= max(1, len(node.back | node.done.keys()))
            done += share * (len(node.done) - 1)
        return min(1.0, done + share)

    def claim(self) -> str:
        found = f"{self.traces} trace{'s' * (self.traces != 1)}, {self.redundant} redundant"
        bounds = "".join(f"; {each}" for each in sorted(self._bounds))
        if self.is_proof:
            return f"EXHAUSTED: {found}{bounds}"
        reasons = sorted(self._doubts)
        if not self._exhausted:
            reasons.insert(0, f"{self.left} branch{'es' * (self.left != 1)} left to try, about {self.covered:.0%} done")
        return f"INCOMPLETE: {'; '.join(reasons)}; {found}{bounds}"

    # One run.

    def _follow(self, trace: Sequence[Event]) -> None:
        """Take in what has happened since the last point."""
        for event in trace[self._seen :]:
            if isinstance(event, Op) and is_step(event, self._storage):
                self._take(self._order.add(event))
        self._seen = len(trace)

    def _take(self, step: Step) -> None:
        self._compare(step)
        thread, node = step.op.thread, self._at
        if node is not None:
            self._asleep = {**node.asleep, **node.done}
            self._asleep.pop(thread, None)
            node.done[thread], self._at = step.footprint, None
        elif thread in self._asleep:
            self._repeats = True
        self._asleep = {each: touched for each, touched in self._asleep.items() if not depends(touched, step.footprint)}
        if step.op.call == "test" or (step.op.call, step.op.syscall) in {("store", "check"), ("store", "count")}:
            self._doubts.add(_ASKS["test" if step.op.call == "test" else "check"])

    def _compare(self, step: Step) -> None:
        """Up to where this run is new it has to be the last one; raises `Diverged`."""
        op, index = step.op, len(self._order.steps) - 1
        key = (op.label, op.syscall, op.result and (op.result.errno, op.result.value, op.result.digest))
        if index >= self._first_new:
            self._known[index:] = [key]
        elif key != self._known[index]:
            raise Diverged(_difference(index, self._known[index], key))

    def _enter(self, options: dict[str, Op]) -> _Node:
        """A new point: go on with the thread that went last, unless it only waits."""
        awake = [each for each in options if each not in self._asleep]
        busy = [each for each in awake if not yields(options[each]) and not self._order.is_vain(options[each])]
        chosen = (busy or awake)[0]
        return _Node(len(self._order.steps), options, dict(self._asleep), chosen, {chosen})

    def _look_back(self, pending: Iterable[Op]) -> None:
        """Enter who has to go first where, for each race that this run was the first to have."""
        at = {node.step: node for node in self._nodes}
        steps = [*self._order.steps[self._first_new :], *(self._order.imagine(op) for op in pending)]
        for step in steps:
            for index in step.races:
                self._reverse(at.get(index), index, step)
        self._bounds |= {_PATIENCE} if self._order.has_polls else set()
        self.traces += not self._repeats
        self.redundant += self._repeats
        self.steps = max(self.steps, len(self._order.steps))

    def _reverse(self, node: _Node | None, index: int, step: Step) -> None:
        """Have the race of a step with an earlier one go the other way in a run to come, if none has had it so."""
        initials = self._order.initials(index, step)
        able = [each for each in initials if node is not None and each in node.options]
        if node is None or not able:
            if not any(self._sleeps(each, index) for each in initials):
                first = self._order.steps[index].op.label
                raise InternalError(f"{step.op.label} was in a race with {first}, but can never come first")
            self._bounds.add(_SLEEPS)
        elif node.back.isdisjoint(able) and node.asleep.keys().isdisjoint(able):
            node.back.add(step.op.thread if step.op.thread in able else able[0])

    def _sleeps(self, thread: str, index: int) -> bool:
        """Whether the next step of a thread from there on is that it lets others go first."""
        return any(yields(step.op) for step in self._order.steps[index:] if step.op.thread == thread)


def _labels(options: dict[str, Op]) -> tuple[str, ...]:
    return tuple(op.label for op in options.values())


def _difference(step: int, before: object, now: object) -> str:
    return f"step {step}: {before}, now {now}"
