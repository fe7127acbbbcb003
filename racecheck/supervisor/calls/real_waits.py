"""Waits in the kernel, by real clocks: which calls end by themselves, and when."""

from __future__ import annotations

import struct
import time
from contextlib import suppress

from racecheck.kernel import libc, proc, syscalls
from racecheck.kernel.memory import Memory
from racecheck.supervisor.state.decoder import signed
from racecheck.supervisor.state.tasks import Task

_MILLISECOND = 1_000_000
_GIL_INTERVAL = 6 * _MILLISECOND
_FUTEX_COMMAND, _FUTEX_REALTIME = 0x7F, 0x100

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
