"""What each single fault of a sweep does: one row for each op that was struck."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from racecheck.invariants.series import series_of
from racecheck.invariants.weights import steps_of_loads
from racecheck.model.nouns import Judgement, Op, Outcome, Returned


@dataclass(frozen=True, slots=True)
class Struck:
    """The effect of a single fault: ``op`` is its op in the undisturbed run, the ``number``-th that a fault may hit.

    ``fault`` is what happened to it.  ``loaded`` are the steps that the recovery's ranks loaded, ``fails`` says whether
    a rank of the recovery failed, ``broken`` are the invariants that do not hold, and ``is_doubtful`` says whether the
    run could not be judged in full.
    """

    number: int
    op: Op
    fault: str
    loaded: tuple[int, ...] = ()
    fails: bool = False
    broken: tuple[str, ...] = ()
    is_doubtful: bool = False


def struck(number: int, op: Op, outcome: Outcome, judgement: Judgement) -> Struck:
    """Return the row of a run in which an op was struck."""
    recovery = outcome.recovery
    return Struck(
        number, op, op.fault, tuple(sorted({*_loaded(outcome)})),
        fails=recovery is not None and not all(isinstance(each, Returned) for each in recovery.results),
        broken=tuple(dict.fromkeys(each.invariant for each in judgement.violations)),
        is_doubtful=bool(judgement.reasons),
    )  # fmt: skip


def _loaded(outcome: Outcome) -> Iterator[int]:
    """Yield the step that each rank of the recovery loaded first, of each series of saves."""
    for series in series_of(outcome):
        first: dict[int, int] = {}
        for load, steps in steps_of_loads(series.outcome) if series.outcome.recovery is not None else ():
            first.setdefault(load.rank, max(steps, default=load.step))
        yield from first.values()
