"""Take in what ranks do: a stopped call passes, is answered at once, or becomes the thread's pending op."""

from __future__ import annotations

import errno
import time
from dataclasses import replace

from racecheck.kernel import libc, proc, syscalls
from racecheck.kernel.seccomp import HYPERCALL, Notification
from racecheck.kernel.signature import Call, Treatment
from racecheck.kernel.syscalls import number
from racecheck.model.hypercalls import AtOnce, Left, Submitted
from racecheck.processes import stacks
from racecheck.supervisor.calls import bookkeeping, signals, tsc_frequency
from racecheck.supervisor.calls.perform import CARRY_ON, Answer
from racecheck.supervisor.effects.timers import Timers
from racecheck.supervisor.files.open_files import OpenFile
from racecheck.supervisor.finish.answers import answer, answer_call, reply
from racecheck.supervisor.order.gil import Gil
from racecheck.supervisor.order.hypercalls import answer_at_once
from racecheck.supervisor.order.memory_waits import MemoryWaits, is_unlimited
from racecheck.supervisor.order.timed_waits import HELD, Limits, may_be_held
from racecheck.supervisor.run.boot import hypercall
from racecheck.supervisor.run.state import State
from racecheck.supervisor.threads.decoder import Unreachable
from racecheck.supervisor.threads.tasks import Rank, Request, Task

_SPIN = 100


