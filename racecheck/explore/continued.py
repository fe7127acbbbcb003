"""Whether recoveries went on with the job, so that a claim says if a resumed job was compared with nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from racecheck.explore.observed_saves import NEVER_CONTINUED
from racecheck.invariants import resume_equals
from racecheck.invariants.resuming import Uninterrupted, continues
from racecheck.model.nouns import Invariant, Outcome
from racecheck.scheduling.claims import Claim


@dataclass(slots=True)
class Continued:
    """``is_seen``: a recovery did what could be compared with the undisturbed run, if that was asked for."""

    is_asked: bool = False
    is_seen: bool = False

    def take(self, outcome: Outcome, invariants: Sequence[Invariant]) -> None:
        """Take a run."""
        reference = None if self.is_seen else _reference(invariants)
        if reference is not None:
            self.is_asked, self.is_seen = True, continues(outcome, reference)

    def claim(self) -> Claim:
        """Return the most that a claim can be."""
        return Claim(proves=True, conditions=(NEVER_CONTINUED,) if self.is_asked and not self.is_seen else ())


def _reference(invariants: Sequence[Invariant]) -> Uninterrupted | None:
    found = [each for each in invariants if isinstance(each, partial) and each.func is resume_equals]
    return found[0].keywords["reference"] if found else None
