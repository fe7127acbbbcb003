"""What each single fault of a sweep does: one row for each op that was struck."""

from __future__ import annotations

from dataclasses import dataclass

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
    first = {each.rank: each.step for each in reversed(recovery.weights if recovery else ()) if each.kind == "loaded"}
    return Struck(
        number, op, op.fault, tuple(sorted({*first.values()})),
        fails=recovery is not None and not all(isinstance(each, Returned) for each in recovery.results),
        broken=tuple(dict.fromkeys(each.invariant for each in judgement.violations)),
        is_doubtful=bool(judgement.reasons),
    )  # fmt: skip
