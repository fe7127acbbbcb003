"""Every pending op has a random priority, and gets a new one when something happens that it races with.

Yuan, Yang, Gu: "Partial Order Aware Concurrency Sampling", CAV 2018.  Of two ops that race with each other the one that
comes after n more of its own thread goes first in one run of n + 2; in a random walk, in one of 2^(n + 1).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from racecheck.model.nouns import Op, Point
from racecheck.model.ops.footprint import Footprint, depends
from racecheck.scheduling.strategies.protocol import Strategy


class POS(Strategy):
    """Samples partial orders more evenly than a random walk does; ``footprint`` returns an op's locations."""

    def __init__(self, footprint: Callable[[Op], Footprint]) -> None:
        self._footprint = footprint

    def begin(self, rng: Random) -> bool:
        self._rng = rng
        self._priorities: dict[str, float] = {}
        self._seen = 0
        return True

    def ahead(self, runs: int, rng: Random) -> Strategy | None:
        del runs
        walk = POS(self._footprint)
        walk.begin(rng)
        return walk

    def choose(self, point: Point) -> int:
        done = [event for event in point.trace[self._seen :] if isinstance(event, Op)]
        self._seen = len(point.trace)
        gone = {op.thread for op in done}
        touched = [self._footprint(op) for op in done]
        kept = {}
        for option in point.options:
            thread = option.thread
            stays = thread in self._priorities and thread not in gone and not self._races(option, touched)
            kept[thread] = self._priorities[thread] if stays else self._rng.random()
        self._priorities = kept
        return max(range(len(point.options)), key=lambda each: kept[point.options[each].thread])

    def _races(self, option: Op, touched: list[Footprint]) -> bool:
        mine = self._footprint(option)
        return any(depends(mine, each) for each in touched)
