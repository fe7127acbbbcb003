"""File locks, modelled: flock(2), POSIX and open file description locks (fcntl(2)).

None is taken in the kernel.  Taken on our duplicates, a POSIX lock would belong to the supervisor, so that two ranks
could both hold it; and a call that waits for a lock would stop the supervisor.  A lock that cannot be had yet keeps
its op disabled.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

END = 1 << 63
SHARED, EXCLUSIVE, UNLOCK = "shared", "exclusive", "unlock"


@dataclass(frozen=True, slots=True)
class Lock:
    """``owner`` holds bytes ``start`` to ``end`` (not included); ``kind`` is "flock" or "record".

    flock and record locks do not see each other; POSIX and open file description locks do.
    """

    kind: str
    file: int
    owner: Hashable
    mode: str
    start: int = 0
    end: int = END

    def overlaps(self, other: Lock) -> bool:
        same = self.kind == other.kind and self.file == other.file
        return same and self.start < other.end and other.start < self.end

    def conflicts(self, other: Lock) -> bool:
        exclusive = EXCLUSIVE in (self.mode, other.mode) and UNLOCK not in (self.mode, other.mode)
        return exclusive and self.owner != other.owner and self.overlaps(other)

    def is_beside(self, other: Lock) -> bool:
        """Whether both are of one owner on one file."""
        return (self.kind, self.file, self.owner) == (other.kind, other.file, other.owner)


@dataclass(slots=True)
class Locks:
    """All locks that ranks hold, as the kernel lists them: owner after owner, each owner's by their start.

    ``file`` is the number of a file's identity.
    """

    held: list[Lock] = field(default_factory=list)

    def conflict(self, wanted: Lock) -> Lock | None:
        """The first lock that stands in the way."""
        return next((lock for lock in self.held if lock.conflicts(wanted)), None)

    def set(self, lock: Lock) -> None:
        """Take or convert or release: what the owner held of these bytes is replaced, and what then touches is one."""
        own = [old for old in self.held if old.is_beside(lock)]
        parts = [part for old in own for part in _outside(old, lock)]
        parts = _merged([*parts, lock] if lock.mode != UNLOCK else parts)
        first = self.held.index(own[0]) if own else len(self.held)
        others = [old for old in self.held if not old.is_beside(lock)]
        self.held = [*others[:first], *parts, *others[first:]]

    def release(self, owner: Hashable, file: int | None = None) -> bool:
        """Everything that an owner holds (of one file) is gone; whether that was anything."""
        kept = [lock for lock in self.held if lock.owner != owner or file not in (None, lock.file)]
        released, self.held = len(kept) < len(self.held), kept
        return released

    def holds(self, owner: Hashable, file: int | None = None) -> bool:
        return any(lock.owner == owner and file in (None, lock.file) for lock in self.held)


def _outside(old: Lock, new: Lock) -> list[Lock]:
    """What is left of ``old`` where ``new`` takes bytes out of it."""
    parts = [(old.start, min(old.end, new.start)), (max(old.start, new.end), old.end)]
    return [replace(old, start=start, end=end) for start, end in parts if start < end]


def _merged(locks: list[Lock]) -> list[Lock]:
    """One owner's locks in order, neighbours of one mode made one."""
    found: list[Lock] = []
    for lock in sorted(locks, key=lambda each: each.start):
        if found and found[-1].mode == lock.mode and found[-1].end == lock.start:
            found[-1] = replace(found[-1], end=lock.end)
        else:
            found.append(lock)
    return found


_FLOCK = struct.Struct("hhqqi4x")
_TYPES = {0: SHARED, 1: EXCLUSIVE, 2: UNLOCK}
FLOCK_SIZE = _FLOCK.size


@dataclass(frozen=True, slots=True)
class Range:
    """A ``struct flock``: the lock's type, and its bytes relative to ``whence``."""

    mode: str
    whence: int
    start: int
    length: int
    pid: int

    def span(self, position: int, size: int) -> tuple[int, int]:
        """First byte and the one after the last.

        Raises `OSError`: EINVAL where there are no such bytes, EOVERFLOW where they have no numbers (fcntl(2)).
        """
        start = self.start + {0: 0, 1: position, 2: size}[self.whence]
        first, end = (start, start + self.length) if self.length >= 0 else (start + self.length, start)
        if start >= END or end > END:
            raise OSError(errno.EOVERFLOW, "behind the last byte that a file can have")
        if first < 0:
            raise OSError(errno.EINVAL, "before the start of the file")
        return first, END if self.length == 0 else end


def unpack(raw: bytes) -> Range:
    """Raises `OSError` (EINVAL) for a type or whence that does not exist."""
    kind, whence, start, length, pid = _FLOCK.unpack(raw)
    if kind not in _TYPES or whence not in (0, 1, 2):
        raise OSError(errno.EINVAL, "no such lock")
    return Range(_TYPES[kind], whence, start, length, pid)


def pack(lock: Lock | None, original: bytes, pid: int) -> bytes:
    """F_GETLK's answer: the lock that stands in the way, or F_UNLCK in the caller's own struct."""
    _, whence, start, length, owner = _FLOCK.unpack(original)
    if lock is None:
        return _FLOCK.pack(2, whence, start, length, owner)
    number = next(number for number, mode in _TYPES.items() if mode == lock.mode)
    return _FLOCK.pack(number, 0, lock.start, 0 if lock.end == END else lock.end - lock.start, pid)
