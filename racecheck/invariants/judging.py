"""From invariants to a verdict.

An invariant is a pure function from an `Outcome` to the violations that it finds there, so it judges a stored finding
as well as a fresh run.  People know it by its name: the function's, with dashes (`name_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from racecheck.model.nouns import Invariant, Judgement, Outcome, Stopped, Verdict, Violation

UNJUDGED = " could not judge the run: "
"""Between an invariant's name and its exception, in a reason for doubt."""
_READERS: set[Invariant] = set()
_OF_CRASHES: set[Invariant] = set()
_OF_DAMAGE: set[Invariant] = set()
_Asking = TypeVar("_Asking", bound=Callable[..., Iterator[Violation]])


def reads_contents(invariant: _Asking) -> _Asking:
    """Mark an invariant that looks at `Outcome.contents`, which takes time to fill (a decorator)."""
    _READERS.add(invariant)
    return invariant


def wants_contents(invariants: Sequence[Invariant]) -> bool:
    """Return whether any of these invariants looks at the contents of files, also behind a ``functools.partial``."""
    return any(_inner(each) in _READERS for each in invariants)


def judges_crashes(invariant: _Asking) -> _Asking:
    """Mark an invariant that also holds for crash states (a decorator).

    Others are about how runs end and what ranks did: a crash cuts that off, so they are asked about whole runs only.
    """
    _OF_CRASHES.add(invariant)
    return invariant


def judges_damage(invariant: _Asking) -> _Asking:
    """Mark an invariant of recoveries from damaged files (a decorator): no other one is asked about them."""
    _OF_DAMAGE.add(invariant)
    return invariant


def after_crash(invariants: Sequence[Invariant], *, damaged: bool = False) -> list[Invariant]:
    """Return those of the invariants that judge crash states, or damage."""
    return [each for each in invariants if _inner(each) in (_OF_DAMAGE if damaged else _OF_CRASHES)]


def _inner(invariant: Invariant) -> Invariant:
    while isinstance(invariant, partial):
        invariant = invariant.func
    return invariant


def judge(outcome: Outcome, invariants: Sequence[Invariant]) -> Judgement:
    """Run every invariant and merge by maximum: a violation is a FAIL, else a reason for doubt is UNKNOWN.

    The reasons are listed with a FAIL too: what was not under control may bear on how to read it.  An
    invariant that raises yields a reason, not an error; its violations before that count.  Of a crash only those
    are asked that judge crashes (`judges_crashes`).
    """
    violations: list[Violation] = []
    if outcome.crash is not None:
        invariants = after_crash(invariants, damaged=bool(outcome.crash.damage))
    reasons = list(doubts_of(outcome))
    if not invariants:
        missing = "no invariant was given" if outcome.crash is None else "none of the invariants judges crashes"
        reasons.append(f"nothing was judged: {missing}")
    for invariant in invariants:
        reasons += _ask(invariant, outcome, violations)
    verdict = max(
        Verdict.PASS,
        Verdict.UNKNOWN if reasons else Verdict.PASS,
        Verdict.FAIL if violations else Verdict.PASS,
    )
    return Judgement(verdict, tuple(violations), tuple(reasons))


def name_of(invariant: Invariant) -> str:
    """Return an invariant's name for people: its function's name with dashes, also behind a ``functools.partial``."""
    invariant = _inner(invariant)
    return getattr(invariant, "__name__", type(invariant).__name__).replace("_", "-")


def doubts_of(outcome: Outcome) -> Iterator[str]:
    """Return why this run could not be a PASS, whatever invariants say; of a crash only the recovery's outcome."""
    if outcome.crash is None:
        yield from _doubts_of_run(outcome)
    if outcome.recovery is not None:
        yield from (f"in the recovery: {doubt}" for doubt in doubts_of(outcome.recovery))


def _doubts_of_run(outcome: Outcome) -> Iterator[str]:
    if not outcome.results:
        yield "no rank ran"
    for rank, result in enumerate(outcome.results):
        if isinstance(result, Stopped) and result.kind == "running":
            yield f"rank {rank} did not end: {result.why}"
    for what, count in outcome.coverage.holes.items():
        yield f"not controlled: {what} ({count} times)" if count > 1 else f"not controlled: {what}"


def _ask(invariant: Invariant, outcome: Outcome, found: list[Violation]) -> list[str]:
    """Add an invariant's violations to ``found``, one by one; returns the reason if it could not judge."""
    try:
        found.extend(map(_checked, invariant(outcome)))
    except Exception as error:  # noqa: BLE001
        return [f"{name_of(invariant)}{UNJUDGED}{type(error).__name__}: {error}"]
    return []


def _checked(given: object) -> Violation:
    """Return the violation; raises `TypeError` for anything else, such as a character of a returned message."""
    if not isinstance(given, Violation):
        raise TypeError(f"an invariant must return violations, not {type(given).__name__}")
    return given
