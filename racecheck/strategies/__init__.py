"""Strategies answer points.

The runner calls, for each run: 1. ``begin(rng)``, which is False once the strategy has nothing left to try; 2.
``choose(point)`` at each point that has two options or more, which gives the index of one, or raises `Enough`; 3.
``end(outcome)``, unless it has raised.  A strategy does no input or output, knows no budget and draws from ``rng``
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from racecheck.errors import UsageError
from racecheck.model import Outcome, Point, World
from racecheck.strategies.random_walk import RandomWalk
from racecheck.strategies.replay import Replay
from racecheck.strategies.round_robin import RoundRobin

__all__ = ["Enough", "RandomWalk", "Replay", "RoundRobin", "Strategy", "check_strategy", "make"]


class Enough(BaseException):
    """The rest of this run could show nothing new."""


class Strategy(Protocol):
    """See the module for the order of calls."""

    def begin(self, rng: Random) -> bool: ...

    def choose(self, point: Point) -> int: ...

    def end(self, outcome: Outcome) -> None: ...


_BY_NAME: dict[str, Callable[[], Strategy]] = {"random": RandomWalk, "round-robin": RoundRobin}
NAMES = tuple(_BY_NAME)


def make(name: str) -> Strategy:
    """The strategy of this name; raises `UsageError` for one that does not exist."""
    if name not in _BY_NAME:
        raise UsageError(f"there is no strategy {name!r}; there is: {', '.join(NAMES)}")
    return _BY_NAME[name]()


def check_strategy(make_strategy: Callable[[], Strategy], points: list[Point]) -> None:
    """Conformance: two fresh strategies from one seed choose the same at ``points``, and only what there is.

    Raises `AssertionError` with the first point at which that is not so.
    """
    runs = []
    for _ in range(2):
        strategy = make_strategy()
        assert strategy.begin(Random("conformance")), "begin() of a fresh strategy must be true"
        runs.append([strategy.choose(point) for point in points])
        strategy.end(Outcome(World(), (), (), ()))
    for point, first, second in zip(points, *runs, strict=True):
        assert 0 <= first < len(point.options), f"{first} is no option of {point}"
        assert first == second, f"two runs from one seed chose {first} and {second} at {point}"
