"""File locks: which lock a call is about, whether it gets it, and which locks end with a descriptor or a process."""

from __future__ import annotations

import errno
import fcntl
import os
from collections import Counter
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import replace

from racecheck.kernel import flock
from racecheck.kernel.seccomp import FIRST_DESCRIPTOR
from racecheck.model.nouns import Op
from racecheck.model.ops import op_kinds
from racecheck.model.ops.lock_ops import ASKING, has_begun_to_wait, waits
from racecheck.model.ops.locks import END, EXCLUSIVE, SHARED, UNLOCK, Lock, Locks
from racecheck.supervisor.calls.perform import CARRY_ON, Answer, Next
from racecheck.supervisor.files.open_files import OpenFile
from racecheck.supervisor.state.decoder import Decoder, closing_range, signed
from racecheck.supervisor.state.tasks import Process, Request

RECORD_LOCKS = frozenset({"F_SETLK", "F_SETLKW", "F_GETLK", "F_OFD_SETLK", "F_OFD_SETLKW", "F_OFD_GETLK"})
_MODES = {"LOCK_SH": SHARED, "LOCK_EX": EXCLUSIVE, "LOCK_UN": UNLOCK}
_FLAGS = {mode: flag for flag, mode in _MODES.items()}


def describe(request: Request) -> None:
    """Complete a pending op with its lock, which its memory or its file names; an end of a descriptor is a close."""
    if request.call.family == "dup":
        request.op = replace(request.op, call="close")
    elif request.call.family in op_kinds.LOCKS:
        request.op = replace(request.op, call="flock")
        with suppress(OSError):
            _look_at_lock(request)


def perform(request: Request, next_: Next, *, held: Locks) -> Answer:
    """Set or release a lock, close a descriptor with its locks, or end a process with all that it has locked."""
    family = request.call.family
    if family in op_kinds.CLOSES:
        return _close(request, held)
    if family in op_kinds.LOCKS:
        return _set_lock(request, held)
    if family == "exit":
        end(request.task.process, held)
    return next_(request)


def wait(request: Request, next_: Next, *, held: Locks) -> Answer:
    """Have a request that does not get its lock begin to wait, which others notice: that is an op of its own.

    When a lock that is to be converted begins to wait with flock(2), its process loses the lock that it has.
    """
    lock = request.lock
    if lock is None or not _begins_to_wait(request, lock, held):
        return next_(request)
    held.begin(lock)
    part = replace(request.op, args={**request.op.args, "waits": 1})
    request.op = replace(request.op, args={**request.op.args, "waits": 2})
    return Answer(part=part)


def _begins_to_wait(request: Request, lock: Lock, held: Locks) -> bool:
    if not waits(request.op) or held.conflict(lock) is None or held.is_deadlock(lock):
        return False
    return held.begins(lock, has_begun=has_begun_to_wait(request.op))


def is_enabled(request: Request, held: Locks) -> bool:
    """Return whether a pending op can go: it gets its lock, or others can notice that it begins to wait."""
    if request.lock is None or not waits(request.op):
        return True
    if "whence" in request.op.args:
        with suppress(OSError):
            _look_at_lock(request)
    return held.can_go(request.lock, has_begun=has_begun_to_wait(request.op))


def releases(request: Request, held: Locks) -> bool:
    """Return whether closing files releases a lock, which others may be waiting for."""
    return bool(_closed(request)) and bool(_given_back(request, held)[0])


def ending(op: Op, process: Process, held: Locks, decoder: Decoder) -> Op:
    """Return the op of a process's end, with the files whose locks it releases."""
    own = {file.number for file in process.descriptors.alone_with()}
    files = [(file, decoder.identities.of(file.status())) for file in process.descriptors.files()]
    kept = [each for each in files if held.of(process, each[1]) or (each[0].number in own and held.of(each[0]))]
    if not kept:
        return replace(op, places=(), flags=())
    places = tuple(decoder.file_place(file) for file, _ in kept)
    _, numbers = _of_closed(process, dict(enumerate(kept)), own, held)
    return replace(op, places=places, flags=("LOCK_UN",), args={**op.args, **numbers})


def end(process: Process, held: Locks) -> None:
    """Release the locks of a process that ends."""
    held.release(process)
    for file in process.descriptors.alone_with():
        held.release(file)


def _inode(request: Request) -> int:
    return request.op.places[0].inode


def _kind(request: Request) -> str:
    if request.call.name == "flock":
        return "flock"
    return "ofd" if any(each.startswith("F_OFD") for each in request.flags) else "posix"


def _look_at_lock(request: Request) -> Lock:
    """Return the lock that a call is about now, and its numbers as the op's; raises `OSError` with the call's errno."""
    request.lock, numbers = _lock(request)
    flags = {*request.op.flags, _FLAGS[request.lock.mode]}
    request.op = replace(request.op, flags=tuple(sorted(flags)), args={**request.op.args, **numbers})
    return request.lock


def _lock(request: Request) -> tuple[Lock, dict[str, int]]:
    """Return the lock that a call is about, and its numbers; raises `OSError` for an invalid one."""
    file = request.file
    mode = fcntl.fcntl(file.descriptor, fcntl.F_GETFL)
    if mode & os.O_PATH:
        raise OSError(errno.EBADF, "not open")
    if request.call.name == "flock":
        modes = [_MODES.get(each) for each in request.flags - {"LOCK_NB"}]
        if len(modes) != 1 or modes[0] is None:
            raise OSError(errno.EINVAL, "no such lock")
        return Lock("flock", _inode(request), file, modes[0]), {}
    return _record_lock(request, mode & os.O_ACCMODE)


