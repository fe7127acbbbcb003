"""Inject faults: which fault an op meets, and its effect on the op and its rank."""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from dataclasses import replace

from racecheck.faults import Plan, grammar
from racecheck.kernel import proc
from racecheck.model.nouns import Fault, Op, Result
from racecheck.supervisor.act.full_disk import FullDisk, asked
from racecheck.supervisor.calls.perform import ENDED, Answer, Next
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.tasks import MOST, Rank, Request, Task

_ENDS = (*grammar.KILLS, *grammar.TERMS)
_SECOND = 1_000_000_000
_NAMES = {name: number for number, name in errno.errorcode.items()}


class Injector:
    """The faults of a run under way."""

    def __init__(self, state: RunState) -> None:
        self._state, self._plan = state, Plan(state.world)
        self._grace: list[tuple[int, Rank]] = []
        self._disk = FullDisk(state, self._plan)

    @property
    def fired(self) -> tuple[int, ...]:
        """How often each of the world's faults has happened."""
        return self._plan.fired

    def delay(self, request: Request) -> None:
        """Delay a call that was just placed, if a fault makes it slow."""
        fault = self._drawn(request.op, self._plan.slow(request.op))
        if fault is not None:
            request.until = max(request.until, self._state.time.elapsed) + round(fault.amount * _SECOND)
            request.op = replace(request.op, fault=f"slow, {fault.amount:g} s")

    def _drawn(self, op: Op, met: list[tuple[int, bool]]) -> Fault | None:
        """Return the first certain fault; else one of the possible ones, by a choice."""
        number = next((number for number, is_certain in met if is_certain), None)
        if number is None and met:
            faults = [self._state.world.faults[number] for number, _ in met]
            index = self._state.decide("fault", (op, *(replace(op, fault=each.what) for each in faults)))
            number = met[index - 1][0] if index else None
        return None if number is None else self._plan.happens(number)

    def perform(self, request: Request, next_: Next) -> Answer:
        """Draw the fault of a call, and carry it out as far as the fault lets it go."""
        fault = self._drawn(request.op, self._plan.due(request.op))
        if fault is not None and fault.what in _ENDS and not fault.after and self._ends(request, fault):
            return ENDED
        result = self._limited(request, fault, next_)
        return replace(result, kill=fault) if fault is not None and fault.after else result

    def _limited(self, request: Request, fault: Fault | None, next_: Next) -> Answer:
        room = self._disk.room(request)
        freed = self._disk.freed(request)
        fault = None if fault is not None and fault.what in _ENDS else fault
        if fault is None and room is None:
            result = next_(request)
        elif fault is not None and fault.what in _NAMES:
            result = self._fail(request, fault, next_)
        else:
            result = self._cut(request, fault, room, next_)
        if freed and not result.errno:
            self._plan.free(request.op, freed)
        return result

    def _fail(self, request: Request, fault: Fault, next_: Next) -> Answer:
        request.op = replace(request.op, fault=fault.what)
        if request.op.call == "close":  # close(2): after an error the descriptor is gone all the same
            next_(request)
        return Answer(errno=_NAMES[fault.what])

    def _cut(self, request: Request, fault: Fault | None, room: int | None, next_: Next) -> Answer:
        """Have a call move fewer bytes than it wants."""
        due = asked(request)
        request.most = MOST if room is None else room
        if fault is not None and fault.what in {"short", "torn"}:
            request.most = min(request.most, int(fault.amount) or max(1, due // 2))
        if room == 0 and due:
            request.op = replace(request.op, fault="ENOSPC")
            return Answer(errno=errno.ENOSPC)
        result = next_(request)
        if result.errno:
            return result
        what = fault.what if fault is not None else "full"
        request.op = replace(request.op, fault=f"{what}, {result.size} of {due} B")
        return replace(result, errno=errno.EIO) if what == "torn" else result

    # Ends of processes.

    def kill(self, request: Request, fault: Fault) -> None:
        """Kill the victims of a fault now that the call is done."""
        self._ends(request, fault)

    def _ends(self, request: Request, fault: Fault) -> bool:
        """Kill the victims of a fault; returns whether the caller is among it."""
        task = request.task
        if fault.what in grammar.TERMS:
            return self._terminate(task, request, fault)
        node = self._state.world.node
        victims = [
            rank for rank in self._state.ranks
            if fault.what == "kill-job" or rank is task.rank
            or (fault.what == "kill-node" and node(rank.number) == node(task.rank.number))
        ]  # fmt: skip
        self._record(task, request.op, "SIGKILL", fault.what, "after" if fault.after else "before")
        for rank in victims:
            end(rank)
        return True

    def _terminate(self, task: Task, request: Request, fault: Fault) -> bool:
        """Announce the end: a handler runs when the call has been answered; a rank without one ends now.

        A node's other ranks hear of a preemption wherever they are, and have no more time.
        """
        self._record(task, request.op, "SIGTERM", fault.what, "before")
        until, node = self._state.time.elapsed + round(fault.amount * _SECOND), self._state.world.node
        for rank in self._state.ranks if fault.what == "preempt" else ():
            if rank is not task.rank and node(rank.number) == node(task.rank.number) and not rank.is_at_end:
                self._record(rank.main, Op(rank.number, rank.main.name, "kill", "SIGTERM"), "SIGTERM", fault.what)
                deliver(self._state, rank, signal.SIGTERM)
                self._grace.append((until, rank))
        pid = task.rank.pid
        if not (proc.is_caught(pid, signal.SIGTERM) or proc.is_ignored(pid, signal.SIGTERM)):
            end(task.rank, signal.SIGTERM)
            return True
        _end_helpers(task.rank, signal.SIGTERM)
        os.kill(task.rank.pid, signal.SIGTERM)
        _interrupt_sleep(self._state, request)
        self._grace.append((until, task.rank))
        return False

    @property
    def is_preempted(self) -> bool:
        """Return whether the launcher has been told to end its ranks; it looks no more how they end."""
        happened = zip(self._state.world.faults, self.fired, strict=True)
        return any(times and fault.what == "preempt" for fault, times in happened)

    @property
    def has_pending(self) -> bool:
        """Return whether a rank is yet to be killed."""
        return bool(self._grace)

    def expire(self, soonest: float) -> bool:
        """Kill the first rank whose time is over before ``soonest``, when another goes on (nanoseconds, virtual).

        Returns whether there was one.  A rank at its end has ended in time.
        """
        self._grace = [(until, rank) for until, rank in self._grace if not rank.is_at_end]
        first = min(self._grace, key=lambda each: each[0], default=None)
        if first is None or max(self._state.time.elapsed, soonest) < first[0]:
            return False
        until, rank = first
        self._grace.remove(first)
        self._state.time.tick(until)
        self._record(rank.main, Op(rank.number, rank.main.name, "kill", "SIGKILL"), "SIGKILL", "kill")
        end(rank)
        return True

    def _record(self, task: Task, op: Op, name: str, what: str, when: str = "") -> None:
        """Record the fault in place of the op that does not happen, or before or after the op."""
        state, at = self._state, (f"{when} {op.call}",) if when else ()
        made = Op(op.rank, op.thread, "kill", name, op.places, at, stack=op.stack, fault=what)
        state.trace.add(made, Result(), task.tick())


def deliver(state: RunState, rank: Rank, number: signal.Signals) -> None:
    """Send a signal to a rank, which ends or runs its handler at once if it sleeps, else when its call is answered."""
    task = rank.main
    if number != signal.SIGKILL and proc.is_caught(rank.pid, number):
        _end_helpers(rank, number)
        os.kill(rank.pid, number)
        rank.wake()
        if task.request is not None:  # the kernel prefers the main thread
            _interrupt_sleep(state, task.request)
    elif number == signal.SIGKILL or not proc.is_ignored(rank.pid, number):
        end(rank, number)


def _interrupt_sleep(state: RunState, request: Request) -> None:
    if request.call.family == "sleep":
        request.left = request.until - state.time.elapsed
        request.until = state.time.elapsed


def end(rank: Rank, number: int = signal.SIGKILL) -> None:
    """Kill a rank with all that it has started; its end is noticed like any other end.

    A process that it has started, and that handles or ignores the signal, goes on.
    """
    if rank.gone:
        return
    _end_helpers(rank, number)
    with suppress(ProcessLookupError):
        os.kill(rank.pid, number)
    for task in rank.tasks.values():
        if task.process.is_main and task.stopped:
            task.lose()
    rank.wake()


def _end_helpers(rank: Rank, number: int) -> None:
    """Send a signal to the processes that a rank has started: torchrun and Slurm signal whole process groups."""
    if not rank.past.forked:
        return
    ends = [
        task for task in rank.tasks.values()
        if not task.process.is_main and (number == signal.SIGKILL or not _survives(task.process.pid, number))
    ]  # fmt: skip
    for pid in proc.descendants(rank.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    for task in ends:
        if task.stopped:
            task.lose()


def _survives(pid: int, number: int) -> bool:
    return proc.is_caught(pid, number) or proc.is_ignored(pid, number)
