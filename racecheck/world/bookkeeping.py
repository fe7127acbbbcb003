"""Calls that are about a rank's own state rather than the files: descriptors, locks, sleeps, randomness, processes."""

from __future__ import annotations

import errno
import os
import random
import stat
import struct
import termios
import time
from collections.abc import Hashable
from dataclasses import replace

from racecheck.kernel import libc, syscalls
from racecheck.kernel.seccomp import FIRST_DESCRIPTOR
from racecheck.world import locks, perform as performing
from racecheck.world.calls import Request, signed
from racecheck.world.coverage import Ledger
from racecheck.world.locks import Lock, Locks
from racecheck.world.perform import CARRY_ON, Answer

NEVER_OPS = frozenset({"clone", "random", "dup", "ioctl", "advise"})
"""Families that concern the calling process alone."""

WITHOUT_PLACE = frozenset({"sleep", "sync"})
"""Families that are ops although they are about no file."""

_RECORD_LOCKS = frozenset({"F_SETLK", "F_SETLKW", "F_GETLK", "F_OFD_SETLK", "F_OFD_SETLKW", "F_OFD_GETLK"})
_DUPLICATES = frozenset({"F_DUPFD", "F_DUPFD_CLOEXEC"})
_UNCONTROLLED_FCNTL = frozenset({"F_SETLEASE", "F_NOTIFY", "F_SETSIG"})
_FIOCLEX, _FIONCLEX = 0x5451, 0x5450
_HARMLESS_IOCTL = frozenset({termios.TCGETS, _FIOCLEX, _FIONCLEX, termios.FIONREAD, termios.TIOCGWINSZ})
_CLONE_RANGE = frozenset({0x40049409, 0x4020940D})
_MILLISECOND = 1_000_000
_ABSOLUTE = 1
_CLONE_THREAD = 0x10000


def at_once(request: Request, ledger: Ledger, rng: random.Random) -> Answer | None:
    """The answer to a call that nobody else can notice; None for one that has to wait its turn."""
    family, task = request.call.family, request.task
    if family == "clone":
        task.rank.single &= _starts_thread(request)
        return CARRY_ON
    if family == "random":
        return _draw(request, rng)
    if family == "exec":
        return _execute(request)
    if request.call.name == "close_range":
        return _close_range(request)
    if family == "sleep" and task.tid != task.process.pid:
        return CARRY_ON
    if not request.touches:
        return None
    if family == "dup":
        return _duplicate(request, ledger)
    if family == "fcntl":
        return _fcntl(request, ledger)
    if family == "ioctl":
        return _ioctl(request, ledger)
    if family == "seek":
        return _seek(request)
    return CARRY_ON if family == "advise" else None


def _starts_thread(request: Request) -> bool:
    """Whether a clone makes a thread (of which only the main one is under control) rather than a process."""
    if request.call.name == "clone3":
        return bool(struct.unpack("Q", request.task.process.memory.read(request.arguments[0], 8))[0] & _CLONE_THREAD)
    return "CLONE_THREAD" in request.flags


def _draw(request: Request, rng: random.Random) -> Answer | None:
    """Randomness comes from the seed (of threads other than the main one: from the kernel, as theirs is no one's)."""
    if request.task.tid != request.task.process.pid:
        return CARRY_ON
    count = min(request.number("length"), 1 << 20)
    request.task.process.memory.write(request.arguments[0], rng.randbytes(count))
    return Answer(value=count)


def _execute(request: Request) -> Answer | None:
    process = request.task.process
    process.has_executed = True
    process.memory.forget()
    process.rank.replaced |= process.is_main
    return None if request.touches else CARRY_ON


def _close_range(request: Request) -> Answer:
    if "CLOSE_RANGE_CLOEXEC" not in request.flags:
        first, last = (request.number(name) & 0xFFFFFFFF for name in ("first", "last"))
        request.task.process.descriptors.drop_range(first, last)
    return CARRY_ON


def _duplicate(request: Request, ledger: Ledger) -> Answer:
    process, name = request.task.process, request.call.name
    if name == "dup":
        return Answer(opened=os.dup(request.file.descriptor))
    source, target = (signed(each) for each in request.arguments[:2])
    if source == target:
        return CARRY_ON
    if 0 not in request.files:
        process.descriptors.drop(target)
    elif target >= FIRST_DESCRIPTOR or target <= 2:
        process.descriptors.set(target, request.files[0])
    else:
        ledger.hole(f"descriptor {target} of rank {process.rank.number} is a watched file's and out of sight")
    return CARRY_ON


def _fcntl(request: Request, ledger: Ledger) -> Answer | None:
    if request.flags & _DUPLICATES:
        request.op = replace(request.op, args={"minimum": signed(request.arguments[2])})
        return Answer(opened=os.dup(request.file.descriptor), close_on_exec="F_DUPFD_CLOEXEC" in request.flags)
    if request.flags & _RECORD_LOCKS:
        return None
    if request.flags & _UNCONTROLLED_FCNTL:
        ledger.hole(f"fcntl {', '.join(request.flags)} on a watched file")
    return CARRY_ON


def _ioctl(request: Request, ledger: Ledger) -> Answer:
    """Sharing extents between files is declined, as by a file system that cannot: programs then copy."""
    if request.number("request") & 0xFFFFFFFF in _CLONE_RANGE:
        ledger.note("FICLONE was declined")
        return Answer(errno=errno.EOPNOTSUPP)
    if request.number("request") & 0xFFFFFFFF not in _HARMLESS_IOCTL:
        ledger.hole(f"ioctl {request.number('request') & 0xFFFFFFFF:#x} on a watched file")
    return CARRY_ON