class Intake:
    """Receives the calls of a run's ranks.  ``asked`` counts how often one has asked for the time."""

    def __init__(self, state: State, limits: Limits, gil: Gil, memory_waits: MemoryWaits, timers: Timers) -> None:
        self._state, self._limits, self._timers = state, limits, timers
        self._gil, self._memory_waits = gil, memory_waits
        self._calls = syscalls.calls(libc.MACHINE)
        self.asked = 0

    def take(self, rank: Rank) -> None:
        """Receive a waiting call of a rank."""
        assert rank.listener is not None
        if self._state.stacks and not rank.replaced:
            self._look_ahead(rank)
        notification = rank.listener.receive()
        if notification is None or notification.thread in rank.dropped:
            return
        rank.wake()
        if notification.number == HYPERCALL:
            self._hypercalled(rank, notification)
        else:
            self._called(rank, notification)
        if rank.is_quiet:
            rank.running = False

    def _look_ahead(self, rank: Rank) -> None:
        """Decode the waiting call and, if it matters, fetch its stack.

        Of several threads it cannot be told whose it is: so all are looked at that are stopped and not received yet.
        (Not gloo's, which have no stack: one of these must not keep us from waiting for the program's.)
        """
        tasks = [task for task in rank.tasks.values() if task.process.is_main and not task.is_held]
        own = [task for task in tasks if task.tid not in rank.background]
        for _ in range(_SPIN):  # it may still be on its way to sleep
            found = [(task, call) for task in own if (call := proc.stopped_call(rank.pid, task.tid)) is not None]
            if found or not rank.single:
                break
        for task, call in found:
            row = self._calls.get(call[0])
            known = rank.ahead.get(task.tid)
            if row is None or row.family in bookkeeping.NEVER_OPS:
                continue
            if self._gil.is_wanted(row, call[1]) or is_unlimited(row, call[1]):
                continue
            if known is not None:
                if (known.call, known.arguments) == (row, call[1]):
                    continue
                known.close()
            request = self._decode_ahead(task, row, call[1])
            if request is not None:
                rank.ahead[task.tid] = request

    def _decode_ahead(self, task: Task, row: Call, arguments: tuple[int, ...]) -> Request | None:
        try:
            request = self._state.decoder.decode(task, row, arguments)
        except (OSError, Unreachable):
            return None
        seen = request.touches and not bookkeeping.moves_alone(request)
        if row.family in HELD:
            seen = may_be_held(task.rank, task.tid, row.family)
        if seen or row.family in bookkeeping.WITHOUT_PLACE:
            rank, call = task.rank, number(row.name, libc.MACHINE) or -1
            assert rank.listener is not None
            found = stacks.capture(rank.pid, task.tid, rank.stack_pipe, rank.listener.descriptor, call)
            request.op = replace(request.op, stack=found)
        return request

    def _called(self, rank: Rank, notification: Notification) -> None:
        row = None if notification.foreign else self._calls.get(notification.number)
        if row is None:
            self._state.ledger.hole(f"an unknown system call, number {notification.number}")
            answer_call(rank, notification.id)
            return
        if self._gil.stop(rank, row, notification):
            return
        if is_unlimited(row, notification.arguments):
            self._wait_for_memory(rank, notification)
            return
        if row.family in HELD and not may_be_held(rank, notification.thread, row.family):
            answer_call(rank, notification.id)
            return
        task = rank.task(notification.thread)
        self._check_deadline(task)
        if row.family == "clock":
            self._tell_time(task, row, notification)
            return
        if task.process.has_executed:
            task.process.has_executed, task.process.is_foreign = False, True
            self._give_back(task.process.descriptors.executed())
        request = self._decode(task, row, notification, rank.ahead.pop(task.tid, None))
        if request is None:
            answer_call(rank, notification.id)
            return
        request.id, request.received = notification.id, time.monotonic_ns()
        self._state.channels.ask(request)
        if row.family in HELD:
            self._hold(request)
        else:
            self._dispatch(request)

    def _wait_for_memory(self, rank: Rank, notification: Notification) -> None:
        if notification.thread in rank.tasks:
            self._check_deadline(rank.tasks[notification.thread])
        if not self._memory_waits.stop(rank, notification):
            answer_call(rank, notification.id)

    def _give_back(self, files: list[OpenFile]) -> None:
        """Close the files that an exec has closed; their locks are free, and no op shows it."""
        for file in files:
            if self._state.locks.of(file):
                self._state.ledger.untried("other orders of an exec that releases a lock and an op that waits for it")
            self._state.locks.release(file)

    def _hold(self, request: Request) -> None:
        try:
            held = self._limits.hold(request)
        except OSError as error:
            held = False
            if error.errno in {errno.EPERM, errno.EACCES}:
                self._state.ledger.hole("a connect: pidfd_getfd is not permitted")
        if not held:
            answer(request, CARRY_ON, self._state.crew.files)

    def _tell_time(self, task: Task, row: Call, notification: Notification) -> None:
        self.asked += 1
        self._state.livelock.reset()
        try:
            result = Answer(value=self._state.time.answer(task, row, notification.arguments))
        except OSError:
            result = CARRY_ON
        answer_call(task.rank, notification.id, result)

    def _decode(self, task: Task, row: Call, notification: Notification, ahead: Request | None) -> Request | None:
        """Return a request; None for a call that the kernel must perform: unreadable memory, or an unshareable file."""
        if ahead is not None:
            if (ahead.call, ahead.arguments) == (row, notification.arguments):
                return ahead
            ahead.close()
        try:
            return self._state.decoder.decode(task, row, notification.arguments)
        except OSError:
            return None
        except Unreachable:
            self._state.ledger.hole(f"{row.name} on a watched file: pidfd_getfd is not permitted")
            return None

    def _dispatch(self, request: Request) -> None:
        state, task = self._state, request.task
        task.inside = None
        state.unseen.ask(request)
        self._check_credentials(request)
        result = self._timers.arm(request) if request.call.family == "timer" else None
        if request.call.family == "kill" and signals.leaves_run(request):
            state.ledger.hole(signals.LEAVES)
            result = Answer(errno=errno.EPERM)
        if request.call.treatment is Treatment.REFUSE:
            state.ledger.refused(request)
            result = Answer(errno=getattr(errno, request.call.errno))
        if result is None:
            result = bookkeeping.at_once(request, state.ledger, state.randomness(task.name))
        if result is None and not request.touches and request.call.family not in bookkeeping.WITHOUT_PLACE:
            state.ledger.passed_by(request)
            result = tsc_frequency.tell(request) if tsc_frequency.is_asked(request) else CARRY_ON
        if result is not None:
            answer(request, result, state.crew.files)
            return
        state.ledger.kept(request)
        task.request = request
        task.started = task.fresh = True

    def _check_credentials(self, request: Request) -> None:
        """Note an op of a thread whose credentials are not those that its rank began with."""
        task, rank = request.task, request.task.rank
        if request.call.family == "credentials":
            rank.credentials = rank.credentials or proc.credentials(task.tid)
        elif request.touches and rank.credentials and proc.credentials(task.tid) != rank.credentials:
            self._state.ledger.hole("an op after a change of user, group or capabilities")

    def _check_deadline(self, task: Task) -> None:
        """Note how a thread's wait ended: by time or not."""
        if task.deadline and time.monotonic_ns() >= task.deadline:
            self._state.ledger.hole("a wait with a real-time limit")
        task.deadline = 0

    def _hypercalled(self, rank: Rank, notification: Notification) -> None:
        task = rank.task(notification.thread)
        self._check_deadline(task)
        task.inside = None
        stop = task.hypercall = hypercall(rank, notification)
        task.started = task.fresh = True
        if isinstance(stop.call, AtOnce):
            reply(task, answer_at_once(self._state, task, stop.call))
        task.hiring &= not isinstance(stop.call, Submitted)
        task.leaves &= not isinstance(stop.call, Left)
