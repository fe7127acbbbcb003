"""Calls about a rank's own state rather than the files: descriptors, locks, sleeps, randomness, processes."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import stat
import struct
import termios
import time
from collections import Counter
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import replace

from racecheck.kernel import flock, libc, proc, syscalls
from racecheck.kernel.memory import Memory
from racecheck.kernel.seccomp import CLOCKS, FIRST_DESCRIPTOR
from racecheck.model.nouns import Op
from racecheck.model.ops import op_kinds
from racecheck.model.ops.lock_ops import ASKING, has_begun_to_wait, waits
from racecheck.model.ops.locks import END, EXCLUSIVE, SHARED, UNLOCK, Lock, Locks
from racecheck.supervisor.calls import perform as performing
from racecheck.supervisor.calls.perform import CARRY_ON, Answer
from racecheck.supervisor.files.open_files import OpenFile
from racecheck.supervisor.threads.coverage import Ledger
from racecheck.supervisor.threads.decoder import Decoder, closing_range, signed
from racecheck.supervisor.threads.tasks import Process, Request, Task
from racecheck.supervisor.threads.virtual_time import VirtualTime

NEVER_OPS = frozenset(
    {"clock", "clone", "timer", "random", "dup", "ioctl", "advise", "getcwd", "channel", "credentials"}
)
"""Families that concern only the calling process."""

WITHOUT_PLACE = frozenset({"sleep", "sync", "reap", "exit", "kill"})
"""Families that are ops although they concern no file."""

RECORD_LOCKS = frozenset({"F_SETLK", "F_SETLKW", "F_GETLK", "F_OFD_SETLK", "F_OFD_SETLKW", "F_OFD_GETLK"})
_MODES = {"LOCK_SH": SHARED, "LOCK_EX": EXCLUSIVE, "LOCK_UN": UNLOCK}
_FLAGS = {mode: flag for flag, mode in _MODES.items()}
_DUPLICATES = frozenset({"F_DUPFD", "F_DUPFD_CLOEXEC"})
_UNCONTROLLED_FCNTL = frozenset({"F_SETLEASE", "F_NOTIFY", "F_SETSIG"})
_FIOCLEX, _FIONCLEX = 0x5451, 0x5450
_HARMLESS_IOCTL = frozenset({termios.TCGETS, _FIOCLEX, _FIONCLEX, termios.FIONREAD, termios.TIOCGWINSZ})
_CLONE_RANGE = frozenset({0x40049409, 0x4020940D})
_MILLISECOND = 1_000_000
_LADDER = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)
_GIL_INTERVAL = 6 * _MILLISECOND
_FUTEX_COMMAND, _FUTEX_REALTIME = 0x7F, 0x100
_ABSOLUTE = 1
REAL_CLOCKS = frozenset({0, 1, 7, 8, 9, 11})
"""Clocks that advance while nothing runs: clock_getres(2)."""
_EITHER_POOL, _MOST_RANDOM = 0b110, 1 << 25
_CLONE_THREAD = 0x10000
_RANDOM_FILES = frozenset({b"/dev/urandom", b"/dev/random"})
_RANDOM_LENGTH = 1 << 22


def at_once(request: Request, ledger: Ledger, rng: random.Random) -> Answer | None:
    """Return the answer to a call that no other thread can notice; None for one that has to wait its turn."""
    family = request.call.family
    if family in _OF_PROCESSES:
        return _OF_PROCESSES[family](request, ledger, rng)
    if not request.touches:
        if family == "open" and _is_random(request):
            return _random_file(request, rng)
        return CARRY_ON if request.call.name == "close_range" else None
    if family == "dup":
        return _duplicate(request, ledger)
    if family == "fcntl":
        return _fcntl(request, ledger)
    if family == "ioctl":
        return _ioctl(request, ledger)
    if family == "seek":
        return _seek(request)
    return CARRY_ON if family == "advise" else None


def _start(request: Request) -> Answer:
    """Note that a thread or a process is started."""
    rank = request.task.rank
    rank.await_birth(request.task)
    rank.forked |= not _starts_thread(request)
    rank.bear(request.task)
    return CARRY_ON


def _reap(request: Request) -> Answer | None:
    """Answer waitpid: whether a child has ended already is certain only when everything is quiet."""
    return None if request.number("options") & os.WNOHANG else CARRY_ON


def _exit(request: Request) -> Answer | None:
    """Make the end of a process an op: its parent, its other threads and those that wait for its locks notice it."""
    leaves = request.task.process.is_main and request.task.rank.leaving
    return CARRY_ON if leaves else None


def _arm(request: Request, ledger: Ledger) -> Answer:
    if "gettime" not in request.call.name and request.call.name != "getitimer":
        request.task.rank.alarmed = True
        ledger.hole("a kernel timer (real time)")
    return CARRY_ON


def _starts_thread(request: Request) -> bool:
    """Return whether a clone makes a thread rather than a process."""
    return bool(proc.clone_flags(request.call.name, request.arguments, request.task.process.memory) & _CLONE_THREAD)


def _draw(request: Request, rng: random.Random) -> Answer | None:
    """Return randomness from the seed, a separate stream for each thread."""
    flags = request.number("flags")
    if not 0 <= flags < 8 or flags & _EITHER_POOL == _EITHER_POOL:
        return CARRY_ON
    count = min(request.arguments[1], _MOST_RANDOM)
    given = request.task.process.memory.fill(request.arguments[0], rng.randbytes(count))
    return Answer(value=given, errno=0 if given or not count else errno.EFAULT)


def _is_random(request: Request) -> bool:
    """Return whether a call opens a random device, to read."""
    is_device = not _RANDOM_FILES.isdisjoint(request.paths.values())
    return is_device and request.flags.isdisjoint({"O_WRONLY", "O_RDWR", "O_PATH", "O_DIRECTORY"})


def _random_file(request: Request, rng: random.Random) -> Answer:
    """Return a file of random bytes from the seed; unlike the device it has an end."""
    file = os.memfd_create("random", os.MFD_CLOEXEC)
    with open(file, "wb", closefd=False) as filled:
        filled.write(rng.randbytes(_RANDOM_LENGTH))
    try:
        opened = os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(file)
    return Answer(opened=opened, close_on_exec="O_CLOEXEC" in request.flags, is_unseen=True)


def _execute(request: Request, ledger: Ledger) -> Answer | None:
    process = request.task.process
    others = [task for task in process.rank.tasks.values() if task.process is process and task is not request.task]
    if any(task.started for task in others):
        ledger.untried("other moments for an exec that ends its process's other threads")
    process.has_executed = True
    process.rank.replaced |= process.is_main
    return None if request.touches else CARRY_ON


_OF_PROCESSES: Mapping[str, Callable[[Request, Ledger, random.Random], Answer | None]] = {
    "clone": lambda request, *_: _start(request),
    "random": lambda request, _, rng: _draw(request, rng),
    "exec": lambda request, ledger, _: _execute(request, ledger),
    "timer": lambda request, ledger, _: _arm(request, ledger),
    "reap": lambda request, *_: _reap(request),
    "exit": lambda request, *_: _exit(request),
    "getcwd": lambda *_: CARRY_ON,
    "channel": lambda *_: CARRY_ON,
    "credentials": lambda *_: CARRY_ON,
    "kill": lambda *_: None,
    "sleep": lambda request, *_: None if _can_sleep(request) else CARRY_ON,
}
"""The calls that concern no file, by family."""


def _duplicate(request: Request, ledger: Ledger) -> Answer | None:
    """Make an op of a duplicate that takes the place of another watched file's descriptor: it closes that file."""
    process, name = request.task.process, request.call.name
    if name == "dup":
        return Answer(opened=request.file.duplicate())
    source, target = (signed(each) for each in request.arguments[:2])
    if not _can_replace(request, source, target):
        return CARRY_ON
    if 0 in request.files and 2 < target < FIRST_DESCRIPTOR:
        ledger.hole(f"descriptor {target} of rank {process.rank.number} is a watched file that the filter does not see")
    elif 1 not in request.files:
        process.descriptors.set(target, request.files[0])
    return None if 1 in request.files else CARRY_ON


