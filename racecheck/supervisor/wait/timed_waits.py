"""Waits with a time limit (``Event.wait(1)``), in virtual time, and connects.

All such waits of user space for memory come down to futex(2): wait until a word in memory has changed, or the time is
over.  A thread of the program's own that calls it stops, as if it were late to call, and the wait is an op: once the
word has changed the call ends as it would have, with EAGAIN; before that it can end as a sleep ends, when its time is
over.  Which of the two comes first is a choice.

A connect to a port of this machine waits until a process listens there (`connections`).  It fails with ECONNREFUSED
where nothing else can continue, or others only wait for long.

A wait for descriptors (`descriptor_waits`) is held in the same way, until one is ready or its time is over; so is a
loop that asks for a missing file (`missing_files`).

Threads of gloo's and those inside a collective are let pass.  A thread that wants the GIL stops elsewhere (`gil`).
"""

from __future__ import annotations

import errno
import math
import struct
from contextlib import suppress
from dataclasses import replace

from racecheck.kernel import proc
from racecheck.kernel.seccomp import FUTEX_COMMAND, FUTEX_WAIT
from racecheck.model.nouns import Op
from racecheck.model.vector_clock import join
from racecheck.supervisor.calls import connections
from racecheck.supervisor.calls.perform import CARRY_ON, Answer, Next
from racecheck.supervisor.calls.sleeps import round_up
from racecheck.supervisor.finish.answers import answer
from racecheck.supervisor.run.state import Over, RunState
from racecheck.supervisor.state.tasks import HeldCall, Rank, Request, Task
from racecheck.supervisor.wait import descriptor_waits, memory_waits, missing_files
from racecheck.supervisor.wait.missing_files import MissingFiles

HELD = frozenset({"wait", "connect", "select"})
"""The families of calls that a thread may be held in."""
_MOST = 500
"""This many limits in a row, with nothing else done: such a loop may wait for something that never comes."""
_IDLE, _LONGEST = 100, 6
"""After this many waits for descriptors in vain each takes twice as long as the one before, this many times."""
_PATIENCE = 10 * 10**9
"""Nanoseconds of virtual time that others may take before a connect is refused."""
_SLOWEST = 10 * 10**9
"""Nanoseconds that a thread may take from naming a limit until it waits, on a busy machine."""
_REALTIME = 0x100
_PYTORCH = "pt_"


