"""Faults in free mode: ranks run at full speed, and only the calls that a fault is about are delayed.

The filter stops the same calls as in a controlled world.  All are let go at once, by the kernel; but files are opened
for the ranks, whose descriptors then have numbers that the filter sees.  Delays take real time.
"""

from __future__ import annotations

import errno
import mmap
import time
from collections.abc import Callable

from racecheck import storage
from racecheck.kernel import libc, syscalls
from racecheck.kernel.seccomp import HYPERCALL, Notification
from racecheck.kernel.signature import Treatment
from racecheck.model.nouns import Op, Point, Result, World
from racecheck.model.ops import op_kinds
from racecheck.supervisor.act.fault_injection import Injector
from racecheck.supervisor.calls import locks, own_state
from racecheck.supervisor.calls.perform import CARRY_ON, Answer, perform, stacked
from racecheck.supervisor.finish.answers import answer, answer_call
from racecheck.supervisor.run.boot import Members
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.coverage import Ledger
from racecheck.supervisor.state.decoder import Unreachable
from racecheck.supervisor.state.tasks import MOST, Rank, Request
from racecheck.supervisor.state.virtual_time import VirtualTime

_OWN_AFFAIRS = own_state.NEVER_OPS | {"exec", "reap", "sleep", "sync", "wait"}
_MAYBE_AT_ONCE = own_state.NEVER_OPS | {"fcntl", "seek"}


class FreeFaults:
    """The treatment of the calls of a crew's ranks."""

    def __init__(self, crew: Members, world: World, own: str, choose: Callable[[Point], int]) -> None:
        """``own`` is our directory for the output of ranks; ``choose`` answers points of kind "fault"."""
        self._started = time.monotonic_ns()
        page = VirtualTime(mmap.mmap(-1, 8))
        self.state = RunState(crew, world, storage.make(world), choose, Ledger(own), False, page)
        self._injector = Injector(self.state)
        self._act = stacked((self._injector.perform,), self._carry_out)
        self._calls = syscalls.calls(libc.MACHINE)
        self._late: list[Request] = []

    @property
    def fired(self) -> tuple[int, ...]:
        """How often each of the world's faults has happened."""
        return self._injector.fired

    def take(self, rank: Rank) -> None:
        """Receive a waiting call of a rank."""
        assert rank.wire.listener is not None
        notification = rank.wire.listener.receive()
        if notification is None:
            return
        if notification.number == HYPERCALL:
            answer_call(rank, notification.id, Answer(errno=errno.ENOSYS))
            return
        request = self._request(rank, notification)
        if request is None:
            answer_call(rank, notification.id)
        elif request.until > self._tell():
            self._late.append(request)
        else:
            self._go(request)

    def wait(self) -> float:
        """Let calls go whose delay is over, and end ranks whose time is; returns seconds until there is more to do."""
        self._tell()
        self._injector.expire(0)
        for request in [each for each in self._late if each.until <= self._tell()]:
            self._late.remove(request)
            self._go(request)
        due = [each.until for each in self._late]
        return min(0.1, max(0, min(due) - self._tell()) / 1e9) if due else 0.1

    def gone(self, rank: Rank) -> None:
        """Note that a rank has ended, and that its open files are closed."""
        self._late = [each for each in self._late if each.task.rank is not rank]
        for process in rank.processes.values():
            process.descriptors.drop_all()

    def _tell(self) -> int:
        """Return the time since the run began, in nanoseconds."""
        self.state.time.elapsed = time.monotonic_ns() - self._started
        return self.state.time.elapsed

    def _request(self, rank: Rank, notification: Notification) -> Request | None:
        """Return the request that a call makes; None if it does not matter."""
        row = None if notification.foreign else self._calls.get(notification.number)
        if row is None or row.treatment is Treatment.REFUSE:
            return None
        task = rank.task(notification.thread)
        try:
            request = self.state.decoder.decode(task, row, notification.arguments)
        except (OSError, Unreachable):
            return None
        request.id = notification.id
        if not request.touches:
            request.close()
            return None
        if row.family not in _OWN_AFFAIRS:
            self.state.decoder.place(request)
            self._tell()
            self._injector.delay(request)
        return request

    def _go(self, request: Request) -> None:
        task = request.task
        result: Answer | None = None
        if request.call.family in _MAYBE_AT_ONCE:
            result = own_state.at_once(request, self.state.ledger, self.state.randomness(task.name))
        is_op = result is None
        if is_op and request.call.family not in _OWN_AFFAIRS:
            result = self._act(request)
            if result.has_ended:
                request.close()
                return
        result = answer(request, result or CARRY_ON, self.state.crew.files)
        if is_op and self._counts(request.op):
            self._record(request.op, result)

    def _counts(self, op: Op) -> bool:
        """Return whether an op belongs in the trace."""
        return bool(op.fault)

    def _carry_out(self, request: Request) -> Answer:
        """Let the kernel perform it, except for new descriptors and calls that are cut short, which have to be ours."""
        if request.call.family in op_kinds.CLOSES:
            return locks.perform(request, lambda _: CARRY_ON, held=self.state.locks)
        try:
            return perform(request) if request.call.family == "open" or request.most < MOST else CARRY_ON
        except OSError:
            return CARRY_ON

    def _record(self, op: Op, result: Answer) -> None:
        ended = Result(errno=libc.errno_name(result.errno), value=result.value, size=result.size)
        self._tell()
        self.state.trace.add(op, ended, {})