def _can_replace(request: Request, source: int, target: int) -> bool:
    """Return whether dup2 or dup3 changes anything."""
    descriptors = request.task.process.descriptors
    allowed = source != target and request.flags <= {"O_CLOEXEC"}
    return allowed and 0 <= target < descriptors.limit and descriptors.is_open(source)


def _fcntl(request: Request, ledger: Ledger) -> Answer | None:
    if request.flags & _DUPLICATES:
        minimum = signed(request.arguments[2])
        if not 0 <= minimum < request.task.process.descriptors.limit:
            return CARRY_ON
        request.op = replace(request.op, args={"minimum": minimum})
        return Answer(opened=request.file.duplicate(), close_on_exec="F_DUPFD_CLOEXEC" in request.flags)
    if request.flags & RECORD_LOCKS:
        return None
    if request.flags & _UNCONTROLLED_FCNTL:
        ledger.hole(f"fcntl {', '.join(request.flags)} on a watched file")
    return CARRY_ON


def _ioctl(request: Request, ledger: Ledger) -> Answer:
    """Decline to share extents between files, as a file system without that feature does: programs then copy."""
    if request.number("request") & 0xFFFFFFFF in _CLONE_RANGE:
        ledger.note("FICLONE was refused")
        return Answer(errno=errno.EOPNOTSUPP)
    if request.number("request") & 0xFFFFFFFF not in _HARMLESS_IOCTL:
        ledger.hole(f"ioctl {request.number('request') & 0xFFFFFFFF:#x} on a watched file")
    return CARRY_ON


