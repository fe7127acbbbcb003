"""Programs that arm timers.  Not collected by pytest.

Their sleeps are what is tested: a timer has to run out in the middle of one.  Under control they take virtual time.
Each is also run once without racecheck, all at the same time, and then the longest takes 4 s.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from racecheck import Rank, scenario

_LIBC = ctypes.CDLL(None, use_errno=True)


class _Spec(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "value_s", "value_ns")]


def _count(number: int = signal.SIGALRM) -> list[int]:
    hits: list[int] = []
    signal.signal(number, lambda *_: hits.append(1))
    return hits


def alarms() -> Any:
    hits = _count()
    before = signal.alarm(200)
    again = signal.alarm(1)
    time.sleep(3)
    return [before, 190 < again <= 200, signal.alarm(0), len(hits)]


def intervals() -> Any:
    hits = _count()
    before = signal.setitimer(signal.ITIMER_REAL, 0.3, 0.2)
    begun = time.monotonic()
    while len(hits) < 4:
        time.sleep(0.05)
    is_late = time.monotonic() - begun >= 0.9
    _, every = signal.setitimer(signal.ITIMER_REAL, 0)
    return [before, is_late, every, signal.getitimer(signal.ITIMER_REAL)]


def left() -> Any:
    """What is left of a timer: a busy machine may take some seconds more."""
    signal.setitimer(signal.ITIMER_REAL, 100.5, 7)
    time.sleep(0.2)
    now, every = signal.getitimer(signal.ITIMER_REAL)
    rest = signal.alarm(0)
    return [90 < now <= 100.3, every, 90 < rest <= 100]


def interrupted() -> Any:
    """A handler that raises ends the sleep."""

    def out(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, out)
    begun = time.monotonic()  # before the alarm is set: it is due a second after that
    signal.alarm(1)
    try:
        time.sleep(30)
    except TimeoutError:
        return 1 <= time.monotonic() - begun < 10
    return "slept"


def in_a_wait() -> Any:
    """It ends a wait that nothing else would end."""

    def out(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, out)
    signal.alarm(1)
    try:
        threading.Event().wait()
    except TimeoutError:
        return "over"
    return "set"


def posix() -> Any:
    """timer_create: of another signal, absolute and relative; timer_gettime and timer_delete."""
    hits = _count()
    id_, old = ctypes.c_int(), _Spec()
    _LIBC.timer_create(1, None, ctypes.byref(id_))
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    spec = _Spec(0, 0, int(now) + 2, 0)
    _LIBC.timer_settime(id_.value, 1, ctypes.byref(spec), None)
    time.sleep(4)
    seen = [len(hits)]
    _LIBC.timer_settime(id_.value, 0, ctypes.byref(_Spec(3, 0, 50, 0)), ctypes.byref(old))
    seen += [old.every_s, old.value_s, old.value_ns]
    _LIBC.timer_gettime(id_.value, ctypes.byref(old))
    seen += [old.every_s, 40 <= old.value_s <= 50]
    _LIBC.timer_settime(id_.value, 0, ctypes.byref(_Spec(0, 0, 1, 0)), None)
    _LIBC.timer_delete(id_.value)
    time.sleep(2)
    return [*seen, len(hits)]


def refused() -> Any:
    found = []
    for spec in (_Spec(0, 0, -1, 0), _Spec(0, 2_000_000, 1, 0), _Spec(-1, 0, 1, 0)):
        ctypes.set_errno(0)
        found.append([_LIBC.setitimer(0, ctypes.byref(spec), None), errno.errorcode.get(ctypes.get_errno())])
    ctypes.set_errno(0)
    found.append([_LIBC.setitimer(0, ctypes.c_void_p(8), None), errno.errorcode.get(ctypes.get_errno())])
    return found


def blocked() -> Any:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    signal.alarm(1)
    return int(signal.sigwait([signal.SIGALRM]))


def ignored() -> Any:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.alarm(1)
    time.sleep(2)
    return "alive"


def not_inherited() -> Any:
    signal.alarm(30)
    child = os.fork()
    if not child:
        os._exit(7 if signal.getitimer(signal.ITIMER_REAL) == (0, 0) else 8)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 20 < signal.alarm(0) <= 30]


def kept_by_exec() -> Any:
    child = subprocess.run(["sh", "-c", "sleep 30"], preexec_fn=lambda: signal.alarm(1), check=False)
    return child.returncode


def timeout_command() -> Any:
    codes = [subprocess.run(["timeout", *each, "sleep", "50"], check=False).returncode for each in (["1"], ["2"])]
    return [*codes, subprocess.run(["timeout", "20", "true"], check=False).returncode]


ALL = (
    alarms, intervals, left, interrupted, in_a_wait, posix, refused, blocked, ignored, not_inherited, kept_by_exec,
    timeout_command,
)  # fmt: skip


def _scenario(program: Callable[[], Any]) -> Any:
    """A scenario in which two ranks do the same at once."""

    def on_ranks(rank: Rank) -> Any:
        del rank
        return program()

    on_ranks.__name__ = f"{program.__name__}_on_ranks"
    return scenario(ranks=2)(on_ranks)


globals().update({f"{each.__name__}_on_ranks": _scenario(each) for each in ALL})


@scenario(ranks=1)
def dies(rank: Rank) -> None:
    signal.alarm(1)
    time.sleep(5)
    (rank.path / "alive").touch()


@scenario(ranks=2)
def child_dies(rank: Rank) -> int:
    child = subprocess.run(["sleep", "5"], preexec_fn=lambda: signal.alarm(1), check=False)
    (rank.path / "shared").exists()
    if rank.rank == 0:
        (rank.path / "shared").mkdir()
    return child.returncode


@scenario(ranks=1)
def endless(rank: Rank) -> None:
    del rank
    _count()
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    while True:
        signal.pause()


@scenario(ranks=1)
def of_processor_time(rank: Rank) -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, 100)
    (rank.path / "a").touch()


@scenario(ranks=2)
def watchdog(rank: Rank) -> None:
    """A rank that waits for a file gives up before the other one makes it."""

    def out(*_: object) -> None:
        raise TimeoutError("no checkpoint")

    if rank.rank == 1:
        time.sleep(20)
        (rank.path / "ready").touch()
        return
    signal.signal(signal.SIGALRM, out)
    signal.alarm(10)
    while not (rank.path / "ready").exists():
        time.sleep(1)
    signal.alarm(0)