def _record_lock(request: Request, access: int) -> tuple[Lock, dict[str, int]]:
    file, process = request.file, request.task.process
    wanted = flock.unpack(process.memory.read(request.arguments[2], flock.FLOCK_SIZE))
    _check_record(request.flags, wanted, access)
    start, end = wanted.span(os.lseek(file.descriptor, 0, os.SEEK_CUR), file.status().st_size)
    numbers = {"start": start, "length": 0 if end == END else end - start, "whence": wanted.whence}
    kind = _kind(request)
    if kind == "posix":
        numbers["process"] = process.rank.number_of(process)
    owner = process if kind == "posix" else file
    return Lock(kind, _inode(request), owner, wanted.mode, start, end), {k: n for k, n in numbers.items() if n}


def _check_record(flags: frozenset[str], wanted: flock.Range, access: int) -> None:
    """Raise `OSError` for a lock that a file open in this mode cannot have (fcntl(2))."""
    asks = bool(flags & ASKING)
    if (flags & {"F_OFD_SETLK", "F_OFD_SETLKW", "F_OFD_GETLK"} and wanted.pid) or (
        "F_GETLK" in flags and wanted.mode == UNLOCK
    ):
        raise OSError(errno.EINVAL, "no such lock")
    missing = {SHARED: os.O_WRONLY, EXCLUSIVE: os.O_RDONLY}.get(wanted.mode)
    if not asks and access == missing:
        raise OSError(errno.EBADF, "not open for this")


def _given_back(request: Request, held: Locks) -> tuple[list[Lock], dict[str, int]]:
    """Return the locks that a call releases as it closes files, and how its op describes them."""
    closed = [(file, inode) for _, file, inode in _closed(request)]
    counts = Counter(file.number for file, _ in closed)
    last = {file.number for file, _ in closed if file.holders <= counts[file.number]}
    places = range(len(request.op.places) - len(closed), len(request.op.places))
    return _of_closed(request.task.process, dict(zip(places, closed, strict=True)), last, held)


def _of_closed(
    process: Process, closed: Mapping[int, tuple[OpenFile, int]], last: Container[int], held: Locks
) -> tuple[list[Lock], dict[str, int]]:
    """Return the locks that close with these files, and how the op describes them.

    ``closed`` are files with their identities, by the index of their place; ``last`` are those that no process has
    afterwards.
    """
    found = [lock for _, inode in closed.values() for lock in held.of(process, inode)]
    found += [lock for file, _ in closed.values() if file.number in last for lock in held.of(file)]
    return found, {
        "last": sum(1 << at for at, (file, _) in closed.items() if file.number in last),
        "process": process.rank.number_of(process),
        "flock": int(any(lock.kind == "flock" for lock in found)),
        "record": int(any(lock.is_record for lock in found)),
        "shared": int(all(lock.mode == SHARED for lock in found)),
    }


def _closed(request: Request) -> list[tuple[int, OpenFile, int]]:
    """Return the descriptors of watched files that a call closes, each with its file and that file's identity."""
    places = request.op.places
    if request.call.name == "close_range" and request.files:
        numbers = request.task.process.descriptors.between(*closing_range(request))
        return [(number, request.files[at], places[at].inode) for at, number in enumerate(numbers)]
    target = 1 if request.call.family == "dup" else 0
    if request.call.family not in op_kinds.CLOSES or target not in request.files:
        return []
    return [(signed(request.arguments[target]), request.files[target], places[-1].inode)]


def _close(request: Request, held: Locks) -> Answer:
    process = request.task.process
    if "LOCK_UN" in request.op.flags:
        request.op = replace(request.op, args={**request.op.args, **_given_back(request, held)[1]})
    for number, _, inode in _closed(request):
        held.release(process, inode)
        last = process.descriptors.drop(number)
        if last is not None:
            held.release(last)
    if request.call.family == "dup" and 0 in request.files:
        target = signed(request.arguments[1])
        if target <= 2 or target >= FIRST_DESCRIPTOR:
            process.descriptors.set(target, request.files[0])
    return CARRY_ON


def _set_lock(request: Request, held: Locks) -> Answer:
    try:
        lock = _look_at_lock(request)
    except OSError as error:
        return Answer(errno=error.errno or errno.EINVAL)
    conflict = held.conflict(lock)
    if request.flags & ASKING:
        memory, address = request.task.process.memory, request.arguments[2]
        owner = getattr(conflict.owner, "pid", -1) if conflict else 0
        memory.write(address, flock.pack(conflict, memory.read(address, flock.FLOCK_SIZE), owner))
        return Answer()
    if conflict is not None:
        return _refuse(request, lock, held)
    if has_begun_to_wait(request.op):
        held.stop_waiting(lock)
    if all(each.mode == SHARED for each in held.own(lock)) and lock.mode != EXCLUSIVE:
        request.op = replace(request.op, args={**request.op.args, "shared": 1})
    held.set(lock)
    return Answer()


def _refuse(request: Request, lock: Lock, held: Locks) -> Answer:
    """flock(2) has lost the lock that it was to convert."""
    if waits(request.op) and held.is_deadlock(lock):
        if has_begun_to_wait(request.op):
            held.stop_waiting(lock)
        return Answer(errno=errno.EDEADLK)
    if lock.kind == "flock" and held.own(lock):
        held.set(replace(lock, mode=UNLOCK))
        request.op = replace(request.op, args={**request.op.args, "lost": 1})
    return Answer(errno=errno.EAGAIN)
