"""Decide whether two failures are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from racecheck.invariants import UNJUDGED, judge
from racecheck.model.nouns import Invariant, Op, Outcome, Returned, Violation
from racecheck.model.ops.op_names import paths, pattern

Fails = Callable[[Outcome], Violation | None]
"""Returns the violation that shows the failure in question, or None for a run without it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure that a run can be compared with; calling it returns the violation that is like it, or None.

    Like it is one of the same invariant that ops of the same pattern of paths show, with the same errno; or, if no op
    shows it, one that begins with the same words.  Ranks are all alike: if another one fails in the same way, that is
    the same failure.
    """

    invariant: str
    about: frozenset[str]
    reasons: frozenset[str]
    invariants: tuple[Invariant, ...]

    def __call__(self, outcome: Outcome) -> Violation | None:
        return next((each for each in self.broken(outcome) if self._is_like(each, outcome)), None)

    def broken(self, outcome: Outcome) -> list[Violation]:
        """Return all violations of the invariant, like this one or not."""
        found = judge(outcome, self.invariants).violations
        return [each for each in found if each.invariant == self.invariant]

    def is_gone(self, outcome: Outcome) -> bool:
        """Return whether every invariant holds, without a new reason for doubt, and every rank returns."""
        judgement = judge(outcome, self.invariants)
        unjudged = any(UNJUDGED in each for each in judgement.reasons)
        is_good = not judgement.violations and not unjudged and self.reasons.issuperset(judgement.reasons)
        return is_good and _is_whole(outcome)

    def _is_like(self, violation: Violation, outcome: Outcome) -> bool:
        return frozenset(_about(violation, outcome)) == self.about


def _is_whole(outcome: Outcome) -> bool:
    """Return whether every rank returned, also in the recovery."""
    after = outcome.recovery
    own = all(isinstance(each, Returned) for each in outcome.results)
    return own and (after is None or _is_whole(after))


def same_failure(outcome: Outcome, violation: Violation, invariants: Sequence[Invariant]) -> Failure:
    """Return the key of a violation by which other runs show it."""
    reasons = frozenset(judge(outcome, invariants).reasons)
    return Failure(violation.invariant, frozenset(_about(violation, outcome)), reasons, tuple(invariants))


def _about(violation: Violation, outcome: Outcome) -> Iterator[str]:
    """Return the locations that show it; else the paths that its message mentions, and its first words."""
    shown = [event for event in (outcome.trace[index] for index in violation.events) if isinstance(event, Op)]
    if shown:
        yield from (f"{paths(op)} {op.result.errno}".rstrip() if op.result else paths(op) for op in shown)
        return
    known = {place.path for op in (*outcome.ops, *outcome.pending) for place in op.places} | {*outcome.disk}
    head, _, _ = violation.message.partition(":")
    yield pattern(head)
    yield from (pattern(word) for word in violation.message.replace(",", " ").split() if word in known)