def _seek(request: Request) -> Answer | None:
    """Seek.  From the end it reads the size, which others may change; in a directory the listing is ours."""
    if stat.S_ISDIR(request.file.status().st_mode):
        return performing.perform(request)
    return CARRY_ON if moves_alone(request) else None


def moves_alone(request: Request) -> bool:
    """Return whether a seek is about the position only, which is the open file's."""
    return request.call.family == "seek" and not request.flags.isdisjoint({"SEEK_SET", "SEEK_CUR"})


def describe(request: Request, now: VirtualTime) -> None:
    """Complete a pending op with what only its memory or its file says: the lock, the time to sleep."""
    if request.call.family == "sleep":
        with suppress(OSError):  # its process has been killed meanwhile
            request.op = replace(request.op, args={"nanoseconds": _duration(request, now)})
            request.until = now.elapsed + request.op.args["nanoseconds"]
    elif request.call.family == "dup":
        request.op = replace(request.op, call="close")
    elif request.call.family in op_kinds.LOCKS:
        request.op = replace(request.op, call="flock")
        with suppress(OSError):
            _look_at_lock(request)


def _can_sleep(request: Request) -> bool:
    """Return whether a sleep is one that the kernel would not refuse at once."""
    try:
        seconds, nanoseconds = _timespec(request)
    except OSError:
        return False
    known = request.call.name == "nanosleep" or request.number("clock") in REAL_CLOCKS
    return known and seconds >= 0 and 0 <= nanoseconds < 1_000_000_000


def _timespec(request: Request) -> tuple[int, int]:
    index = next(index for index, arg in enumerate(request.call.args) if arg.name == "timespec")
    seconds, nanoseconds = struct.unpack("qq", request.task.process.memory.read(request.arguments[index], 16))
    return seconds, nanoseconds


def _interrupt(request: Request) -> Answer:
    """Return EINTR and, for a sleep of some length, how much of it is left (clock_nanosleep(2))."""
    rest = request.arguments[len(request.call.args) - 1]
    if rest and not request.op.args.get("flags", 0) & _ABSOLUTE:
        left = struct.pack("qq", *divmod(request.left, 1_000_000_000))
        if request.task.process.memory.fill(rest, left) < len(left):
            return Answer(errno=errno.EFAULT)
    return Answer(errno=errno.EINTR)


def _duration(request: Request, now: VirtualTime) -> int:
    """Return the nanoseconds to sleep.

    To a deadline of a real clock that is the remaining time when the call came in, rounded up: it depends on how fast
    the thread reached its call.
    """
    seconds, nanoseconds = _timespec(request)
    wanted = seconds * 1_000_000_000 + nanoseconds
    if request.op.args.get("flags", 0) & _ABSOLUTE:
        clock = request.number("clock")
        if clock in CLOCKS:
            return max(0, wanted - now.read(request.task.rank.number, request.task.name))
        wanted -= time.clock_gettime_ns(clock) - (time.monotonic_ns() - request.received)
        return round_up(wanted)
    return max(0, wanted)