class TimedWaits:
    """The waits of a run that end by time, and the threads that are held before they connect."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._over = 0
        self._silent, self._events = 0, -1
        self._run_out: dict[Task, bytes] = {}
        self._files = MissingFiles(state)

    def hold(self, request: Request) -> bool:
        """Handle a futex(2), a connect(2) or a wait for descriptors; returns whether it is held, or stopped at an op.

        Raises `OSError` if its memory cannot be read.

        C++ asks the clock whether the time is really over, and waits again: then in real time.
        """
        task = request.task
        if _connects(request):
            task.rank.past.connects = True
            if connections.is_here(request):
                if not task.makes_group:
                    self._state.ledger.untried("a connect that is refused before anybody listens")
                request.until = self._state.time.elapsed + _PATIENCE
                task.stop(HeldCall(request))
                task.started, task.inside = True, None
            return task.wait is not None
        if _selects(request):
            return self._hold_for_descriptors(request)
        limit = _limit(request)
        if request.arguments[1] & FUTEX_COMMAND != FUTEX_WAIT and self._run_out.get(task) == limit:
            return False
        length = self._length(request, limit)
        request.until = self._state.time.elapsed + length
        request.op = replace(request.op, args={"nanoseconds": length})
        task.stop(request)
        task.limit, task.started, task.fresh = 0, True, True
        return True

    def hold_for_file(self, request: Request) -> bool:
        """Hold a call that asks once more for a file that another process has yet to make; returns whether it is."""
        pause = self._files.pause(request)
        if not pause:
            return False
        request.until = self._state.time.elapsed + pause
        request.task.stop(HeldCall(request))
        request.task.started = True
        return True

    def _hold_for_descriptors(self, request: Request) -> bool:
        """Hold a wait for descriptors; returns whether it is held.

        Which of several are ready depends on how fast others are, until those have stopped.  A thread that has looked
        often enough looks less often: beside others that sleep for an hour, workers without work would take up most of
        the run.
        """
        task = request.task
        length = 0 if task.makes_group else descriptor_waits.length(request)
        if not length:
            return False
        is_ready = descriptor_waits.news(request) is not None
        if is_ready and descriptor_waits.is_for_one(request):
            return False
        if not is_ready:
            self._state.ledger.untried("an earlier timeout of a wait for a descriptor")
        request.until = self._state.time.elapsed + (length << min(max(0, task.timeouts - _IDLE), _LONGEST))
        task.stop(HeldCall(request))
        task.started, task.inside = True, None
        return True

    def _length(self, request: Request, limit: bytes) -> int:
        """Return the nanoseconds that the thread would wait.

        What Python's own functions are asked for is announced.  Else it is rounded up: how far off a point in time is
        depends on how fast the thread was, or how often it has looked at the clock.
        """
        task, operation = request.task, request.arguments[1]
        seconds, rest = struct.unpack("qq", limit)
        length: int = seconds * 1_000_000_000 + rest
        if operation & FUTEX_COMMAND != FUTEX_WAIT:  # until a point in time
            if operation & _REALTIME:
                length -= self._state.time.read(task.rank.number, task.name)
            else:
                length -= request.received
        announced = task.limit
        slack = max(announced // 2, _SLOWEST)
        return announced if announced - slack < length <= announced else round_up(max(0, length))

    def end_some(self) -> bool:
        """End the first wait that is over without a choice of ours; returns whether there was one.

        In a rank with one thread only a thread of a library can end a wait, and does so whatever thread goes first.
        """
        waiting = [task for task in self._state.stopped_tasks() if task.waits and not task.rank.past.shared]
        for task in [*self._state.held_tasks(), *waiting]:
            request = task.wait or task.request
            if request is not None and (result := _news(request)) is not None:
                self._end(task, request, result)
                return True
        return False

    def run_out(self, before: float) -> bool:
        """End one wait for descriptors or a file, or refuse one connect, if its time is over ``before`` then.

        Returns whether there was one.  The kernel waits for another program, whose clocks are real.
        """
        first = min(self._state.held_tasks(), key=_end_of, default=None)
        if first is None or first.wait is None or first.wait.until >= before:
            return False
        if not _connects(first.wait):
            if before == math.inf:
                self._count_silence()
            self._end(first, first.wait, self._timed_out(first.wait))
            return True
        if any(key.startswith("TCPStore/") for key in self._state.crew.store):
            self._state.ledger.hole("a refused connect, in a run whose TCPStore only its ranks can reach")
        self._end(first, first.wait, CARRY_ON)
        return True

    def release(self) -> None:
        """Let all waits for descriptors be made, where a signal that asks for the thread's stack reaches it."""
        for task in self._state.held_tasks():
            if task.wait is not None and task.selects:
                answer(task.wait, CARRY_ON, self._state.crew.files)

    def _timed_out(self, request: Request) -> Answer:
        """Return how a wait for descriptors, or for a file, ends when its time is over."""
        if _selects(request) and request.task.process.is_another_program:
            return CARRY_ON
        self._state.time.tick(request.until)
        if not _selects(request):
            return CARRY_ON
        request.task.timeouts += 1
        return descriptor_waits.time_out(request)

    def _count_silence(self) -> None:
        """Raise `Over` if waits for descriptors or files time out again and again, and nothing else is to come."""
        events, held = len(self._state.trace), len(self._state.held_tasks())
        self._silent = self._silent + 1 if events == self._events else 1
        self._events = events
        if self._silent > _MOST * held:
            raise Over(f"{_MOST} waits timed out in a row and nothing else happened; a polling loop?")

    def _time_out(self, request: Request) -> Answer:
        self._state.time.tick(request.until)
        with suppress(OSError):
            self._run_out[request.task] = _limit(request)
        return Answer(errno=errno.ETIMEDOUT)

    def perform(self, request: Request, next_: Next) -> Answer:
        """End a wait that is an op: its word has changed, or its time is over.

        Raises `Over` if such waits run out and nothing else happens any more.
        """
        if request.call.family != "wait":
            return next_(request)
        if (result := _news(request)) is not None:
            return result
        last = self._state.trace.last if self._state.trace else None
        self._over = self._over + 1 if isinstance(last, Op) and last.call == "wait" else 0
        if self._over == _MOST:
            raise Over(f"{_MOST} waits timed out in a row and nothing else happened; a polling loop?")
        return self._time_out(request)

    def _end(self, task: Task, request: Request, result: Answer) -> None:
        rank = task.rank
        if rank.last is not None:
            join(task.clock, rank.last.clock)
        join(task.clock, self._state.cause)
        rank.last = task
        answer(request, result, self._state.crew.files)


def may_be_held(rank: Rank, tid: int, family: str) -> bool:
    """Return whether a thread that makes such a call is one of the program's own, outside of collectives.

    One that has not shown itself yet may be C++'s: a pool that starts a thread when some milliseconds have passed would
    do so in the middle of anything.  Those of gloo, for groups that are made on the way, have names of PyTorch's.
    """
    task = rank.tasks.get(tid)
    if task is not None and task.started:
        return task.inside is None or family == "connect"
    return tid not in rank.background and not proc.name(tid).startswith(_PYTORCH)


def _limit(request: Request) -> bytes:
    """Return the ``struct timespec`` of a wait, in the thread's memory."""
    return request.task.process.memory.read(request.arguments[3], 16)


def _connects(request: Request) -> bool:
    return request.call.family == "connect"


def _selects(request: Request) -> bool:
    return request.call.family == "select"


def _end_of(task: Task) -> int:
    assert task.wait is not None
    return task.wait.until


def has_news(request: Request) -> bool:
    """Return whether a wait ends now, before its time."""
    return _news(request) is not None


def _news(request: Request) -> Answer | None:
    """Return how a wait ends now; None if it continues."""
    if _connects(request):
        return CARRY_ON if connections.is_awaited(request) else None
    if _selects(request):
        return descriptor_waits.news(request)
    if request.call.family not in HELD:
        return missing_files.news(request)
    error = memory_waits.news(request.task, memory_waits.of(request))
    return Answer(errno=error) if error else None
