"""Several strategies, one for each run: each finds what another one misses."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from racecheck.model.nouns import Op, Outcome, Point
from racecheck.model.ops.footprint import Footprint
from racecheck.scheduling.claims import Claim
from racecheck.scheduling.strategies.protocol import Strategy
from racecheck.scheduling.strategies.sampling.pct import PCT
from racecheck.scheduling.strategies.sampling.pos import POS
from racecheck.scheduling.strategies.sampling.random_walk import RandomWalk
from racecheck.scheduling.strategies.sampling.urw import URW


class Portfolio(Strategy):
    """URW, PCT, POS and a random walk as 2 : 1 : 1 : 1, PCT with depths 2 and 3 in equal parts.

    All of them learn from every run, in rounds.  ``footprint`` returns the locations of an op.  The
    claim has the ``remark``, too.
    """

    def __init__(self, footprint: Callable[[Op], Footprint], remark: str = "") -> None:
        self._remark = remark
        self._members: tuple[Strategy, ...] = (URW(), PCT(2), PCT(3), POS(footprint), RandomWalk())
        self._member: Strategy = self._members[0]

    def begin(self, rng: Random) -> bool:
        self._member = self._drawn(rng)
        return self._member.begin(rng)

    def ahead(self, runs: int, rng: Random) -> Strategy | None:
        return self._drawn(rng).ahead(runs, rng)

    def _drawn(self, rng: Random) -> Strategy:
        return rng.choices(self._members, (4, 1, 1, 2, 2))[0]

    def choose(self, point: Point) -> int:
        return self._member.choose(point)

    def end(self, outcome: Outcome) -> None:
        for member in self._members:
            member.end(outcome)

    def claim(self) -> Claim:
        found = (each for member in self._members for each in member.claim().remarks)
        return Claim(remarks=(*found, *filter(None, [self._remark])))
