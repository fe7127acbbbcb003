"""Is it the same failure?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from racecheck.invariants import judge
from racecheck.model.nouns import Invariant, Op, Outcome, Violation
from racecheck.model.ops.op_names import paths, pattern

Fails = Callable[[Outcome], Violation | None]
"""The violation that shows the failure in question; None for a run that has it not."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure by which a run can be compared with another; calling it returns the violation that is like it, or None.

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
        """All violations of the invariant, like this one or not."""
        found = judge(outcome, self.invariants).violations
        return [each for each in found if each.invariant == self.invariant]

    def is_gone(self, outcome: Outcome) -> bool:
        """Whether the invariant holds: in no way broken, and for no new reason in doubt."""
        return not self.broken(outcome) and self.reasons.issuperset(judge(outcome, self.invariants).reasons)

    def _is_like(self, violation: Violation, outcome: Outcome) -> bool:
        return frozenset(_about(violation, outcome)) == self.about


def same_failure(outcome: Outcome, violation: Violation, invariants: Sequence[Invariant]) -> Failure:
    """What tells this violation, which the invariants have found in the outcome, again in other runs."""
    reasons = frozenset(judge(outcome, invariants).reasons)
    return Failure(violation.invariant, frozenset(_about(violation, outcome)), reasons, tuple(invariants))


def _about(violation: Violation, outcome: Outcome) -> Iterator[str]:
    """What the ops touch that show it; else the paths that its message mentions, and how that begins."""
    shown = [event for event in (outcome.trace[index] for index in violation.events) if isinstance(event, Op)]
    if shown:
        yield from (f"{paths(op)} {op.result.errno}".rstrip() if op.result else paths(op) for op in shown)
        return
    known = {place.path for op in (*outcome.ops, *outcome.pending) for place in op.places} | {*outcome.disk}
    head, _, _ = violation.message.partition(":")
    yield pattern(head)
    yield from (pattern(word) for word in violation.message.replace(",", " ").split() if word in known)
