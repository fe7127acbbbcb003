"""Taking in what ranks do: a stopped call is let pass, answered at once, or becomes the thread's pending op."""

from __future__ import annotations

import errno
from dataclasses import replace

from racecheck.kernel import libc, proc, syscalls
from racecheck.kernel.seccomp import ANNOUNCE, Notification
from racecheck.kernel.signature import Call, Treatment
from racecheck.model import Op, Place
from racecheck.world import bookkeeping, stacks
from racecheck.world.answers import answer
from racecheck.world.calls import Request, Unreachable
from racecheck.world.crew import announcement
from racecheck.world.perform import CARRY_ON, Answer
from racecheck.world.state import State
from racecheck.world.store import RACING
from racecheck.world.tasks import Rank, Task, frames

_SPIN = 100


class Intake:
    """Receives the calls of a run's ranks."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._calls = syscalls.calls(libc.MACHINE)

    def take(self, rank: Rank) -> None:
        """A call of a rank waits to be received."""
        assert rank.listener is not None
        ahead = self._look_ahead(rank) if self._state.stacks and not rank.replaced else None
        notification = rank.listener.receive()
        if notification is None:
            return
        rank.running, rank.asleep = True, False
        if notification.number == ANNOUNCE:
            self._announced(rank, notification)
        else:
            self._called(rank, notification, ahead)
        if rank.is_quiet:
            rank.running = False

    def _look_ahead(self, rank: Rank) -> Request | None:
        """Decode the main thread's call before it is received, and if it is of our concern fetch its stack."""
        for _ in range(_SPIN):  # it may still be on its way to sleep
            call = proc.stopped_call(rank.pid, rank.pid)
            if call is not None:
                break
        else:
            return None
        row = self._calls.get(call[0])
        if row is None or row.family in bookkeeping.NEVER_OPS:
            return None
        try:
            request = self._state.decoder.decode(rank.main, row, call[1])
        except (OSError, Unreachable):
            return None
        if request.touches or row.family in bookkeeping.WITHOUT_PLACE:
            assert rank.listener is not None
            found = stacks.capture(rank.pid, rank.pid, rank.stack_pipe, rank.listener.descriptor)
            request.op = replace(request.op, stack=found)
        return request

    def _called(self, rank: Rank, notification: Notification, ahead: Request | None) -> None:
        assert rank.listener is not None
        row = None if notification.foreign else self._calls.get(notification.number)
        if row is None:
            self._state.ledger.hole(f"an unknown system call, number {notification.number}")
            rank.listener.carry_on(notification.id)
            return
        task = rank.task(notification.thread)
        if task.process.has_executed:
            task.process.has_executed = False
            task.process.descriptors.executed()
        request = self._decode(task, row, notification, ahead)
        if request is None:
            rank.listener.carry_on(notification.id)
            return
        request.id = notification.id
        self._dispatch(request)

    def _decode(self, task: Task, row: Call, notification: Notification, ahead: Request | None) -> Request | None:
        """None for a call that has to go on as it is: its memory cannot be read, or its file not be shared."""
        if ahead is not None:
            if (ahead.call, ahead.arguments, ahead.task) == (row, notification.arguments, task):
                return ahead
            ahead.close()
        try:
            return self._state.decoder.decode(task, row, notification.arguments)
        except OSError:
            return None
        except Unreachable:
            self._state.ledger.hole(f"{row.name} on a watched file that cannot be shared: pidfd_getfd is forbidden")
            return None

    def _dispatch(self, request: Request) -> None:
        state, task, rank = self._state, request.task, request.task.rank
        task.inside = None
        result = bookkeeping.at_once(request, state.ledger, state.randomness[rank.number])
        if result is None and request.call.treatment is Treatment.REFUSE:
            state.ledger.refused(request)
            result = Answer(errno=getattr(errno, request.call.errno))
        if result is None and not request.touches and request.call.family not in bookkeeping.WITHOUT_PLACE:
            state.ledger.passed_by(request)
            result = CARRY_ON
        if result is not None:
            answer(request, result, state.crew.files)
            return
        if task.process.is_main and task.tid != rank.pid:
            state.ledger.hole(f"a second thread of rank {rank.number} made calls below the watched directory")
        state.ledger.kept(request)
        task.request = request

    def _announced(self, rank: Rank, notification: Notification) -> None:
        task = rank.task(notification.thread)
        task.inside = None
        task.announcement = announcement(rank, notification)
        message = task.announcement.message
        if message["is"] == "test":
            task.announcement.op = self._announced_op(task, "test", "is_completed", ())
        elif message["is"] == "store" and message["do"] in RACING:
            places = tuple(Place(f"store:{key}", 0, str(key), 0, "") for key in message["arguments"][:1])
            task.announcement.op = self._announced_op(task, "store", message["do"], places)

    def _announced_op(self, task: Task, family: str, name: str, places: tuple[Place, ...]) -> Op:
        assert task.announcement is not None
        stack = frames(task.announcement.message.get("stack"))
        return Op(task.rank.number, task.name, family, name, places, stack=stack)