def _seek(request: Request) -> Answer | None:
    """Seeking from the end reads the size, which others may change; in a directory the listing is ours."""
    if stat.S_ISDIR(request.file.status().st_mode):
        return performing.perform(request)
    return CARRY_ON if request.flags & {"SEEK_SET", "SEEK_CUR"} else None


def describe(request: Request) -> None:
    """Complete a pending op with what only its memory or its file says: the lock, the time to sleep."""
    if request.call.family == "sleep":
        request.op = replace(request.op, args={"nanoseconds": _duration(request)})
    elif request.call.family == "flock" and request.files:
        mode = {"LOCK_SH": locks.SHARED, "LOCK_EX": locks.EXCLUSIVE}
        chosen = [mode[each] for each in sorted(request.flags) if each in mode]
        request.lock = Lock("flock", _inode(request), request.file, chosen[0] if chosen else locks.UNLOCK)
    elif request.call.family == "fcntl":
        request.op = replace(request.op, call="flock")
        request.lock = _record_lock(request)


def _duration(request: Request) -> int:
    """Nanoseconds to sleep; to a deadline, in whole milliseconds, since how far it is off depends on how fast the rank
    came to its call."""
    index = next(index for index, arg in enumerate(request.call.args) if arg.name == "timespec")
    seconds, nanoseconds = struct.unpack("qq", request.task.process.memory.read(request.arguments[index], 16))
    wanted = seconds * 1_000_000_000 + nanoseconds
    if request.op.args.get("flags", 0) & _ABSOLUTE:
        wanted -= time.clock_gettime_ns(request.number("clock"))
        wanted = -(-wanted // _MILLISECOND) * _MILLISECOND
    return max(0, wanted)


def _inode(request: Request) -> int:
    return request.op.places[0].inode


def _owner(request: Request) -> Hashable:
    if any(each.startswith("F_OFD") for each in request.flags) or request.call.family == "flock":
        return request.file
    return request.task.process


def _record_lock(request: Request) -> Lock | None:
    file = request.file
    try:
        wanted = locks.unpack(request.task.process.memory.read(request.arguments[2], locks.FLOCK_SIZE))
        start, end = wanted.span(os.lseek(file.descriptor, 0, os.SEEK_CUR), file.status().st_size)
    except (OSError, ValueError):
        return None
    return Lock("record", _inode(request), _owner(request), wanted.mode, start, end)


def is_enabled(request: Request, held: Locks) -> bool:
    """Whether a pending op can go: a lock that it waits for can be had."""
    if request.lock is None or not _waits(request):
        return True
    return held.conflict(request.lock) is None


def _waits(request: Request) -> bool:
    if request.call.name == "flock":
        return "LOCK_NB" not in request.flags
    return bool(request.flags & {"F_SETLKW", "F_OFD_SETLKW"})


def releases(request: Request, held: Locks) -> bool:
    """Whether closing the file gives a lock back, which others may be waiting for."""
    if request.call.family != "close" or not request.files:
        return False
    file = request.file
    last = file.holders <= 1 and held.holds(file)
    return last or held.holds(request.task.process, _inode(request))


def perform(request: Request, held: Locks) -> Answer | None:
    """Carry out an op of this module's; None for one that is not."""
    family = request.call.family
    if family == "sleep":
        return Answer()
    if family == "close":
        return _close(request, held)
    if family in {"flock", "fcntl"}:
        return _lock(request, held)
    if family == "exec":
        return CARRY_ON
    return None


def _close(request: Request, held: Locks) -> Answer:
    held.release(request.task.process, _inode(request))
    last = request.task.process.descriptors.drop(signed(request.arguments[0]))
    if last is not None:
        held.release(last)
    return CARRY_ON


def _lock(request: Request, held: Locks) -> Answer:
    lock = request.lock
    if lock is None:
        return Answer(errno=errno.EINVAL)
    conflict = held.conflict(lock)
    if request.flags & {"F_GETLK", "F_OFD_GETLK"}:
        memory, address = request.task.process.memory, request.arguments[2]
        owner = getattr(conflict.owner, "pid", -1) if conflict else 0
        memory.write(address, locks.pack(conflict, memory.read(address, locks.FLOCK_SIZE), owner))
        return Answer()
    if conflict is not None:
        return Answer(errno=errno.EAGAIN)
    held.set(lock)
    return Answer()


_TIMEOUTS = {
    "futex": (3, 0), "poll": (2, -1), "ppoll": (2, 0), "epoll_wait": (3, -1), "epoll_pwait": (3, -1),
    "epoll_pwait2": (3, 0), "select": (4, 0), "pselect6": (4, 0), "rt_sigtimedwait": (2, 0),
    "clock_nanosleep": (0, None), "nanosleep": (0, None),
}  # fmt: skip
"""Calls that may wait for a limited time: which argument is the limit, and its value for "no limit"."""


def has_timeout(number: int, arguments: tuple[int, ...]) -> bool:
    """Whether a call that a thread sleeps in will end by itself."""
    for name, (index, unlimited) in _TIMEOUTS.items():
        if syscalls.number(name, libc.MACHINE) == number:
            return unlimited is None or signed(arguments[index], 32 if unlimited == -1 else 64) != unlimited
    return False
