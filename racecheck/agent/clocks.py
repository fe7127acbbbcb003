"""Time in ranks: sleeps, clocks and looks at them."""

from __future__ import annotations

import ctypes
import functools
import itertools
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, SupportsFloat, SupportsIndex

from racecheck.agent import loop_state
from racecheck.agent.hypercalling import OURS, hypercall
from racecheck.agent.job import Job
from racecheck.kernel import libc, syscalls, vdso
from racecheck.model import epoch
from racecheck.model.hypercalls import (
    LooksAtClock,
    Sleeps,
)

_WAITS_AND_LOGS = tuple(
    f"{os.path.dirname(os.__file__)}/{name}"
    for name in ("asyncio", "concurrent", "logging", "multiprocessing", "queue", "selectors", "subprocess", "threading")
)


def sleep(seconds: SupportsFloat | SupportsIndex, /) -> None:
    """Replace ``time.sleep``, and ask the kernel for a duration.

    The original asks for a point in time: how far off that is when the call is intercepted depends on how fast this
    machine is.
    """
    seconds = float(seconds)
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    if _page is not None and _page[8]:
        hypercall(Sleeps(loop_state.digest(sys._getframe(1))))
    number = syscalls.number("clock_nanosleep", libc.MACHINE)
    assert number is not None
    left = ctypes.create_string_buffer(struct.pack("qq", int(seconds), round(seconds % 1 * 1e9) % 10**9), 16)
    libc.syscall(number, time.CLOCK_MONOTONIC, 0, left, left)


_page: mmap.mmap | None = None
_ahead = 0
_of_setup: list[Iterator[int]] = []
_told: list[bool] = []
_reads = threading.local()


def take_over_time() -> None:
    """Replace the clocks by ones that the supervisor answers for.

    Python's read the virtual time from a page of memory that the supervisor writes.  Each reading is later than the one
    before; those of the time of day are counted by themselves, for it goes into files, and how often an event loop asks
    for the other is its own affair.  The time of day of C++ and Rust comes from the C library, whose vDSO is diverted;
    their monotonic clocks stay real, since the kernel waits by them.
    """
    vdso.divert()
    real, of_day = time.clock_gettime_ns, {time.CLOCK_REALTIME, time.CLOCK_TAI}

    def read(clock: int) -> int:
        if _page is None:
            return next(_of_setup[0]) if _of_setup and clock in of_day else int(real(clock))
        kind, begins = ("of_day", epoch.EPOCH + _ahead) if clock in of_day else ("since", epoch.BOOTED)
        count = int(getattr(_reads, kind, 0)) + 1
        setattr(_reads, kind, count)
        tell_of_clock(sys._getframe(1), of_day=kind == "of_day")
        return begins + int.from_bytes(_page[:8], "little") + count * epoch.TICK

    before = dict(vars(time))
    names = {"time": time.CLOCK_REALTIME, "monotonic": time.CLOCK_MONOTONIC, "perf_counter": time.CLOCK_MONOTONIC}
    names |= {"process_time": time.CLOCK_PROCESS_CPUTIME_ID, "thread_time": time.CLOCK_THREAD_CPUTIME_ID}
    for name, clock in names.items():
        setattr(time, f"{name}_ns", functools.partial(read, clock))
        setattr(time, name, lambda clock=clock: read(clock) / 1e9)
    time.clock_gettime_ns = read
    time.clock_gettime = lambda clock: read(clock) / 1e9
    time.sleep = sleep
    replace_functions({id(before[name]): now for name, now in vars(time).items() if before[name] is not now})


def begin_setup() -> None:
    """Have Python's time of day be an hour before each run: the setup writes the same times in each run."""
    _of_setup[:] = [itertools.count(epoch.EPOCH - 3600 * 10**9, epoch.TICK)]


def tell_of_clock(frame: FrameType | None, *, of_day: bool = True) -> None:
    """Tell of the program's first look at any clock, and at a clock with the time of day (``of_day``).

    While the rank is watched closely, each look.

    ``frame`` is our caller's caller or one of our own frames.

    Where torch looks, or what Python's library waits and logs with, the program learns nothing by it.
    """
    while frame is not None and frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    if _page is None or (of_day in _told and not _page[8]):
        return
    if frame is None or not _is_of_program(frame.f_code.co_filename):
        return
    _told.append(of_day)
    hypercall(LooksAtClock(of_day))


@functools.cache
def _is_of_program(file: str) -> bool:
    if "/site-packages/" in file:
        return "/site-packages/torch/" not in file
    return not file.startswith(("<frozen", *_WAITS_AND_LOGS))


def replace_functions(functions: Mapping[int, Any]) -> None:
    """Replace functions in modules that have them under names of their own (``from time import monotonic``)."""
    for module in [module for name, module in sys.modules.items() if name != "time"]:
        for name, value in [*getattr(module, "__dict__", {}).items()]:
            if id(value) in functions:
                setattr(module, name, functions[id(value)])


def watch_clock(job: Job, rank: int) -> None:
    """Map the page with the world's virtual time; ``rank`` says by how much its clock is ahead."""
    global _page, _ahead
    with open(f"{job.output}/clock", "rb") as file:
        _page, _ahead = mmap.mmap(file.fileno(), epoch.CLOCK, prot=mmap.PROT_READ), job.ahead[rank]
