"""Timers that end in a signal, in virtual time: alarm(2), setitimer(2), timer_settime(2).

The kernel's own are never armed.  A signal comes as soon as no thread can continue before it is due, at one moment:
others were not tried.  What ends otherwise (timerfd, a thread of the C library) or counts processor time is the
kernel's, and a gap.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from racecheck.kernel import proc
from racecheck.model.epoch import BOOTED
from racecheck.model.nouns import Op, Result
from racecheck.supervisor.act.fault_injection import end
from racecheck.supervisor.calls.perform import Answer
from racecheck.supervisor.calls.sleeps import REAL_CLOCKS, round_up
from racecheck.supervisor.run.state import Over, RunState
from racecheck.supervisor.state.decoder import signed
from racecheck.supervisor.state.tasks import Process, Request

_MOST = 500
"""This many signals in a row, with nothing else done: such a run waits for something that never comes."""
_UNTRIED = "other moments for a timer's signal"
_SECOND, _MICROSECOND = 10**9, 10**3
_REALTIME, _ABSOLUTE = 0, 1
_SIZE = 32
"""Of struct itimerval and struct itimerspec."""
_LAST_STANDARD = 31
"""Signals after it are the C library's, or carry a value."""


@dataclass(slots=True)
class Timer:
    """A timer of a process: when it is due, how often after that, in nanoseconds (virtual), and which signal it sends.

    ``id`` is that of timer_create, -1 for the process's own.  ``thread`` gets the signal, 0 for any.
    """

    process: Process
    until: int
    every: int
    number: int = signal.SIGALRM
    id: int = -1
    thread: int = 0

    @property
    def place(self) -> tuple[int, int, str, int]:
        """Its place among timers: those due at the same time come in the order of ranks, then of processes."""
        rank = self.process.rank
        return self.until, rank.number, rank.task(self.process.pid).name, self.id


