"""Failures that a rank is excused for in a run with faults.

A rank whose call is made to fail has to fail, or how would anybody know?  So from the first such fault on

1. its own exception, or its end with an exit status, is an honest answer;
2. so are those of its peers, who learn of it in whatever way their protocol has;
3. so is a death by the signal that was sent.

A failure that a fault explains is excused without a word: the exception has the fault's errno (itself, as a cause, or
in its text), or its rank has done nothing since but clean up; a peer is told of it.  Of other excused failures
(`unexplained`) a claim says that they were.

Not excused are: an error that an op had met before a fault came, unless one then came to the same rank and file,
which may have kept it from getting over that (``makedirs`` asks with stat(2) what is there after EEXIST); a process
that breaks down (SIGSEGV, SIGABRT) where an error code would have had to be handled; ranks that wait for each other
forever; anything, if the program has to ``survive`` the fault.  Whether a failure was an *honest* one is what
`error_honesty` judges.  Slow ops and stale reads are no excuse: they happen on a healthy cluster.
"""

from __future__ import annotations

import errno as errno_module
import os
from collections.abc import Collection, Sequence

from racecheck.invariants.failures import RankFailure, failures, source
from racecheck.model.nouns import Collective, Died, Op, Outcome, Raised
from racecheck.model.ops.launcher_ops import is_of_launcher

_HEALTHY = ("slow", "stale")
_CLEANS = frozenset({"access", "close", "exit", "flock", "rmdir", "sleep", "stat", "truncate", "unlink"})
"""Families of the calls with which an exception is passed on, or its traces are removed."""


def faults(outcome: Outcome) -> list[tuple[int, Op]]:
    """Return the faults that would have been a failure on a cluster: ops, with their indices."""
    return [
        (index, event)
        for index, event in enumerate(outcome.trace)
        if isinstance(event, Op) and event.fault and not event.fault.startswith(_HEALTHY) and not is_of_launcher(event)
    ]


def is_cut(outcome: Outcome) -> bool:
    """Return whether the run may have ended early for a reason that is not the scenario's fault."""
    return outcome.crash is not None or bool(faults(outcome))


def unexcused(outcome: Outcome) -> list[tuple[int, RankFailure]]:
    """Like `failures`, without those that are excused."""
    return [(rank, each) for rank, each in failures(outcome) if not _is_excused(outcome, rank, each)]


def unexplained(outcome: Outcome) -> list[tuple[int, RankFailure]]:
    """Return the failures that are excused although no fault explains them."""
    hits = faults(outcome)
    failed = {rank for rank, each in failures(outcome)} & {op.rank for _, op in hits}
    return [
        (rank, each)
        for rank, each in failures(outcome)
        if _is_excused(outcome, rank, each) and not _is_explained(outcome, rank, each, hits, failed)
    ]


def _is_excused(outcome: Outcome, rank: int, failure: RankFailure) -> bool:
    hits = faults(outcome)
    if not hits:
        return False
    if isinstance(failure, Died) and failure.signal in {op.syscall for _, op in hits if op.call == "kill"}:
        return True
    if any(each.survive for each in outcome.world.faults):
        return False
    if isinstance(failure, Died):
        return not failure.signal
    if isinstance(failure, Raised):
        met = source(outcome, rank, failure)
        if not met or met[0] >= hits[0][0]:
            return True
        later = [op for index, op in hits if op.rank == rank and index > met[0]]
        return any(place.path == failure.path for op in later for place in op.places)
    return False


def _is_explained(
    outcome: Outcome, rank: int, failure: RankFailure, hits: Sequence[tuple[int, Op]], failed: Collection[int]
) -> bool:
    """Return whether a fault explains a failure; ``failed`` are the ranks that faults have hit and that failed."""
    own = [(index, op) for index, op in hits if op.rank == rank]
    if isinstance(failure, Died):
        return bool(own or failure.signal)
    if not isinstance(failure, Raised):
        return True
    errnos = {op.result.errno for _, op in (own or hits) if op.result is not None and op.result.errno}
    if errnos & {failure.errno, *failure.causes} or any(_says(failure.message, each) for each in errnos):
        return True
    return _has_only_cleaned_up(outcome, rank, own[-1][0]) if own else bool(failure.echo and failed)


def _says(message: str, errno: str) -> bool:
    number = getattr(errno_module, errno, 0)
    return f"[Errno {number}]" in message or errno in message or os.strerror(number) in message


def _has_only_cleaned_up(outcome: Outcome, rank: int, since: int) -> bool:
    """Return whether a rank has done nothing since an event but close, remove and look."""
    later = outcome.trace[since + 1 :]
    return all(each.call in _CLEANS for each in later if isinstance(each, Op) and each.rank == rank) and not any(
        rank in each.ranks for each in later if isinstance(each, Collective)
    )
