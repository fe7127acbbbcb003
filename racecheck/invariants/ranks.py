"""Invariants of the ranks: how they ended, and which collectives they called."""

from __future__ import annotations

from collections.abc import Iterator

from racecheck.invariants.excuses import unexcused
from racecheck.invariants.failures import describe, failures, first_line, source
from racecheck.model.nouns import Outcome, Raised, Stopped, Violation

_DEADLOCKED = frozenset({"collective", "lock", "asleep"})


def no_file_errors(outcome: Outcome) -> Iterator[Violation]:
    """No rank fails with an ``OSError``, such as FileExistsError.

    These are what a check-then-act race between ranks ends in: both see that a directory is missing and one
    ``mkdir`` fails with EEXIST; one lists the entries that the other is removing and finds ENOENT.  One violation for
    each such rank, with the op that the error came from.  (A TimeoutError of no system call, which a future or a
    file lock raises, is not about files, although an ``OSError``.)
    """
    for rank, failure in unexcused(outcome):
        if isinstance(failure, Raised) and _is_file_error(failure):
            where = f"in a thread of rank {rank}" if failure.thread else f"on rank {rank}"
            text = f"{_type(failure)} {where}: {failure.path or first_line(failure.message)}"
            yield Violation("no-file-errors", text, (rank,), source(outcome, rank, failure))


def no_unexpected_errors(outcome: Outcome) -> Iterator[Violation]:
    """No rank fails in any other way: by an exception, by a signal, or by an early exit.

    A race need not end in an ``OSError``: readers of a torn file raise EOFError or UnpicklingError, and C++
    and Rust code wrap errno in errors of their own.  One violation for each such rank.
    """
    for rank, failure in unexcused(outcome):
        if isinstance(failure, Raised) and _is_file_error(failure):
            continue
        if (isinstance(failure, Stopped) and failure.kind != "echo") or (isinstance(failure, Raised) and failure.lacks):
            continue
        yield Violation("no-unexpected-errors", describe(rank, failure), (rank,))


def no_deadlock(outcome: Outcome) -> Iterator[Violation]:
    """The ranks do not wait for each other forever, and no rank waits for an ended one.

    On a cluster this is a job that hangs until a collective times out, 10 to 30 minutes later.  Over gloo, a rank that
    waits for an ended rank gets an error instead; it is no violation if the rank catches it.  Ranks that wait for a
    failed rank are not in a deadlock: that failure is the cause.  Nor is a deadlock reported while a rank still runs,
    since the others may wait for that rank.
    """
    failed = failures(outcome)
    lacking = [(rank, each) for rank, each in failed if isinstance(each, Raised) and each.lacks]
    if lacking:
        text = "; ".join(f"{each.type} on rank {rank}: {each.lacks}" for rank, each in lacking)
        yield Violation("no-deadlock", text, tuple(rank for rank, _ in lacking))
    stopped = [(rank, each) for rank, each in failed if isinstance(each, Stopped)]
    waiting = [(rank, each) for rank, each in stopped if each.kind in _DEADLOCKED]
    if waiting and len(waiting) == len(stopped) and not lacking:
        text = "; ".join(f"rank {rank} {each.why}" for rank, each in waiting)
        yield Violation("no-deadlock", f"deadlock: {text}", tuple(rank for rank, _ in waiting))


def equal_collectives(outcome: Outcome) -> Iterator[Violation]:
    """All ranks of a group call the same collectives in the same order.

    If one calls ``barrier`` where the others call ``all_reduce``, the group hangs, or continues with wrong
    data: typically one rank has decided by the files that it found to take another path.
    """
    found = outcome.mismatch
    if found is not None:
        ranks = tuple(sorted(found.calls))
        calls = "; ".join(f"rank {rank} calls {found.calls[rank]}" for rank in ranks)
        text = f"collective #{found.number} of group {found.group}: {calls}"
        yield Violation("equal-collectives", text, ranks)


def _is_file_error(failure: Raised) -> bool:
    classes = {failure.type, *failure.bases}
    return "OSError" in classes and not ("TimeoutError" in classes and not failure.errno)


def _type(failure: Raised) -> str:
    """Return the exception's type, with the errno where the type alone does not say it."""
    return f"OSError ({failure.errno})" if failure.type == "OSError" and failure.errno else failure.type
