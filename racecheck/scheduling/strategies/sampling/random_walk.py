"""At each point, one of its options with equal probability."""

from __future__ import annotations

from random import Random

from racecheck.model.nouns import Point
from racecheck.scheduling.strategies.protocol import Strategy


class RandomWalk(Strategy):
    """Hits shallow races fast; says nothing about schedules that it has not tried."""

    def __init__(self) -> None:
        self._rng = Random(0)

    def begin(self, rng: Random) -> bool:
        self._rng = rng
        return True

    def ahead(self, runs: int, rng: Random) -> Strategy | None:
        del runs
        walk = RandomWalk()
        walk.begin(rng)
        return walk

    def choose(self, point: Point) -> int:
        return self._rng.randrange(len(point.options))
