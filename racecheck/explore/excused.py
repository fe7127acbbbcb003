"""Failures that were excused although no fault explains them: a claim names them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePath

from racecheck.invariants.excuses import faults, unexplained
from racecheck.invariants.failures import RankFailure
from racecheck.model.frames import user_frames
from racecheck.model.nouns import Died, Outcome, Raised
from racecheck.scheduling.claims import Claim

CONDITION = "excused after a fault"
_MOST = 2
"""How many kinds of failures are named."""


@dataclass(slots=True)
class Excused:
    """``runs`` is in how many runs there was a fault, ``kinds`` in how many of these a failure was excused."""

    runs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def take(self, outcome: Outcome) -> None:
        """Take a run."""
        if outcome.world.faults and faults(outcome):
            self.runs += 1
            self.kinds.update({_said(rank, each): 1 for rank, each in unexplained(outcome)})

    def claim(self) -> Claim:
        """Return the most that a claim can be."""
        if not self.kinds:
            return Claim(proves=True)
        shown = self.kinds.most_common(_MOST)
        others = len(self.kinds) - len(shown)
        said = ", ".join(f"{text} ({times} of {self.runs} runs)" for text, times in shown)
        return Claim(proves=True, conditions=(f"{CONDITION}: {said}{f', and {others} more' * (others > 0)}",))


def _said(rank: int, failure: RankFailure) -> str:
    """Return how a rank failed, and where."""
    if isinstance(failure, Raised):
        frame = next(iter(user_frames(failure.stack)), None)
        return f"rank {rank} raised {failure.type}{f' at {PurePath(frame.file).name}:{frame.line}' if frame else ''}"
    if isinstance(failure, Died):
        return f"rank {rank} {f'was killed by {failure.signal}' if failure.signal else f'exited with {failure.status}'}"
    return f"rank {rank} did not end"
