"""Sleeps in virtual time: how long a thread asks to sleep, and how that ends."""

from __future__ import annotations

import errno
import struct
import time
from contextlib import suppress
from dataclasses import replace

from racecheck.kernel.seccomp import CLOCKS
from racecheck.supervisor.calls.perform import Answer, Next
from racecheck.supervisor.state.tasks import Request
from racecheck.supervisor.state.virtual_time import VirtualTime

_MILLISECOND = 1_000_000
_LADDER = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)
_ABSOLUTE = 1
REAL_CLOCKS = frozenset({0, 1, 7, 8, 9, 11})
"""Clocks that advance while nothing runs: clock_getres(2)."""


def describe(request: Request, now: VirtualTime) -> None:
    """Complete a pending sleep: only its memory says for how long it is."""
    if request.call.family == "sleep":
        with suppress(OSError):  # its process has been killed meanwhile
            request.op = replace(request.op, args={"nanoseconds": _duration(request, now)})
            request.until = now.elapsed + request.op.args["nanoseconds"]


def perform(request: Request, next_: Next) -> Answer:
    """End a sleep whose time has come, or that a signal has interrupted."""
    if request.call.family != "sleep":
        return next_(request)
    return _interrupt(request) if request.left else Answer()


def can_sleep(request: Request) -> bool:
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
