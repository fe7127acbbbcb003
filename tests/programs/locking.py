"""Scenarios in which ranks lock files with fcntl(2) and flock(2).  Not collected by pytest."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import racecheck
from racecheck import Rank

Lock = Callable[[int, int], None]


def whole(rank: int, file: int) -> None:
    fcntl.lockf(file, fcntl.LOCK_EX)


def shared(rank: int, file: int) -> None:
    fcntl.flock(file, fcntl.LOCK_SH)


def shared_record(rank: int, file: int) -> None:
    fcntl.lockf(file, fcntl.LOCK_SH)


def own_byte(rank: int, file: int) -> None:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, rank)


def of_two_kinds(rank: int, file: int) -> None:
    fcntl.flock(file, fcntl.LOCK_EX) if rank else fcntl.lockf(file, fcntl.LOCK_EX)


def update(rank: Rank, lock: Lock) -> str:
    """Append the rank's number to what is in the file, read before and written after."""
    file = os.open(rank.path / "lock", os.O_RDWR)
    lock(rank.rank, file)
    found = (rank.path / "count").read_text()
    (rank.path / "count").write_text(f"{found}{rank.rank}")
    os.close(file)
    return found


def files(path: Path) -> None:
    for name in ("lock", "other", "count"):
        (path / name).write_text("")


@racecheck.scenario(ranks=2)
def under_a_whole_lock(rank: Rank) -> str:
    return update(rank, whole)


@racecheck.scenario(ranks=2)
def under_shared_locks(rank: Rank) -> str:
    return update(rank, shared)


@racecheck.scenario(ranks=2)
def under_shared_record_locks(rank: Rank) -> str:
    return update(rank, shared_record)


@racecheck.scenario(ranks=2)
def under_locks_of_own_bytes(rank: Rank) -> str:
    return update(rank, own_byte)


@racecheck.scenario(ranks=2)
def under_locks_of_two_kinds(rank: Rank) -> str:
    return update(rank, of_two_kinds)


@racecheck.scenario(ranks=2)
def busy_to_the_end(rank: Rank) -> str:
    """Rank 0 gives its lock back with its end; rank 1 only tries."""
    file = os.open(rank.path / "lock", os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB * rank.rank)
    except BlockingIOError:
        return "busy"
    return "had"


@racecheck.scenario(ranks=2)
def record_busy_to_the_end(rank: Rank) -> str:
    file = os.open(rank.path / "lock", os.O_RDWR)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB * rank.rank)
    except BlockingIOError:
        return "busy"
    return "had"


def both(rank: Rank, names: list[str]) -> str:
    """Lock two files, each with a record lock; what the second request is told."""
    opened = [os.open(rank.path / name, os.O_RDWR) for name in names]
    fcntl.lockf(opened[0], fcntl.LOCK_EX)
    try:
        fcntl.lockf(opened[1], fcntl.LOCK_EX)
    except OSError as error:
        return "EDEADLK" if error.errno == errno.EDEADLK else str(error)
    return "had"


@racecheck.scenario(ranks=2)
def circle(rank: Rank) -> str:
    """The kernel tells one of them that both would wait forever."""
    return both(rank, ["lock", "other"] if rank.rank else ["other", "lock"])


@racecheck.scenario(ranks=2)
def converted(rank: Rank) -> str:
    """Both share the lock and then want it for themselves: to ask for that loses what they have."""
    file = os.open(rank.path / "lock", os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_SH)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB * rank.rank)
    except BlockingIOError:
        return "busy"
    return "had"


for _each in (
    under_a_whole_lock, under_shared_locks, under_shared_record_locks, under_locks_of_own_bytes,
    under_locks_of_two_kinds, busy_to_the_end, record_busy_to_the_end, circle, converted,
):  # fmt: skip
    _each.setup(files)
