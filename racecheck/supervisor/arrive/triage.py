"""Decide about a call that has arrived: each sieve answers it, holds its thread, or passes it on.

A call that no sieve keeps is the op that its thread is stopped at.
"""

from __future__ import annotations

import enum
import errno
import time
from collections.abc import Callable
from dataclasses import dataclass

from racecheck.kernel import proc
from racecheck.kernel.seccomp import Notification
from racecheck.kernel.signature import Call, Treatment
from racecheck.supervisor.act.timers import Timers
from racecheck.supervisor.arrive import tsc_frequency
from racecheck.supervisor.calls import own_state, signals
from racecheck.supervisor.calls.perform import CARRY_ON, Answer
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.decoder import Unreachable
from racecheck.supervisor.state.tasks import Rank, Request, Task
from racecheck.supervisor.wait.gil import Gil
from racecheck.supervisor.wait.memory_waits import MemoryWaits, is_unlimited
from racecheck.supervisor.wait.timed_waits import HELD, TimedWaits, may_be_held


class Held(enum.Enum):
    """The thread stays stopped without an op, or is stopped at one already: it is answered later."""

    HELD = enum.auto()


HELD_BACK = Held.HELD


@dataclass(slots=True)
class Arrival:
    """A call that has just been received, with its ``row`` of the table, and its ``request`` once it is decoded."""

    rank: Rank
    notification: Notification
    row: Call
    request: Request | None = None

    @property
    def arguments(self) -> tuple[int, ...]:
        return self.notification.arguments

    @property
    def task(self) -> Task:
        """The calling thread; a new one is entered and named."""
        return self.rank.task(self.notification.thread)


Sieve = Callable[[Arrival], Answer | Held | None]
RequestSieve = Callable[[Request], Answer | Held | None]


