"""Invariants of a restart: it continues from the step that the program counts as saved."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from racecheck.invariants.excuses import is_cut
from racecheck.invariants.failures import describe, failures
from racecheck.invariants.judging import judges_crashes
from racecheck.invariants.saves import Save, newest_acked, recovered, saves
from racecheck.invariants.series import Series, series_of
from racecheck.invariants.weights import steps_of_loads
from racecheck.model.nouns import Outcome, Stopped, Violation


@judges_crashes
def durable_after_ack(outcome: Outcome, unread: Collection[str] = ()) -> Iterator[Violation]:
    """After a crash, the last step whose save has returned on all ranks loads, or a later one.

    A save that returns before its files and their names are on stable storage (fsync of the files, and of their
    directory) is lost with the power, up to half a minute later.

    Judges checkpoints at rest.  `old_survives` judges the effect of a save under way on the step before; name both.
    Ranks say when a save has returned with `Rank.acked`, and the recovery tells of its loads with `Rank.loaded`.
    Observed saves of the series in ``unread`` are left out.
    """
    for series in _read(outcome, unread):
        newest = _newest(series)
        if newest is not None and not _under_way(series.outcome, newest):
            lost = [*_lost("durable-after-ack", outcome, series, newest, "")]
            yield from lost
            if lost:
                return


@judges_crashes
def old_survives(outcome: Outcome, unread: Collection[str] = ()) -> Iterator[Violation]:
    """While a save runs, and after it fails, the last saved step loads, or the new one.

    There is never none, and never an error.  A save into the same files has no old checkpoint from its first byte on
    and no new one until its last.  Of observed saves those of the series in ``unread`` are left out.
    """
    for series in _read(outcome, unread):
        newest = _newest(series)
        later = _under_way(series.outcome, newest) if newest is not None else []
        if newest is not None and later:
            lost = [*_lost("old-survives", outcome, series, newest, f", step {later[-1]} was in progress")]
            yield from lost
            if lost:
                return


def _read(outcome: Outcome, unread: Collection[str]) -> list[Series]:
    return [each for each in series_of(outcome) if each.name not in unread]


def _newest(series: Series) -> Save | None:
    """Return the newest step that all ranks count as saved; raises `LookupError` if that is not declared."""
    outcome = series.outcome
    if outcome.recovery is None:
        raise LookupError("the scenario has no recovery (@scenario.recover)")
    newest = newest_acked(outcome)
    if newest is None and not is_cut(outcome) and not series.is_observed:
        raise LookupError("no step was acknowledged by all ranks (Rank.acked)")
    return newest


def _under_way(outcome: Outcome, newest: Save) -> list[int]:
    """Return the steps whose save has begun since, or failed."""
    return [save.step for save in saves(outcome) if save.step > newest.step]


def _lost(invariant: str, run: Outcome, series: Series, newest: Save, when: str) -> Iterator[Violation]:
    recovery = series.outcome.recovery
    assert recovery is not None
    assert run.recovery is not None
    failed = failures(recovery)
    if any(isinstance(each, Stopped) and each.kind == "running" for _, each in failed):
        return  # what it would have saved is unknown
    rank, step = _least(series)
    if series.is_observed and step < 0 and any(each.kind == "loaded" for each in run.recovery.weights):
        return  # it loads other files than these
    if failed and not (series.is_observed and step >= 0):
        found = f"loading failed: {describe(*failed[0])}"
    elif recovery.mismatch is not None:
        found = "the ranks called different collectives while loading"
    elif step < 0:
        found = "nothing was loaded"
    elif step < newest.step:
        found = f"rank {rank} loaded step {step}"
    else:
        return
    events = (newest.since - 1,) if newest.since else ()
    text = f"step {newest.step} was saved on all ranks{when}, but then {found}{series.remark}"
    yield Violation(invariant, text, (), events)


def _least(series: Series) -> tuple[int, int]:
    """Return the rank with the oldest step that the recovery loaded, and that step; -1 for none.

    A program may look at several: the newest one that it loaded counts.
    """
    if not series.is_observed:
        loads = [(load.rank, step) for load, step in recovered(series.outcome)]
        return min(loads, key=lambda each: each[1], default=(-1, -1))
    newest: dict[int, int] = {}
    for load, steps in steps_of_loads(series.outcome):
        newest[load.rank] = max(newest.get(load.rank, -1), max(steps, default=-1))
    return min(((rank, step) for rank, step in newest.items() if step >= 0), key=lambda each: each[1], default=(-1, -1))
