"""Failures that a rank is excused for in a run with faults.

A rank whose call is made to fail has to fail, or how would anybody know?  So from the first such fault on

1. its own exception, or its end with an exit status, is what an honest checkpointer does;
2. so are those of its peers, who learn of it in whatever way their protocol has;
3. so is a death by the signal that was sent.

What is not excused: an error that an op had met before a fault came, unless one then came to the same rank and file,
which may have kept it from getting over that (``makedirs`` asks with stat(2) what is there after EEXIST); a process
that breaks down (SIGSEGV, SIGABRT) where an error code would have had to be handled; ranks that wait for each other
forever.  Whether a failure was an *honest* one is what `error_honesty` judges.  Slow ops and stale reads are no
excuse: they happen on a healthy cluster.
"""

from __future__ import annotations

from racecheck.invariants.failures import Failure, failures, source
from racecheck.model.nouns import Died, Op, Outcome, Raised
from racecheck.model.ops.launcher_ops import is_of_launcher

_HEALTHY = ("slow", "stale")


def faults(outcome: Outcome) -> list[tuple[int, Op]]:
    """Return what went wrong on purpose and would have been a failure on a cluster: ops, with their indices."""
    return [
        (index, event)
        for index, event in enumerate(outcome.trace)
        if isinstance(event, Op) and event.fault and not event.fault.startswith(_HEALTHY) and not is_of_launcher(event)
    ]


def is_cut(outcome: Outcome) -> bool:
    """Return whether the run may have ended early for a reason that is not the scenario's fault."""
    return outcome.crash is not None or bool(faults(outcome))


def unexcused(outcome: Outcome) -> list[tuple[int, Failure]]:
    """Like `failures`, without those that are excused."""
    since = min((index for index, _ in faults(outcome)), default=len(outcome.trace))
    return [(rank, each) for rank, each in failures(outcome) if not _is_excused(outcome, rank, each, since)]


def _is_excused(outcome: Outcome, rank: int, failure: Failure, since: int) -> bool:
    if since == len(outcome.trace):
        return False
    if isinstance(failure, Died):
        return not failure.signal or failure.signal in {op.syscall for _, op in faults(outcome) if op.call == "kill"}
    if isinstance(failure, Raised):
        met = source(outcome, rank, failure)
        if not met or met[0] >= since:
            return True
        later = [op for index, op in faults(outcome) if op.rank == rank and index > met[0]]
        return any(place.path == failure.path for op in later for place in op.places)
    return False
