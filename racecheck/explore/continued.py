"""How many recoveries continued the job, so that a claim says how many were compared with the uninterrupted one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from racecheck.explore.observed_saves import CONTINUED, NEVER_CONTINUED
from racecheck.invariants import resume_equals
from racecheck.invariants.resuming import Uninterrupted, continues
from racecheck.model.nouns import Invariant, Outcome
from racecheck.scheduling.claims import Claim


@dataclass(slots=True)
class Continued:
    """``runs`` is in how many runs that was asked for, ``compared`` in how many of these it could be compared."""

    runs: int = 0
    compared: int = 0

    def take(self, outcome: Outcome, invariants: Sequence[Invariant]) -> None:
        """Take a run."""
        reference = _reference(invariants)
        if reference is not None and outcome.recovery is not None and any(outcome.fired):
            self.runs += 1
            self.compared += continues(outcome, reference)

    def claim(self) -> Claim:
        """Return the most that a claim can be."""
        if self.compared == self.runs:
            return Claim(proves=True)
        said = f"{CONTINUED}: {self.compared} of {self.runs}" if self.compared else NEVER_CONTINUED
        return Claim(proves=True, conditions=(said,))


def _reference(invariants: Sequence[Invariant]) -> Uninterrupted | None:
    found = [each for each in invariants if isinstance(each, partial) and each.func is resume_equals]
    return found[0].keywords["reference"] if found else None
