"""For tests of storage views: a strategy that shows nodes what they remember, and runs with it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.model.nouns import Op, Outcome, Point, Returned
from racecheck.scheduling.strategies import Replay, Strategy
from racecheck.sessions.session import Session
from racecheck.targets.scenarios import make_world
from tests.support.targets import target


class Shows(Strategy):
    """Shows what is stale wherever the label of that has one of ``words`` in it; lets the rank ``first`` go first."""

    def __init__(self, *words: str, first: int = 0) -> None:
        self._words, self._first = words, first
        self.points: list[Point] = []

    def begin(self, rng: Random) -> bool:
        del rng
        self.points = []
        return True

    def choose(self, point: Point) -> int:
        if point.kind != "view":
            return next((at for at, option in enumerate(point.options) if option.rank == self._first), 0)
        self.points.append(point)
        labels = [option.label for option in point.options]
        return next((at for at, label in enumerate(labels[1:], 1) if any(word in label for word in self._words)), 0)

    def end(self, outcome: Outcome) -> None:
        del outcome


def show(session: Session, name: str, *words: str, storage: str = "", first: int = 0) -> Outcome:
    """Run a scenario of tests/programs/caches.py once, showing what is stale where it is one of ``words``."""
    scenario = target("caches", name)
    world = make_world(scenario.world, **({"storage": storage} if storage else {}))
    runner.warm_up(session, RunRequest.of(scenario, world, Replay(()), seed="0"))
    chosen = Shows(*words, first=first)
    chosen.begin(Random(0))
    return runner.run(session, RunRequest.of(scenario, world, chosen, seed="0"))


def values(outcome: Outcome) -> list[object]:
    """What the ranks have returned."""
    assert all(isinstance(each, Returned) for each in outcome.results), outcome.results
    return [each.value for each in outcome.results if isinstance(each, Returned)]


def stale(outcome: Outcome) -> list[Op]:
    """The ops that were shown what was there before."""
    return [replace(op, clock={}) for op in outcome.ops if op.fault]
