"""File locks, as ops show them: a trace shows which locks were held at any time.

An op on a lock has call "flock", whatever the system call, and "LOCK_SH", "LOCK_EX" or "LOCK_UN" among its flags.  Its
numbers are, for a record lock, ``start`` and ``length`` (0: up to the end of all bytes), ``whence`` if that is not the
start of the file, and ``process``: 0 for the rank's own, else which of the others that lock files.  ``waits`` is 1 for
an op with which a request begins to wait, and 2 for one that has begun.  Of one that is done ``shared`` says that it
changed no exclusive lock, ``lost`` that in vain it lost the lock it had.

An op that closes files has "LOCK_UN" among its flags if it releases locks.  ``last`` has a bit for each of its places
whose open file is closed with it; ``flock`` and ``record`` say which kinds it releases, ``shared`` that none of them
is exclusive.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from itertools import takewhile

from racecheck.model.nouns import Op, Place
from racecheck.model.ops import op_kinds
from racecheck.model.ops.locks import END, EXCLUSIVE, SHARED, UNLOCK, Lock, Locks

ASKING = frozenset({"F_GETLK", "F_OFD_GETLK"})
_WAITING = frozenset({"F_SETLKW", "F_OFD_SETLKW"})
_OF_FILES = frozenset({"F_OFD_SETLK", "F_OFD_SETLKW", "F_OFD_GETLK"})
_MODES = {"LOCK_UN": UNLOCK, "LOCK_EX": EXCLUSIVE, "LOCK_SH": SHARED}
_CLOSES = op_kinds.CLOSES | {"exit"}


def kind_of(op: Op) -> str:
    """Return the kind of lock of an op: "flock", "posix" or "ofd"."""
    if op.syscall == "flock":
        return "flock"
    return "posix" if _OF_FILES.isdisjoint(op.flags) else "ofd"


def lock_of(op: Op) -> Lock | None:
    """Return the lock that an op takes, converts or releases; None for any other op."""
    mode = next((mode for flag, mode in _MODES.items() if flag in op.flags), None)
    if op.call != "flock" or mode is None or not ASKING.isdisjoint(op.flags):
        return None
    kind, place, start = kind_of(op), op.places[-1], op.args.get("start", 0)
    owner = _process(op) if kind == "posix" else _file(op, place)
    if kind == "flock":
        return Lock(kind, place.inode, owner, mode)
    length = op.args.get("length", 0)
    return Lock(kind, place.inode, owner, mode, start, start + length if length else END)


def waits(op: Op) -> bool:
    """Return whether an op waits for a lock until it gets it."""
    if op.call != "flock" or releases(op):
        return False
    return "LOCK_NB" not in op.flags if op.syscall == "flock" else not _WAITING.isdisjoint(op.flags)


def releases(op: Op) -> bool:
    """Return whether an op releases a lock."""
    return "LOCK_UN" in op.flags


def begins_to_wait(op: Op) -> bool:
    """Return whether an op only begins a request's wait."""
    return op.args.get("waits") == 1


def has_begun_to_wait(op: Op) -> bool:
    """Return whether an earlier op of the same thread has begun to wait for this one's lock."""
    return op.args.get("waits") == 2


def apply(op: Op, locks: Locks) -> None:
    """Apply a completed op to ``locks``."""
    lock = lock_of(op)
    if op.call in _CLOSES and releases(op):
        _give_back(op, locks)
    elif lock is not None and op.result is not None:
        _request(op, lock, locks)


def _give_back(op: Op, locks: Locks) -> None:
    for at, place in enumerate(op.places):
        locks.release(_process(op), place.inode)
        if op.args.get("last", -1) >> at & 1:
            locks.release(_file(op, place))
    if op.call == "exit":
        locks.release(_process(op))


def _request(op: Op, lock: Lock, locks: Locks) -> None:
    assert op.result is not None
    if begins_to_wait(op):
        locks.begin(lock)
        return
    if has_begun_to_wait(op):
        locks.stop_waiting(lock)
    if op.result.errno:
        if op.args.get("lost"):
            locks.set(replace(lock, mode=UNLOCK))
        return
    for killed in in_the_way(op, locks):
        locks.set(replace(killed, mode=UNLOCK))
    locks.set(lock)


def in_the_way(op: Op, locks: Locks) -> list[Lock]:
    """Release the locks in the way of a granted one: their processes have been killed since."""
    lock = lock_of(op)
    if lock is None or op.result is None or op.result.errno or begins_to_wait(op):
        return []
    return [each for each in locks.held if each.conflicts(lock)]


def _process(op: Op) -> Hashable:
    return "process", op.rank, op.args.get("process", 0)


def _file(op: Op, place: Place) -> Hashable:
    return ("file", place.open_file) if place.open_file else ("rank", op.rank)


class LockHistory:
    """Return the ops of a run that change locks, as steps by their index."""

    def __init__(self) -> None:
        self._ops: list[tuple[int, Op]] = []
        self._now = Locks()
        self._takers: dict[Hashable, int] = {}

    def add(self, step: int, op: Op) -> None:
        lock = lock_of(op)
        if lock is not None or (op.call in _CLOSES and releases(op)):
            self._ops.append((step, op))
            apply(op, self._now)
        if lock is not None:
            self._takers[lock.owner] = op.rank

    def killed(self, op: Op) -> set[int]:
        """Return the ranks that held the lock which an op got, and that released it by no op."""
        return {self._takers[lock.owner] for lock in in_the_way(op, self._now)}

    def later(self, op: Op, step: int, end: int, follows: Callable[[int, int], bool]) -> set[int]:
        """Return the steps that move behind, with all that depends on them, if waiting ``end`` goes before ``step``.

        That is the step itself, and where several share the lock those that took it after that step.  Empty if the op
        cannot go before it.
        """
        lock, cut = lock_of(op), {step}
        while lock is not None:
            locks, takers = self._without(cut, end, follows)
            if locks.can_go(lock, has_begun=has_begun_to_wait(op)):
                return cut
            found = {takers[each.owner, each.file] for each in locks.held if each.conflicts(lock)}
            if min(found) < step:
                return set()
            cut |= found
        return cut

    def _without(
        self, cut: set[int], end: int, follows: Callable[[int, int], bool]
    ) -> tuple[Locks, dict[tuple[Hashable, int], int]]:
        """Return the locks held at the ``end`` without some steps and their consequences: their takers, and when."""
        locks, takers = Locks(), {}
        for index, op in takewhile(lambda each: each[0] < end, self._ops):
            if not any(each <= index and follows(each, index) for each in cut):
                apply(op, locks)
                lock = lock_of(op)
                if lock is not None:
                    takers[lock.owner, lock.file] = index
        return locks, takers