class Timers:
    """The armed timers of a run."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._armed: dict[tuple[int, int], Timer] = {}
        self._events, self._row = 0, 0

    def arm(self, request: Request) -> Answer | None:
        """Carry out a call that arms or disarms a timer; None for a timer that is the kernel's."""
        calls = {
            "alarm": self._alarm, "setitimer": self._set, "timer_settime": self._settime,
            "getitimer": self._get, "timer_gettime": self._gettime,
        }  # fmt: skip
        call = calls.get(request.call.name)
        try:
            return call(request) if call is not None else None
        except OSError:
            return Answer(errno=errno.EFAULT)

    def _alarm(self, request: Request) -> Answer:
        left, _ = self._left(request, -1)
        self._put(Timer(request.task.process, (request.arguments[0] & 0xFFFFFFFF) * _SECOND, 0))
        seconds, rest = divmod(left, _SECOND)
        return Answer(value=seconds + (rest >= _SECOND // 2 or 0 < left < _SECOND))

    def _set(self, request: Request) -> Answer | None:
        which, new, old = request.arguments[:3]
        if which:
            return None
        memory = request.task.process.memory
        every, value = (0, 0) if not new else _read(memory.read(new, _SIZE), _MICROSECOND)
        if min(every, value) < 0:
            return Answer(errno=errno.EINVAL)
        before = self._left(request, -1)
        if old and memory.fill(old, _written(*before, _MICROSECOND)) < _SIZE:
            return Answer(errno=errno.EFAULT)
        self._put(Timer(request.task.process, value, every))
        return Answer()

    def _settime(self, request: Request) -> Answer | None:
        process, (id_, flags, new, old) = request.task.process, request.arguments[:4]
        known = _known(process.pid).get(signed(id_))
        if known is None:
            return None
        every, value = _read(process.memory.read(new, _SIZE), 1)
        if min(every, value) < 0:
            return Answer(errno=errno.EINVAL)
        if flags & _ABSOLUTE and value:
            value = self._until(request, value, known.clock)
        before = self._left(request, signed(id_))
        if old and process.memory.fill(old, _written(*before, 1)) < _SIZE:
            return Answer(errno=errno.EFAULT)
        self._put(Timer(process, value, every, known.number, signed(id_), known.thread))
        return Answer()

    def _get(self, request: Request) -> Answer | None:
        return self._tell(request, -1, _MICROSECOND) if not request.arguments[0] else None

    def _gettime(self, request: Request) -> Answer | None:
        id_ = signed(request.arguments[0])
        return self._tell(request, id_, 1) if id_ in _known(request.task.process.pid) else None

    def _tell(self, request: Request, id_: int, unit: int) -> Answer:
        told = request.task.process.memory.fill(request.arguments[1], _written(*self._left(request, id_), unit))
        return Answer() if told == _SIZE else Answer(errno=errno.EFAULT)

    def _until(self, request: Request, value: int, clock: int) -> int:
        if clock == _REALTIME:
            return max(1, value - self._state.time.read(request.task.rank.number, request.task.name))
        # C reads the kernel's monotonic clock, Python a virtual one: the nearest time ahead is meant.
        left = [value - time.clock_gettime_ns(clock), value - BOOTED - self._state.time.elapsed]
        return round_up(min((each for each in left if each > 0), default=1))

    def _left(self, request: Request, id_: int) -> tuple[int, int]:
        """Return how long a timer has still to go, and its interval; zeros for one that is not armed."""
        timer = self._armed.get((request.task.process.pid, id_))
        return (max(1, timer.until - self._state.time.elapsed), timer.every) if timer is not None else (0, 0)

    def _put(self, timer: Timer) -> None:
        """Arm a timer that is due after ``until``, or disarm it where that is 0."""
        key = timer.process.pid, timer.id
        self._armed.pop(key, None)
        if timer.until:
            self._armed[key] = replace(timer, until=self._state.time.elapsed + timer.until)
            self._state.ledger.untried(_UNTRIED)

    @property
    def are_armed(self) -> bool:
        """Return whether a timer is yet to run out."""
        return bool(self._armed)

    def act(self, soonest: float) -> bool:
        """Send the next signal if it is due before ``soonest``, when another thread continues (nanoseconds, virtual).

        Returns whether it was sent.  Raises `Over` if timers run out and nothing else happens any more.
        """
        self._armed = {key: each for key, each in self._armed.items() if _is_there(each)}
        timer = min(self._armed.values(), key=lambda each: each.place, default=None)
        if timer is None or max(self._state.time.elapsed, soonest) < timer.until:
            return False
        self._row = self._row + 1 if len(self._state.trace) == self._events else 1
        if self._row == _MOST:
            raise Over(f"{_MOST} timers ran out in a row and nothing else happened")
        self._state.time.tick(timer.until)
        self._armed.pop((timer.process.pid, timer.id))
        if timer.every:
            self._armed[timer.process.pid, timer.id] = replace(timer, until=timer.until + timer.every)
        self._send(timer)
        self._events = len(self._state.trace)
        return True

    def _send(self, timer: Timer) -> None:
        state, process, rank = self._state, timer.process, timer.process.rank
        name = signal.Signals(timer.number).name
        task = next((each for each in rank.tasks.values() if each.tid == (timer.thread or process.pid)), rank.main)
        state.trace.add(Op(rank.number, task.name, "timer", name), Result(), task.tick())
        pid = process.pid
        is_handled = proc.is_caught(pid, timer.number) or proc.is_blocked(pid, timer.number)
        if not is_handled and process.is_main and not proc.is_ignored(pid, timer.number):
            end(rank, timer.number)
            return
        with suppress(ProcessLookupError):
            os.kill(pid, timer.number)
        rank.wake()
        rank.past.kills = True
        if task.request is not None and task.request.call.family == "sleep" and proc.is_caught(pid, timer.number):
            task.request.left = max(0, task.request.until - state.time.elapsed)
            task.request.until = state.time.elapsed


@dataclass(frozen=True, slots=True)
class _TimerId:
    number: int
    thread: int
    clock: int


def _known(pid: int) -> dict[int, _TimerId]:
    """Return the timers of timer_create whose end is a signal, by id (/proc/pid/timers)."""
    try:
        text = Path(f"/proc/{pid}/timers").read_text("ascii")
    except OSError:
        return {}
    form = r"ID: (\d+)\nsignal: (\d+)/.*\nnotify: signal/(pid|tid)\.(\d+)\nClockID: (\d+)"
    found = {
        int(id_): _TimerId(int(number), int(target) if kind == "tid" else 0, int(clock))
        for id_, number, kind, target, clock in re.findall(form, text)
    }
    return {id_: each for id_, each in found.items() if each.number <= _LAST_STANDARD and each.clock in REAL_CLOCKS}


def _is_there(timer: Timer) -> bool:
    """Return whether a timer's process has not ended, nor deleted it."""
    if timer.process.rank.gone or proc.has_ended(timer.process.pid):
        return False
    return timer.id < 0 or timer.id in _known(timer.process.pid)


def _read(data: bytes, unit: int) -> tuple[int, int]:
    """Return interval and value of a struct itimerval or itimerspec, in nanoseconds; -1 for invalid ones."""
    numbers = struct.unpack("qqqq", data)
    pairs = (numbers[:2], numbers[2:])
    every, value = (
        seconds * _SECOND + rest * unit if seconds >= 0 and 0 <= rest < _SECOND // unit else -1
        for seconds, rest in pairs
    )
    return every, value


def _written(value: int, every: int, unit: int) -> bytes:
    return struct.pack("qqqq", every // _SECOND, every % _SECOND // unit, value // _SECOND, value % _SECOND // unit)
