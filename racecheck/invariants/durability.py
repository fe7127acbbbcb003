"""Invariants of a restart: it continues from the step that the program counts as saved."""

from __future__ import annotations

from collections.abc import Iterator

from racecheck.invariants.excuses import is_cut
from racecheck.invariants.failures import describe, failures
from racecheck.invariants.judging import judges_crashes
from racecheck.invariants.saves import Save, newest_acked, recovered, saves
from racecheck.model.nouns import Outcome, Stopped, Violation


@judges_crashes
def durable_after_ack(outcome: Outcome) -> Iterator[Violation]:
    """After a crash, the last step whose save has returned on all ranks loads, or a later one.

    A save that returns before its files and their names are on stable storage (fsync of the files, and of their
    directory) is lost with the power, up to half a minute later.

    Judges what is at rest.  What a save under way does to the step before it is for `old_survives`; name both.  Ranks
    say when a save has returned with `Rank.acked`, and the recovery what it loads with `Rank.loaded`.
    """
    newest = _newest(outcome)
    if newest is not None and not _under_way(outcome, newest):
        yield from _lost("durable-after-ack", outcome, newest, "")


@judges_crashes
def old_survives(outcome: Outcome) -> Iterator[Violation]:
    """While a save runs, and after it fails, the last saved step loads, or the new one.

    There is never none, and never an error.  A save into the same files has no old checkpoint from its first byte on
    and no new one until its last.
    """
    newest = _newest(outcome)
    later = _under_way(outcome, newest) if newest is not None else []
    if newest is not None and later:
        yield from _lost("old-survives", outcome, newest, f", step {later[-1]} was in progress")


def _newest(outcome: Outcome) -> Save | None:
    """Return the newest step that all ranks count as saved; raises `LookupError` where that is not declared."""
    if outcome.recovery is None:
        raise LookupError("the scenario has no recovery (@scenario.recover)")
    newest = newest_acked(outcome)
    if newest is None and not is_cut(outcome):
        raise LookupError("no step was acknowledged by all ranks (Rank.acked)")
    return newest


def _under_way(outcome: Outcome, newest: Save) -> list[int]:
    """Return the steps whose save has begun since, or failed."""
    return [save.step for save in saves(outcome) if save.step > newest.step]


def _lost(invariant: str, outcome: Outcome, newest: Save, when: str) -> Iterator[Violation]:
    assert outcome.recovery is not None
    failed = failures(outcome.recovery)
    if any(isinstance(each, Stopped) and each.kind == "running" for _, each in failed):
        return  # what it would have saved is unknown
    loads = list(recovered(outcome))
    least = min(loads, key=lambda each: each[1], default=None)
    if failed:
        found = f"loading failed: {describe(*failed[0])}"
    elif outcome.recovery.mismatch is not None:
        found = "the ranks called different collectives while loading"
    elif least is None:
        found = "nothing was loaded"
    elif least[1] < newest.step:
        found = f"rank {least[0].rank} loaded step {least[1]}"
    else:
        return
    events = (newest.since - 1,) if newest.since else ()
    yield Violation(invariant, f"step {newest.step} was saved on all ranks{when}, but then {found}", (), events)
