"""Try to prove, and hunt at the same time: the default.

The first runs are DPOR's: where there is little to try that is soon all of it, and what goes wrong is mostly close to
the default run.  After that every other run is the portfolio's: where there is too much for a proof, DPOR tries what is
near the end of the run first, and the bug may be elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from racecheck.model.nouns import Outcome, Point
from racecheck.scheduling.claims import Claim
from racecheck.scheduling.relation import Relation
from racecheck.scheduling.strategies.dpor import DporProgress
from racecheck.scheduling.strategies.protocol import Answered, Prefix, Strategy
from racecheck.scheduling.strategies.sampling.portfolio import Portfolio
from racecheck.scheduling.strategies.staged import Staged

_PROOF_FIRST = 6


class Auto(Strategy):
    """DPOR, and from the seventh run on alternately a portfolio of samplers."""

    def __init__(self, relation: Relation, progress: DporProgress | None = None) -> None:
        self.proof = Staged(relation, progress)
        self._hunt = Portfolio(relation.footprint)
        self._now: Strategy = self.proof
        self._begun = self._hunted = 0

    def begin(self, rng: Random) -> bool:
        hunts = self._hunts(self._begun)
        self._begun += 1
        self._now = self._hunt if hunts else self.proof
        self._hunted += hunts
        return self._now.begin(rng)

    def ahead(self, runs: int, rng: Random) -> Strategy | None:
        return self._hunt.ahead(runs, rng) if self._hunts(self._begun + runs) else None

    def _hunts(self, number: int) -> bool:
        """Return whether a run is the portfolio's, by its number from 0."""
        return number >= _PROOF_FIRST and number % 2 == 0

    def choose(self, point: Point) -> int:
        return self._now.choose(point)

    def end(self, outcome: Outcome) -> None:
        """Let the samplers learn from every run."""
        self._now.end(outcome)
        if self._now is self.proof:
            self._hunt.end(outcome)

    def abandon(self) -> None:
        self._now.abandon()

    def subtrees(self) -> Iterator[tuple[Prefix, Strategy]]:
        return self.proof.subtrees()

    def may_come(self, prefix: Prefix) -> bool:
        return self.proof.may_come(prefix)

    @property
    def prefix(self) -> Prefix:
        return self._now.prefix

    def takes(self, points: Sequence[Answered]) -> bool:
        return self._now.takes(points)

    @property
    def progress(self) -> DporProgress:
        """Return the proof's claim."""
        return self.proof.progress

    def claim(self) -> Claim:
        claim = self.proof.claim()
        if claim.exhaustive or not self._hunted:
            return claim
        return replace(claim, remarks=(f"{self._hunted} more schedules sampled",))
