"""Hypercalls that wait for their turn, or for other ranks: collectives, the store, threads, ends."""

from __future__ import annotations

import math
import signal
from typing import Any

from racecheck.model.hypercalls import (
    AmongThreads,
    AskComplete,
    Declare,
    EndItem,
    Exit,
    Finalise,
    Hypercall,
    Issue,
    SendSignal,
    Shutdown,
    UseStore,
    Wait,
)
from racecheck.model.nouns import Op, Result, Weights
from racecheck.model.vector_clock import Clock, join
from racecheck.supervisor.act.launcher import Launcher
from racecheck.supervisor.agenda import Patience
from racecheck.supervisor.calls import locks
from racecheck.supervisor.finish.answers import reply
from racecheck.supervisor.run.state import Over, RunState
from racecheck.supervisor.state import hypercall_ops
from racecheck.supervisor.state.collectives import CONDITIONS, Instance, Mismatched
from racecheck.supervisor.state.tasks import HypercallStop, Rank, Task

LIMITED = "a process group has a time limit of its own: that it runs out because a rank is slow was not tried"
_USUAL_LIMIT = 1_700 * 10**9
"""Nanoseconds; gloo's own limit is half an hour, after which a rank counts as stuck anyway."""


class Hypercalls:
    """Places and answers the hypercalls of a run."""

    def __init__(self, state: RunState, patience: Patience, launcher: Launcher) -> None:
        self._state, self._patience, self._launcher = state, patience, launcher

    def place(self, task: Task, stop: HypercallStop) -> None:
        call, stop.op = stop.call, hypercall_ops.op_of(task, stacks=self._state.stacks)
        if isinstance(call, Wait):
            self._state.collectives.awaited(task.rank.number, call.ticket)
            limit = self._patience.due(task, 0) if call.gives_up else math.inf
            if limit - self._state.time.elapsed < _USUAL_LIMIT:
                self._state.ledger.note(LIMITED)
        stop.since = self._state.time.elapsed
        if isinstance(call, UseStore | Wait) and call.limit:
            self._state.ledger.untried("an earlier timeout of a wait for a collective or a store key")
        if isinstance(call, Exit):
            op = self._state.ending(
                Op(task.rank.number, task.name, "exit", "exit_group", alone=not task.rank.past.shared), task
            )
            stop.op = op if op.places or task.rank.past.shared else None

    def settle(self, task: Task, call: Hypercall) -> bool:
        """Answer a hypercall, unless it waits for something; returns whether it was answered."""
        match call:
            case Issue():
                self._issue(task, call)
            case Wait():
                return self._wait(task, call)
            case UseStore():
                return self._use_store(task, call)
            case SendSignal(rank=rank, number=number):
                self._launcher.send(self._state.ranks[rank], signal.Signals(number))
                reply(task)
            case AmongThreads() if not isinstance(call, Shutdown):
                self._answer(task, call)
            case _:
                return False
        return True

    def _answer(self, task: Task, call: AmongThreads) -> None:
        """Answer the hypercalls that wait for nothing."""
        match call:
            case Declare(said=said):
                self._state.told.weights.append(Weights(rank=task.rank.number, event=len(self._state.trace), **said))
            case EndItem():
                task.name = task.own_name
            case Finalise():
                self._state.cut_others(task, own=True)
            case Shutdown(group=group) if self._state.world.collectives == "gloo":
                self._state.collectives.shut[task.rank.number, group] = dict(task.clock)
        reply(task)

    def _issue(self, task: Task, call: Issue) -> None:
        try:
            ticket, event = self._state.collectives.issue(task.rank.number, call, task.tick())
        except Mismatched as found:
            self._state.told.mismatch = found.mismatch
            raise Over from None
        instance = self._state.collectives.instance(ticket)
        instance.issued[task.name] = task.clock[task.name]
        if instance.since < 0:
            instance.since = self._state.time.elapsed
        if call.patience:
            instance.deadlines[task.rank.number] = self._state.time.elapsed + call.patience
        if event is not None:
            self._state.trace.add_collective(event)
            if 0 < call.patience < self._state.time.elapsed - instance.since:
                self._state.ledger.untried("a collective that its group gives up on before all ranks arrive")
        reply(task, (ticket, self._returns_early(task, instance, call)))

    def _returns_early(self, task: Task, instance: Instance, call: Issue) -> bool:
        """Return whether a rank continues before its peers come; the claim names the reason."""
        if not instance.returns_early(task.rank.number):
            return False
        self._state.ledger.note(CONDITIONS[self._state.world.collectives])
        is_weakest = self._state.world.collectives == "weakest"
        if is_weakest and not call.python and instance.kind != "broadcast":
            self._state.ledger.untried(f"the early return of a {instance.kind} issued by C++")
        return is_weakest

    def _wait(self, task: Task, call: Wait) -> bool:
        """Let a rank into a collective that will complete, or whose failure it has to receive.

        Over gloo, the end of a rank closes its connections, and the waits of its peers fail.
        """
        instance, number = self._state.collectives.instance(call.ticket), task.rank.number
        if instance.may_return(number):
            join(task.clock, *(instance.clocks[each] for each in instance.before(number)))
            instance.left.setdefault(task.name, task.clock.get(task.name, 0))
        elif left := self._left(instance):
            join(task.clock, *left)
            self._state.ledger.note(CONDITIONS["gloo"])  # which peers hear of it first depends on its algorithm
        else:
            return False
        reply(task)
        task.inside = instance
        task.leaves = instance.may_return(number) and call.leaves
        return True

    def _left(self, instance: Instance) -> list[Clock]:
        """Return the clocks with which ranks have left that do not take part any more: they have closed connections."""
        missing = [self._state.ranks[each] for each in instance.missing]
        ended = [rank.end.clock for rank in missing if rank.gone]
        shut, others = self._state.collectives.shut, [rank.number for rank in missing if not rank.gone]
        return ended + [shut[each, instance.group] for each in others if (each, instance.group) in shut]

    def _use_store(self, task: Task, call: UseStore) -> bool:
        store = self._state.crew.store
        if call.do.startswith("queue_"):
            self._state.ledger.untried("other orders of operations on a store queue")
        if store.missing(call.do, call.arguments):
            return False
        reply(task, store.do(call.do, call.arguments, task.clock))
        return True

    def let_leave(self) -> bool:
        """Let ranks end, and shut process groups down, only when nothing else continues by itself.

        Otherwise a connection would close while a peer is still on its way out of a collective.  The last ones are not
        waited for: their end changes nothing any more.
        """
        if self.all_exit():
            return False
        leaving = [task for task in self._state.stopped_tasks() if task.op is None]
        exiting = [task for task in leaving if isinstance(task.call, Exit) and not self._is_needed(task.rank)]
        closing = [(task, task.call) for task in leaving if isinstance(task.call, Shutdown)]
        for task in exiting:
            task.rank.end.is_due = True
            reply(task)
        for task, call in closing:
            self._answer(task, call)
        return bool(exiting or closing)

    def _is_needed(self, rank: Rank) -> bool:
        """Return whether a peer may yet come to a collective from which the rank has returned early.

        No peer comes if each waits for a rank that is at its end.
        """
        if self._state.world.collectives == "gloo":
            return False
        peers = [self._state.ranks[each] for each in self._state.collectives.peers(rank.number)]
        return not all(peer.is_at_end for peer in peers) and not self._is_stuck()

    def _is_stuck(self) -> bool:
        """Return whether every rank is at its end or waits, and one waits for a rank that is at its end."""
        ended = {rank.number for rank in self._state.ranks if rank.is_at_end}
        waiting = [rank.main.call for rank in self._state.ranks if rank.number not in ended]
        tickets = [each.ticket for each in waiting if isinstance(each, Wait)]
        missing = (self._state.collectives.instance(each).missing for each in tickets)
        return len(tickets) == len(waiting) and not all(ended.isdisjoint(each) for each in missing)

    def all_exit(self) -> bool:
        """Return whether every remaining rank is at its end, which is the end of its threads too."""
        ranks = self._state.ranks
        return all(rank.gone or isinstance(rank.main.call, Exit) for rank in ranks) and not any(
            rank.past.forked for rank in ranks
        )

    def execute(self, task: Task) -> None:
        """Update a thread's clock after its op; the op's own clock is older than the answer."""
        stop, state = task.hypercall, self._state
        assert stop is not None
        assert stop.op is not None
        call = stop.call
        op = self._state.ending(stop.op, task) if isinstance(call, Exit) else stop.op
        op, clock = state.with_keys(op), task.tick()
        value: Any = None
        if isinstance(call, AskComplete):
            instance = state.collectives.instance(call.ticket)
            value = instance.may_return(task.rank.number) or bool(self._left(instance))
        elif isinstance(call, UseStore):
            value = state.crew.store.do(call.do, call.arguments, task.clock)
        ended = Result(value=int(value) if isinstance(value, int) else 0)  # some are bool
        state.trace.add(op, ended, clock)
        match call:
            case Issue():
                self._issue(task, call)
            case Exit():
                locks.end(task.process, state.locks)
                stop.op = None
            case AmongThreads():
                self._answer(task, call)
            case _:
                reply(task, value)
