"""The ``struct flock`` of fcntl(2): the bytes of a record lock, and the kernel's answer about one.

No lock is taken in the kernel.  Taken on our duplicates, a POSIX lock would belong to the supervisor, so that two ranks
could both hold it; and a call that waits for a lock would stop the supervisor.  A lock that cannot be had yet keeps
its op disabled (`racecheck.model.ops.locks`).
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass

from racecheck.model.ops.locks import END, EXCLUSIVE, SHARED, UNLOCK, Lock

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
        """Return the first byte and the one after the last.

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
    """Return the range; raises `OSError` (EINVAL) for a type or whence that does not exist."""
    kind, whence, start, length, pid = _FLOCK.unpack(raw)
    if kind not in _TYPES or whence not in (0, 1, 2):
        raise OSError(errno.EINVAL, "no such lock")
    return Range(_TYPES[kind], whence, start, length, pid)


def pack(lock: Lock | None, original: bytes, pid: int) -> bytes:
    """Return the answer to F_GETLK: the lock in the way, or F_UNLCK in the caller's own struct."""
    _, whence, start, length, owner = _FLOCK.unpack(original)
    if lock is None:
        return _FLOCK.pack(2, whence, start, length, owner)
    number = next(number for number, mode in _TYPES.items() if mode == lock.mode)
    return _FLOCK.pack(number, 0, lock.start, 0 if lock.end == END else lock.end - lock.start, pid)
