"""Calls about a process's own state, which no other thread notices: descriptors, randomness, the start of a process."""

from __future__ import annotations

import errno
import os
import random
import stat
import termios
from collections.abc import Callable, Mapping
from dataclasses import replace

from racecheck.kernel import proc
from racecheck.kernel.seccomp import FIRST_DESCRIPTOR
from racecheck.supervisor.calls import perform
from racecheck.supervisor.calls.locks import RECORD_LOCKS
from racecheck.supervisor.calls.perform import CARRY_ON, Answer
from racecheck.supervisor.calls.sleeps import can_sleep
from racecheck.supervisor.state.coverage import Ledger
from racecheck.supervisor.state.decoder import signed
from racecheck.supervisor.state.tasks import Request

NEVER_OPS = frozenset(
    {"clock", "clone", "timer", "random", "dup", "ioctl", "advise", "getcwd", "channel", "credentials"}
)
"""Families that concern only the calling process."""

WITHOUT_PLACE = frozenset({"sleep", "sync", "reap", "exit", "kill"})
"""Families that are ops although they concern no file."""
_DUPLICATES = frozenset({"F_DUPFD", "F_DUPFD_CLOEXEC"})
_UNCONTROLLED_FCNTL = frozenset({"F_SETLEASE", "F_NOTIFY", "F_SETSIG"})
_FIOCLEX, _FIONCLEX = 0x5451, 0x5450
_HARMLESS_IOCTL = frozenset({termios.TCGETS, _FIOCLEX, _FIONCLEX, termios.FIONREAD, termios.TIOCGWINSZ})
_CLONE_RANGE = frozenset({0x40049409, 0x4020940D})
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
    rank.past.forked |= not _starts_thread(request)
    rank.bear(request.task)
    return CARRY_ON


def _reap(request: Request) -> Answer | None:
    """Answer waitpid: whether a child has ended already is certain only when everything is quiet."""
    return None if request.number("options") & os.WNOHANG else CARRY_ON


def _exit(request: Request) -> Answer | None:
    """Make the end of a process an op: its parent, its other threads and those that wait for its locks notice it."""
    leaves = request.task.process.is_main and request.task.rank.end.is_due
    return CARRY_ON if leaves else None


def _arm(request: Request, ledger: Ledger) -> Answer:
    if "gettime" not in request.call.name and request.call.name != "getitimer":
        request.task.rank.past.alarmed = True
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
    process.rank.past.replaced |= process.is_main
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
    "sleep": lambda request, *_: None if can_sleep(request) else CARRY_ON,
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
        return perform.perform(request)
    return CARRY_ON if moves_alone(request) else None


def moves_alone(request: Request) -> bool:
    """Return whether a seek is about the position only, which is the open file's."""
    return request.call.family == "seek" and not request.flags.isdisjoint({"SEEK_SET", "SEEK_CUR"})
