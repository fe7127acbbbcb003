"""Two proofs, the cheaper one first.

Nobody sees the threads of a rank at work in memory.  So in a full proof each of their ops depends on every other
(`racecheck.scheduling.relation`), and even two small threads rarely finish.  The first proof assumes that they share
only what is controlled: files, descriptors, the working directory, locks, keys of the store, and each other's
beginnings and ends.  With budget left, the full proof follows; once it is complete, the condition is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from racecheck.model.errors import InternalError
from racecheck.model.nouns import Outcome, Point
from racecheck.scheduling.claims import Claim
from racecheck.scheduling.relation import Relation
from racecheck.scheduling.strategies.dpor import DPOR, DporProgress
from racecheck.scheduling.strategies.protocol import Answered, Prefix, Strategy

CONDITION = "threads of a rank share only what is controlled"


class Staged(Strategy):
    """DPOR under `CONDITION`, and then without; where no rank has threads these are the same, and it runs once.

    ``progress`` may be that of an earlier search, to continue.
    """

    def __init__(self, relation: Relation, progress: DporProgress | None = None) -> None:
        self._relation = relation
        self._proof = self._with(progress or DporProgress(cheap=True))

    def begin(self, rng: Random) -> bool:
        if self._proof.begin(rng):
            return True
        progress = self.progress
        if not (progress.cheap and progress.shared):
            return False
        self._go_on(self.claim())
        return self._proof.begin(rng)

    def choose(self, point: Point) -> int:
        return self._proof.choose(point)

    def end(self, outcome: Outcome) -> None:
        self.progress.shared |= any(not op.alone for op in outcome.ops)
        try:
            self._proof.end(outcome)
        except InternalError:
            if not (self.progress.cheap and self.progress.shared):
                raise
            self._go_on(None)  # its threads share something else, which keeps an op from going first

    def abandon(self) -> None:
        self._proof.abandon()

    def subtrees(self) -> Iterator[tuple[Prefix, Strategy]]:
        return self._proof.subtrees()

    def may_come(self, prefix: Prefix) -> bool:
        return self._proof.may_come(prefix)

    @property
    def prefix(self) -> Prefix:
        return self._proof.prefix

    def takes(self, points: Sequence[Answered]) -> bool:
        return self._proof.takes(points)

    @property
    def progress(self) -> DporProgress:
        """Return the claim of the proof under way."""
        return self._proof.progress

    def claim(self) -> Claim:
        claim, first = self._proof.claim(), self.progress.first
        if self.progress.cheap:
            return replace(claim, conditions=(*claim.conditions, CONDITION)) if self.progress.shared else claim
        if first is None or claim.exhaustive or not first.exhaustive:
            return claim
        tried = f"{claim.traces} trace{'s' * (claim.traces != 1)}"
        return replace(first, remarks=(f"without the condition on threads: {', '.join((tried, *claim.against))}",))

    def _with(self, progress: DporProgress) -> DPOR:
        return DPOR(self._relation.of_what_is_controlled() if progress.cheap else self._relation, progress)

    def _go_on(self, first: Claim | None) -> None:
        self._proof = self._with(DporProgress(shared=True, first=first, timed=self.progress.timed))
