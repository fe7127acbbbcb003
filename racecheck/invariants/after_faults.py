"""Invariants of a run once its faults have stopped, and of a job that is told to end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from racecheck.invariants.excuses import faults
from racecheck.invariants.failures import describe, failures
from racecheck.invariants.judging import judges_crashes
from racecheck.invariants.saves import Save, saves
from racecheck.model.nouns import Op, Outcome, Raised, Returned, Violation

_HELPER = re.compile("killed by signal: Terminated|process pool was terminated abruptly")
"""How torch's DataLoader and `concurrent.futures` say that a process which they had started was ended by SIGTERM."""


@judges_crashes
def liveness(outcome: Outcome) -> Iterator[Violation]:
    """Once the faults stop, the next save succeeds: in the recovery, or later in the same run.

    A failed save that leaves its temporary directory, its marker or its lock behind may make every save after it fail,
    also after a restart.  So every save that all ranks begin after the last fault has to return on all of them.  Let
    the recovery save again, and say so with `Rank.saved` and `Rank.acked`.
    """
    last = max((index for index, _ in faults(outcome)), default=-1)
    here = [save for save in saves(outcome) if _is_healthy(outcome, save, last)] if outcome.crash is None else []
    there = saves(outcome.recovery) if outcome.recovery is not None else []
    yield from _failed(outcome, here, "")
    if outcome.recovery is not None:
        yield from _failed(outcome.recovery, there, " in the recovery")
    if not here and not there:
        raise LookupError("no save follows the faults, in the run or in a recovery (Rank.saved, Rank.acked)")


def ends_in_time(outcome: Outcome) -> Iterator[Violation]:
    """A rank that handles SIGTERM has ended before SIGKILL follows, and not because its helpers have no handler.

    A preempted job has half a minute for its last save.  A handler that only sets a flag, which is looked at after an
    evaluation, or a save that waits for a rank that has left, takes longer, and SIGKILL ends the job in the middle.
    The workers of a data loader get the signal, too: they end at once, and their rank fails before it has saved.
    """
    told: dict[int, tuple[int, Op]] = {}
    for index, op in faults(outcome):
        if op.syscall == "SIGTERM":
            told.setdefault(op.rank, (index, op))
        elif op.syscall == "SIGKILL" and op.rank in told:
            begun, first = told[op.rank]
            seconds = f"{(op.time - first.time) / 1e9:.0f} s"
            text = f"rank {op.rank} handles SIGTERM, but had not ended {seconds} later, when SIGKILL came"
            yield Violation("ends-in-time", text, (op.rank,), (begun, index))
    for rank, failure in failures(outcome):
        if rank in told and isinstance(failure, Raised) and _HELPER.search(failure.message):
            begun, _ = told[rank]
            if not any(each.kind == "saved" and each.event > begun for each in outcome.weights):
                text = (
                    f"rank {rank} handles SIGTERM, but fails before its last save: a worker of it got the signal, too"
                )
                yield Violation("ends-in-time", text, (rank,), (begun,))


def _is_healthy(outcome: Outcome, save: Save, last: int) -> bool:
    """Return whether a save has begun after the last fault while all ranks were still there."""
    gone = {rank for rank, result in enumerate(outcome.results) if not isinstance(result, Returned)} - set(save.begun)
    return bool(save.begun) and min(save.begun.values()) > last and not gone


def _failed(outcome: Outcome, begun: list[Save], where: str) -> Iterator[Violation]:
    for save in begun:
        ranks = tuple(sorted(set(save.begun) - set(save.acked)))
        if ranks:
            how = [describe(rank, each) for rank, each in failures(outcome)]
            text = f"the save of step {save.step}{where} did not return on rank{'s' * (len(ranks) > 1)} "
            yield Violation("liveness", f"{text}{', '.join(map(str, ranks))}{': ' * bool(how)}{'; '.join(how)}", ranks)
