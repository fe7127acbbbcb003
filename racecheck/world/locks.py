"""File locks, modelled: flock(2), POSIX and open file description locks (fcntl(2)).

None is taken in the kernel.  Taken on our duplicates, a POSIX lock would belong to the supervisor, so that two ranks
could both hold it; and a call that waits for a lock would stop the supervisor.  A lock that cannot be had yet keeps
its op disabled.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable
from dataclasses import dataclass, field

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
        return self.overlaps(other) and self.owner != other.owner and EXCLUSIVE in (self.mode, other.mode)


@dataclass(slots=True)
class Locks:
    """All locks that ranks hold.  ``file`` is the number of a file's identity."""

    held: list[Lock] = field(default_factory=list)

    def conflict(self, wanted: Lock) -> Lock | None:
        """A lock that stands in the way, the first by its start."""
        found = [] if wanted.mode == UNLOCK else [lock for lock in self.held if lock.conflicts(wanted)]
        return min(found, key=lambda lock: lock.start, default=None)

    def set(self, lock: Lock) -> None:
        """Take or convert or release: what the owner held of these bytes is replaced."""
        kept: list[Lock] = []
        for old in self.held:
            if old.owner == lock.owner and old.overlaps(lock):
                kept += _outside(old, lock)
            else:
                kept.append(old)
        self.held = kept + ([lock] if lock.mode != UNLOCK else [])

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
    return [
        Lock(old.kind, old.file, old.owner, old.mode, start, end) for start, end in parts if start < end
    ]


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

    def span(self, position: int, size: int) -> tuple[int, int]:
        """First byte and the one after the last; raises `ValueError` where there are no such bytes."""
        start = self.start + {0: 0, 1: position, 2: size}[self.whence]
        first, end = (start, start + self.length) if self.length >= 0 else (start + self.length, start)
        if first < 0:
            raise ValueError("before the start of the file")
        return first, END if self.length == 0 else end


def unpack(raw: bytes) -> Range:
    """Raises `ValueError` for a type or whence that does not exist."""
    kind, whence, start, length, _ = _FLOCK.unpack(raw)
    if kind not in _TYPES or whence not in (0, 1, 2):
        raise ValueError("no such lock")
    return Range(_TYPES[kind], whence, start, length)


def pack(lock: Lock | None, original: bytes, pid: int) -> bytes:
    """F_GETLK's answer: the lock that stands in the way, or F_UNLCK in the caller's own struct."""
    kind, whence, start, length, owner = _FLOCK.unpack(original)
    if lock is None:
        return _FLOCK.pack(2, whence, start, length, owner)
    number = next(number for number, mode in _TYPES.items() if mode == lock.mode)
    return _FLOCK.pack(number, 0, lock.start, 0 if lock.end == END else lock.end - lock.start, pid)
