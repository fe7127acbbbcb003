"""File locks as the kernel keeps them: which exclude each other, which process holds which, and who waits for whom.

A lock of flock(2) belongs to an open file.  A record lock (fcntl(2)) is on bytes of a file and belongs to a process
("posix") or to an open file ("ofd").  Locks of flock(2) and record locks do not see each other.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

END = 1 << 63
SHARED, EXCLUSIVE, UNLOCK = "shared", "exclusive", "unlock"
_LONGEST_CHAIN = 11
"""The kernel follows a chain of waiting processes up to this length."""


@dataclass(frozen=True, slots=True)
class Lock:
    """``owner`` holds bytes ``start`` to ``end`` (not included); ``kind`` is "flock", "posix" or "ofd"."""

    kind: str
    file: int
    owner: Hashable
    mode: str
    start: int = 0
    end: int = END

    @property
    def is_record(self) -> bool:
        return self.kind != "flock"

    def overlaps(self, other: Lock) -> bool:
        same = self.is_record == other.is_record and self.file == other.file
        return same and self.start < other.end and other.start < self.end

    def conflicts(self, other: Lock) -> bool:
        exclusive = EXCLUSIVE in (self.mode, other.mode) and UNLOCK not in (self.mode, other.mode)
        return exclusive and self.owner != other.owner and self.overlaps(other)

    def is_beside(self, other: Lock) -> bool:
        """Return whether both are of one owner on one file."""
        return (self.kind, self.file, self.owner) == (other.kind, other.file, other.owner)


@dataclass(slots=True)
class Locks:
    """All locks that ranks hold, as the kernel lists them: owner after owner, each owner's by their start.

    ``file`` is the number of a file's identity.  ``waiting`` are the requests of processes that have begun to wait for
    a record lock, in the order in which they began.
    """

    held: list[Lock] = field(default_factory=list)
    waiting: list[Lock] = field(default_factory=list)

    def conflict(self, wanted: Lock) -> Lock | None:
        """Return the first lock in the way."""
        return next((lock for lock in self.held if lock.conflicts(wanted)), None)

    def own(self, wanted: Lock) -> list[Lock]:
        """Return the locks of the same owner that a request changes."""
        return [lock for lock in self.held if lock.is_beside(wanted) and lock.overlaps(wanted)]

    def set(self, lock: Lock) -> None:
        """Take, convert or release a lock: it replaces the owner's locks there, and merges with neighbours."""
        own = [old for old in self.held if old.is_beside(lock)]
        parts = [part for old in own for part in _outside(old, lock)]
        parts = _merged([*parts, lock] if lock.mode != UNLOCK else parts)
        first = self.held.index(own[0]) if own else len(self.held)
        others = [old for old in self.held if not old.is_beside(lock)]
        self.held = [*others[:first], *parts, *others[first:]]

    def of(self, owner: Hashable, file: int | None = None) -> list[Lock]:
        """Return everything that an owner holds (of one file)."""
        return [lock for lock in self.held if lock.owner == owner and file in (None, lock.file)]

    def release(self, owner: Hashable, file: int | None = None) -> None:
        """Remove everything that an owner holds (of one file)."""
        self.held = [lock for lock in self.held if lock.owner != owner or file not in (None, lock.file)]
        if file is None:
            self.waiting = [lock for lock in self.waiting if lock.owner != owner]

    # Waiting.

    def can_go(self, wanted: Lock, *, has_begun: bool) -> bool:
        """Return whether a waiting request can continue: with the lock, with EDEADLK, or by beginning to wait."""
        return self.conflict(wanted) is None or self.is_deadlock(wanted) or self.begins(wanted, has_begun=has_begun)

    def begins(self, wanted: Lock, *, has_begun: bool) -> bool:
        """Return whether another process can notice that a conflicting request begins to wait.

        A lock of flock(2) that is converted is lost.  A process that holds a record lock can be part of a circle.
        """
        if wanted.kind == "flock":
            return any(lock.is_beside(wanted) for lock in self.held)
        holds = any(lock.owner == wanted.owner and lock.kind == "posix" for lock in self.held)
        return wanted.kind == "posix" and holds and not has_begun

    def begin(self, wanted: Lock) -> None:
        """Begin a request's wait."""
        if wanted.kind == "flock":
            self.set(replace(wanted, mode=UNLOCK))
        else:
            self.waiting.append(wanted)

    def is_deadlock(self, wanted: Lock) -> bool:
        """Return whether a process would wait for itself.

        The kernel follows the first lock in the way, its owner's latest request, and so on (posix_locks_deadlock of
        fs/locks.c).
        """
        lock = self.conflict(wanted) if wanted.kind == "posix" else None
        for _ in range(_LONGEST_CHAIN):
            owner = lock.owner if lock is not None else None
            request = next((each for each in reversed(self.waiting) if each.owner == owner), None)
            lock = self.conflict(request) if request is not None else None
            if lock is None or lock.owner == wanted.owner:
                return lock is not None
        return False

    def stop_waiting(self, wanted: Lock) -> None:
        """End a request's wait."""
        if wanted in self.waiting:
            self.waiting.remove(wanted)


def _outside(old: Lock, new: Lock) -> list[Lock]:
    """Return the rest of ``old`` without the bytes of ``new``."""
    parts = [(old.start, min(old.end, new.start)), (max(old.start, new.end), old.end)]
    return [replace(old, start=start, end=end) for start, end in parts if start < end]


def _merged(locks: list[Lock]) -> list[Lock]:
    """Return one owner's locks in order, with neighbours of one mode merged."""
    found: list[Lock] = []
    for lock in sorted(locks, key=lambda each: each.start):
        if found and found[-1].mode == lock.mode and found[-1].end == lock.start:
            found[-1] = replace(found[-1], end=lock.end)
        else:
            found.append(lock)
    return found
