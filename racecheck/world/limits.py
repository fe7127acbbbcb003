"""Waits that threads are held in: those with a time limit (``Event.wait(1)``), in virtual time, and connecting.

All such waits of user space come down to futex(2): wait until a word in memory is no longer what it was, or the time is
over.  A thread of the program's own that calls it is held, as if it were late to call: then its word is looked at
whenever the world is quiet, and once it has changed the call ends as it would have, with EAGAIN.  Its time is over only
where nothing else can go on, or all others sleep for longer: virtual time passes by itself then.

Who connects to somebody on this machine waits until that one listens (`connecting`); it is refused where nothing else
can go on, or others only wait for long.

Threads of gloo's and those inside a collective are let pass, and so is who wants the GIL (`seccomp`).
"""

from __future__ import annotations

import errno
import struct
import sys
from contextlib import suppress

from racecheck.kernel import proc
from racecheck.kernel.seccomp import FUTEX_COMMAND, FUTEX_WAIT
from racecheck.world import connecting
from racecheck.world.answers import answer
from racecheck.world.bookkeeping import round_up
from racecheck.world.calls import Request
from racecheck.world.perform import CARRY_ON, Answer
from racecheck.world.state import Over, State
from racecheck.world.tasks import Rank, Task, join

HELD = frozenset({"wait", "connect"})
"""The families of calls that a thread may be held in."""
_MOST = 500
"""So many limits in a row, and nothing else done: who loops like that may wait for what never comes."""
_PATIENCE = 10 * 10**9
"""Nanoseconds of virtual time that others may take before somebody is refused who connects."""
_REALTIME = 0x100
_PYTORCH = "pt_"


class Limits:
    """The threads of a run that are held in such waits."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._over, self._events = 0, 0
        self._run_out: dict[Task, bytes] = {}

    def hold(self, request: Request) -> bool:
        """A thread calls futex(2) or connect(2); whether it is held.  Raises `OSError` where its memory cannot be read.

        C++ asks the clock whether the time is really over, which goes on by itself, and waits again: then in real time.
        """
        task = request.task
        if _connects(request):
            task.rank.connects = True
            if connecting.is_here(request):
                self._state.ledger.note("connections: made one at a time, once somebody listens if anybody does")
                request.until = self._state.time.elapsed + _PATIENCE
                task.wait, task.started, task.inside = request, True, None
            return task.wait is not None
        limit = _limit(request)
        if request.arguments[1] & FUTEX_COMMAND != FUTEX_WAIT and self._run_out.get(task) == limit:
            return False
        request.until = self._state.time.elapsed + self._length(request, limit)
        task.wait, task.limit, task.started = request, 0, True
        return True

    def _length(self, request: Request, limit: bytes) -> int:
        """Nanoseconds that the thread would wait.

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
        return announced if announced // 2 < length <= announced else round_up(max(0, length))

    def end_some(self) -> bool:
        """Let the first one go on whose wait is over, before its time; whether there was one."""
        for task in self._state.held_tasks():
            if (result := _news(task)) is not None:
                self._end(task, result)
                return True
        return False

    def run_out(self, before: float) -> bool:
        """Let the time of one be over, if that is ``before`` then; whether it was.  (Being refused takes no time.)

        Raises `Over` where nothing else happens any more.
        """
        if len(self._state.trace) > self._events:
            self._over, self._events = 0, len(self._state.trace)
        first = min(self._state.held_tasks(), key=_end_of, default=None)
        if first is None or first.wait is None or first.wait.until >= before:
            return False
        if self._over == _MOST:
            raise Over(f"{_MOST} waits with a time limit ran out in a row, and nothing else happened (a loop?)")
        self._over += 1
        if _connects(first.wait):
            self._end(first, CARRY_ON)
            return True
        self._state.time.tick(first.wait.until)
        self._state.ledger.note("waits with a time limit: it runs out only where nothing else can go on")
        join(first.clock, *(task.clock for rank in self._state.ranks for task in rank.tasks.values()))
        with suppress(OSError):
            self._run_out[first] = _limit(first.wait)
        self._end(first, Answer(errno=errno.ETIMEDOUT))
        return True

    def _end(self, task: Task, result: Answer) -> None:
        request, rank = task.wait, task.rank
        assert request is not None
        if rank.last is not None:
            join(task.clock, rank.last.clock)
        join(task.clock, self._state.cause)
        task.wait, rank.last, rank.running = None, task, True
        answer(request, result, self._state.crew.files)


def may_be_held(rank: Rank, tid: int, family: str) -> bool:
    """Whether a thread that comes to such a call is one of the program's own, outside of collectives (in which none
    connects: PyTorch's own threads do so for it).

    One that has not shown itself yet may be C++'s: a pool that starts a thread when some milliseconds have passed would
    do so in the middle of anything.  Those of gloo, for groups that are made on the way, have names of PyTorch's.
    """
    task = rank.tasks.get(tid)
    if task is not None and task.started:
        return task.inside is None or family == "connect"
    return tid not in rank.background and not proc.name(tid).startswith(_PYTORCH)


def _limit(request: Request) -> bytes:
    """The ``struct timespec`` of a wait, in the thread's memory."""
    return request.task.process.memory.read(request.arguments[3], 16)


def _connects(request: Request) -> bool:
    return request.call.family == "connect"


def _end_of(task: Task) -> int:
    assert task.wait is not None
    return task.wait.until


def _news(task: Task) -> Answer | None:
    """With what the wait ends now; None if it goes on."""
    assert task.wait is not None
    if _connects(task.wait):
        return CARRY_ON if connecting.is_awaited(task.wait) else None
    word, _, expected = task.wait.arguments[:3]
    try:
        now = int.from_bytes(task.process.memory.read(word, 4), sys.byteorder)
    except OSError:
        return Answer(errno=errno.EFAULT)
    if now != expected & 0xFFFFFFFF:
        return Answer(errno=errno.EAGAIN)
    return Answer(errno=errno.EINTR) if proc.has_signal(task.process.pid, task.tid) else None
