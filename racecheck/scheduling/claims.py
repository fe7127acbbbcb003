"""The claim of a search beyond its runs, as one type.  Later knowledge can only lower a claim.

A condition stands in the same line as EXHAUSTED.  A run that meets one notes it (`Ledger.note`) and `_CONDITIONS` has
the sentence; a strategy puts it into ``Claim.conditions`` (DPOR: ``progress.bounds``).  A doubt makes the claim
INCOMPLETE by its name.  A run names it with `Ledger.untried` or `Ledger.hole`, a strategy in ``Claim.doubts`` (DPOR:
``progress.doubts``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from racecheck.invariants import doubts_of
from racecheck.model.nouns import Coverage, Outcome

ClaimKind = Literal["EXHAUSTED", "INCOMPLETE", ""]

CLOCKS = "clocks read as in these schedules"
_CONDITIONS = {
    "threads and processes of a rank": "threads and processes of a rank are switched only at their ops",
    "a thread computed for a second": "threads that wait for one that computes continue as in these schedules",
    "collectives return as in gloo": "for gloo",
    "collectives overlap with ops": "no rank changes a collective's tensor before its wait",
    "listings are sorted": "listings are sorted",
    "the program reads clocks": CLOCKS,
    "a process group has a time limit": "no rank is slower than a process group's time limit",
    "a rank sends a signal": "a process that gets a signal is gone at once, if it ends by that",
    "a file is moved between": "TMPDIR and the watched directory are one file system",
    "a rank failed, and the launcher": "the launcher's SIGTERM to other ranks, after one failed, comes last",
    "collectives return as early": "for collectives that return as early as MPI and NCCL allow",
}
"""The condition of a claim, by the beginning of the note that asks for it."""
_ONE_RECOVERY = "one order of the recovery's ops"


@dataclass(frozen=True, slots=True)
class Claim:
    """The conclusions from runs, beyond themselves.

    ``proves``: a strategy has chosen that can cover every interleaving; samples prove nothing.  ``left`` is the rest
    that it has yet to try.  ``remarks`` are further facts that the runs show, such as the probability of a bug.
    ``conditions`` are the assumptions of the claim, ``doubts`` why it is no proof, each by its name.
    """

    proves: bool = False
    traces: int = 0
    redundant: int = 0
    left: str = ""
    remarks: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def against(self) -> tuple[str, ...]:
        """All that prevents EXHAUSTED where a strategy can prove."""
        return tuple(filter(None, (self.left, *self.doubts)))

    @property
    def kind(self) -> ClaimKind:
        if not self.proves:
            return ""
        return "INCOMPLETE" if self.against else "EXHAUSTED"

    @property
    def exhaustive(self) -> bool:
        """Whether the runs cover every interleaving, under the conditions."""
        return self.kind == "EXHAUSTED"

    @property
    def said(self) -> str:
        """The claim without its conditions, in one line; "" for nothing."""
        found = f"{self.traces} trace{'s' * (self.traces != 1)}, {self.redundant} redundant"
        parts = [*self.against, *([found] if self.proves else []), *self.remarks]
        return f"{self.kind}: {'; '.join(parts)}" if self.kind else "; ".join(parts)

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.said, *self.conditions)))

    def join(self, other: Claim) -> Claim:
        """Return the claim that holds if both hold."""
        return Claim(
            self.proves and other.proves, self.traces + other.traces, self.redundant + other.redundant,
            "; ".join(filter(None, (self.left, other.left))), _union(self.remarks, other.remarks),
            _union(self.conditions, other.conditions), _union(self.doubts, other.doubts),
        )  # fmt: skip


NOTHING_AGAINST = Claim(proves=True)
"""The neutral claim: joined with it, a claim stays as it is."""


def lowered(doubts: Iterable[str]) -> Claim:
    """Return the claim that stands for these doubts."""
    return Claim(proves=True, doubts=_union((), doubts))


def pending(left: Iterable[str]) -> Claim:
    """Return the claim that stands for untried work: a longer search may do it."""
    return Claim(proves=True, left="; ".join(left))


def of_run(outcome: Outcome) -> Claim:
    """Return the most that a run allows a claim to be."""
    doubts = _union(doubts_of(outcome), _untried(outcome))
    return Claim(proves=True, conditions=_union((), _conditions(outcome)), doubts=doubts)


def merged(one: Coverage, other: Coverage) -> Coverage:
    """Return the coverage of both: of each count the larger one."""
    return Coverage(
        max(one.ops, other.ops), max(one.passed, other.passed), _most(one.holes, other.holes),
        _most(one.untried, other.untried), _most(one.notes, other.notes),
    )  # fmt: skip


def _conditions(outcome: Outcome) -> Iterator[str]:
    for noted, said in _CONDITIONS.items():
        if any(each.startswith(noted) for each in outcome.coverage.notes):
            yield said
    if outcome.recovery is not None:
        yield from ([_ONE_RECOVERY] if outcome.recovery.schedule else [])
        yield from _conditions(outcome.recovery)


def _untried(outcome: Outcome) -> Iterator[str]:
    yield from (f"not tried: {each}" for each in outcome.coverage.untried)
    if outcome.recovery is not None:
        yield from (f"in the recovery: {each}" for each in _untried(outcome.recovery))


def _union(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def _most(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in sorted({*one, *other})}