def round_up(nanoseconds: int) -> int:
    """Round up to 10, 12, 15, 20, 25, 30, 40, 50, 60 or 80 ms, or ten times that, and so on.

    People write such numbers, and a program that reaches its call late still gets the same one.
    """
    step = _MILLISECOND
    while nanoseconds > 100 * step:
        step *= 10
    return next(each * step for each in _LADDER if nanoseconds <= each * step)


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


def is_enabled(request: Request, held: Locks) -> bool:
    """Return whether a pending op can go: it gets its lock, or others can notice that it begins to wait."""
    if request.lock is None or not waits(request.op):
        return True
    if "whence" in request.op.args:
        with suppress(OSError):
            _look_at_lock(request)
    return held.can_go(request.lock, has_begun=has_begun_to_wait(request.op))


def begins_to_wait(request: Request, held: Locks) -> bool:
    """Return whether a pending op can only begin to wait for a lock."""
    lock = request.lock
    if lock is None or not waits(request.op) or held.conflict(lock) is None or held.is_deadlock(lock):
        return False
    return held.begins(lock, has_begun=has_begun_to_wait(request.op))


def begin_to_wait(request: Request, held: Locks) -> None:
    """Remove the lock that a request was to convert: when it begins to wait with flock(2), it loses that lock."""
    assert request.lock is not None
    held.begin(request.lock)
    request.op = replace(request.op, args={**request.op.args, "waits": 1})


def releases(request: Request, held: Locks) -> bool:
    """Return whether closing files releases a lock, which others may be waiting for."""
    return bool(_closed(request)) and bool(_given_back(request, held)[0])


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


def perform(request: Request, held: Locks) -> Answer | None:
    """Carry out an op of this module; returns None for any other op."""
    family = request.call.family
    if family == "sleep":
        return _interrupt(request) if request.left else Answer()
    if family in op_kinds.CLOSES:
        return _close(request, held)
    if family in op_kinds.LOCKS:
        return _set_lock(request, held)
    if family == "exec":
        return CARRY_ON
    if family == "exit":
        end(request.task.process, held)
        return CARRY_ON
    return None


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


_TIMEOUTS = {
    "futex": (3, 0), "poll": (2, -1), "ppoll": (2, 0), "epoll_wait": (3, -1), "epoll_pwait": (3, -1),
    "epoll_pwait2": (3, 0), "select": (4, 0), "pselect6": (4, 0), "rt_sigtimedwait": (2, 0),
    "clock_nanosleep": (0, None), "nanosleep": (0, None),
}  # fmt: skip
"""Calls that may wait for a limited time: which argument is the limit, and its value for "no limit"."""


def has_timeout(number: int, arguments: tuple[int, ...]) -> bool:
    """Return whether a call that a thread sleeps in will end by itself."""
    return _limit(number, arguments) is not None


def _limit(number: int, arguments: tuple[int, ...]) -> tuple[str, int] | None:
    """Return the name of a call and the argument that limits its wait, if it is limited."""
    for name, (index, unlimited) in _TIMEOUTS.items():
        if syscalls.number(name, libc.MACHINE) == number:
            limited = unlimited is None or signed(arguments[index], 32 if unlimited == -1 else 64) != unlimited
            return (name, arguments[index]) if limited else None
    return None


def deadline(task: Task) -> int:
    """Return when the wait that a thread sleeps in ends by itself, in nanoseconds of CLOCK_MONOTONIC.

    Returns 0 for never, for soon (when a thread that waits for the GIL looks again), and for unknown.
    """
    call = proc.stopped_call(task.process.pid, task.tid)
    with suppress(OSError):
        return _end(*call, task.process.memory) if call is not None else 0
    return 0


def _end(number: int, arguments: tuple[int, ...], memory: Memory) -> int:
    found, now = _limit(number, arguments), time.monotonic_ns()
    if found is None or found[0] in {"clock_nanosleep", "nanosleep"}:
        return 0
    name, limit = found
    if name in {"poll", "epoll_wait", "epoll_pwait"}:
        ends = now + signed(limit) * _MILLISECOND
    else:
        seconds, rest = struct.unpack("qq", memory.read(limit, 16))
        ends = seconds * 1_000_000_000 + rest * (1000 if name == "select" else 1)
        if name != "futex" or arguments[1] & _FUTEX_COMMAND == 0:
            ends += now
        elif arguments[1] & _FUTEX_REALTIME:  # computed from a virtual clock: it is years away
            return 0
    return ends if ends > now + _GIL_INTERVAL else 0
