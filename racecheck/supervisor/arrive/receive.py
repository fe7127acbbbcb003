"""Receive the calls of ranks."""

from __future__ import annotations

from racecheck.kernel import libc, syscalls
from racecheck.kernel.seccomp import HYPERCALL, Notification
from racecheck.model.hypercalls import AtOnce, Left, Submitted
from racecheck.supervisor.arrive.hypercalls import answer_at_once
from racecheck.supervisor.arrive.look_ahead import LookAhead
from racecheck.supervisor.arrive.triage import Arrival, Held, Triage
from racecheck.supervisor.finish.answers import answer, answer_call, reply
from racecheck.supervisor.run.boot import hypercall
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.rank_parts import Phase
from racecheck.supervisor.state.tasks import Rank
from racecheck.supervisor.wait.gil import Gil


class Receiver:
    """Receives the calls of a run's ranks; ``triage`` decides about each."""

    def __init__(self, state: RunState, gil: Gil, triage: Triage) -> None:
        self._state, self.triage = state, triage
        self._calls = syscalls.calls(libc.MACHINE)
        self._ahead = LookAhead(state, gil, self._calls)

    def take(self, rank: Rank) -> None:
        """Receive a waiting call of a rank."""
        assert rank.wire.listener is not None
        if self._state.stacks and not rank.past.replaced:
            self._ahead.look(rank)
        notification = rank.wire.listener.receive()
        if notification is None or notification.thread in rank.dropped:
            return
        rank.wake()
        if notification.number == HYPERCALL:
            self._hypercalled(rank, notification)
        else:
            self._called(rank, notification)
        if rank.is_quiet:
            rank.phase = Phase.STILL

    def _called(self, rank: Rank, notification: Notification) -> None:
        row = None if notification.foreign else self._calls.get(notification.number)
        if row is None:
            self._state.ledger.hole(f"an unknown system call, number {notification.number}")
            answer_call(rank, notification.id)
            return
        arrival = Arrival(rank, notification, row)
        found, request = self.triage(arrival), arrival.request
        if isinstance(found, Held):
            return
        if found is None:
            assert request is not None
            request.task.stop(request)
            request.task.started = request.task.fresh = True
        elif request is None:
            answer_call(rank, notification.id, found)
        else:
            answer(request, found, self._state.crew.files)

    def _hypercalled(self, rank: Rank, notification: Notification) -> None:
        task = rank.task(notification.thread)
        self._state.check_deadline(task)
        task.inside = None
        stop = hypercall(rank, notification)
        task.stop(stop)
        task.started = task.fresh = True
        if isinstance(stop.call, AtOnce):
            reply(task, answer_at_once(self._state, task, stop.call))
        task.hiring &= not isinstance(stop.call, Submitted)
        task.leaves &= not isinstance(stop.call, Left)