class Triage:
    """The sieves of a controlled run, in their order.  ``asked`` counts how often a thread has asked for the time."""

    def __init__(
        self, state: RunState, limits: TimedWaits, gil: Gil, memory_waits: MemoryWaits, timers: Timers
    ) -> None:
        self._state, self._limits, self._timers = state, limits, timers
        self._gil, self._memory_waits = gil, memory_waits
        self.asked = 0
        self._before: tuple[Sieve, ...] = (
            self._gil_wait, self._memory_wait, self._not_own, self._clock, self._after_exec, self._unreadable,
        )  # fmt: skip
        self._after: tuple[RequestSieve, ...] = (
            self._timed, self._noted, self._timer, self._leaves_run, self._refused, self._own_state, self._outside,
        )  # fmt: skip

    def __call__(self, arrival: Arrival) -> Answer | Held | None:
        """Return the answer to a call that needs no turn, or that its thread is held; None if it becomes an op."""
        for sieve in self._before:
            if (found := sieve(arrival)) is not None:
                return found
        assert arrival.request is not None
        for later in self._after:
            if (found := later(arrival.request)) is not None:
                return found
        return None

    # Before the call is decoded.

    def _gil_wait(self, arrival: Arrival) -> Held | None:
        return HELD_BACK if self._gil.stop(arrival.rank, arrival.row, arrival.notification) else None

    def _memory_wait(self, arrival: Arrival) -> Answer | Held | None:
        if not is_unlimited(arrival.row, arrival.arguments):
            return None
        rank, notification = arrival.rank, arrival.notification
        if notification.thread in rank.tasks:
            self._state.check_deadline(rank.tasks[notification.thread])
        return HELD_BACK if self._memory_waits.stop(rank, notification) else CARRY_ON

    def _not_own(self, arrival: Arrival) -> Answer | None:
        """Let the waits of threads pass that are gloo's, or inside a collective."""
        family = arrival.row.family
        if family in HELD and not may_be_held(arrival.rank, arrival.notification.thread, family):
            return CARRY_ON
        self._state.check_deadline(arrival.task)
        if family != "select":
            arrival.task.timeouts = 0
        return None

    def _clock(self, arrival: Arrival) -> Answer | None:
        if arrival.row.family != "clock":
            return None
        self.asked += 1
        self._state.livelock.reset()
        try:
            return Answer(value=self._state.time.answer(arrival.task, arrival.row, arrival.arguments))
        except OSError:
            return CARRY_ON

    def _after_exec(self, arrival: Arrival) -> None:
        """Close the files that an exec has closed; their locks are free, and no op shows it.

        The other threads of its process have ended, and their stops with them; the caller has the number of the first.
        """
        process = arrival.task.process
        if not process.has_executed:
            return
        process.has_executed, process.is_foreign = False, True
        for task in arrival.rank.tasks.values():
            if task.process is process:
                task.lose()
        for file in process.descriptors.executed():
            if self._state.locks.of(file):
                self._state.ledger.untried("other orders of an exec that releases a lock and an op that waits for it")
            self._state.locks.release(file)

    def _unreadable(self, arrival: Arrival) -> Answer | None:
        """Decode the call.  The kernel performs it if its memory cannot be read, or its file cannot be shared."""
        task, ahead = arrival.task, arrival.rank.ahead.pop(arrival.notification.thread, None)
        if ahead is not None and not ahead.is_of(arrival.row, arrival.arguments):
            ahead.close()
            ahead = None
        try:
            request = ahead or self._state.decoder.decode(task, arrival.row, arrival.arguments)
        except OSError:
            return CARRY_ON
        except Unreachable:
            self._state.ledger.hole(f"{arrival.row.name} on a watched file: pidfd_getfd is not permitted")
            return CARRY_ON
        request.id, request.received = arrival.notification.id, time.monotonic_ns()
        arrival.request = request
        return None

    # Then.

    def _timed(self, request: Request) -> Answer | Held | None:
        """Hold a wait with a time limit, or a connect."""
        self._state.channels.ask(request)
        if request.call.family not in HELD:
            return None
        try:
            return HELD_BACK if self._limits.hold(request) else CARRY_ON
        except OSError as error:
            if request.call.family == "connect" and error.errno in {errno.EPERM, errno.EACCES}:
                self._state.ledger.hole("a connect: pidfd_getfd is not permitted")
            return CARRY_ON

    def _noted(self, request: Request) -> None:
        """Note effects that no op shows, and an op after a change of credentials."""
        task, rank = request.task, request.task.rank
        task.inside = None
        self._state.unseen.ask(request)
        if request.call.family == "credentials":
            rank.past.credentials = rank.past.credentials or proc.credentials(task.tid)
        elif request.touches and rank.past.credentials and proc.credentials(task.tid) != rank.past.credentials:
            self._state.ledger.hole("an op after a change of user, group or capabilities")

    def _timer(self, request: Request) -> Answer | None:
        return self._timers.arm(request) if request.call.family == "timer" else None

    def _leaves_run(self, request: Request) -> Answer | None:
        if request.call.family != "kill" or not signals.leaves_run(request):
            return None
        self._state.ledger.hole(signals.LEAVES)
        return Answer(errno=errno.EPERM)

    def _refused(self, request: Request) -> Answer | None:
        if request.call.treatment is not Treatment.REFUSE:
            return None
        self._state.ledger.refused(request)
        return Answer(errno=getattr(errno, request.call.errno))

    def _own_state(self, request: Request) -> Answer | None:
        """Answer a call that no other thread can notice."""
        return own_state.at_once(request, self._state.ledger, self._state.randomness(request.task.name))

    def _outside(self, request: Request) -> Answer | Held | None:
        """Let a call pass that is not about the watched directories."""
        if request.touches or request.call.family in own_state.WITHOUT_PLACE:
            self._state.ledger.kept(request)
            return None
        self._state.ledger.passed_by(request)
        if self._limits.hold_for_file(request):
            return HELD_BACK
        return tsc_frequency.tell(request) if tsc_frequency.is_asked(request) else CARRY_ON
