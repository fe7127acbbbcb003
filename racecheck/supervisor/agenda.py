"""Events that virtual time brings, unless a thread continues before: signals, timers, time limits, the launcher."""

from __future__ import annotations

import math

from racecheck.model.hypercalls import (
    UseStore,
    Wait,
)
from racecheck.supervisor.act.fault_injection import Injector
from racecheck.supervisor.act.launcher import Launcher
from racecheck.supervisor.act.timers import Timers
from racecheck.supervisor.finish.answers import reply
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.tasks import Task
from racecheck.supervisor.wait.timed_waits import TimedWaits


class Patience:
    """The time limits of waits for keys and collectives."""

    def __init__(self, state: RunState) -> None:
        self._state = state

    def run_out(self, before: float) -> bool:
        """End the wait for a key or a collective whose time limit is over first, if that is ``before`` then.

        Returns whether there was one.  A group's own limit counts only where somebody continues later: a deadlock is
        told as one.
        """
        due, task = min(
            ((self.due(task, before), task) for task in self._state.stopped_tasks()),
            key=lambda each: each[0],
            default=(math.inf, None),
        )
        if task is None or due >= before:
            return False
        self._state.trace.changes += 1
        self._state.time.tick(int(due))
        is_key = isinstance(task.call, UseStore)
        reply(task, {"error": "wait timeout: the keys were not set"} if is_key else "run out")
        return True

    def due(self, task: Task, before: float) -> float:
        """Return when the limit of a wait for a key or a collective is over, in virtual nanoseconds."""
        stop, limits = task.hypercall, list[float]()
        if stop is None or not isinstance(stop.call, UseStore | Wait):
            return math.inf
        if stop.call.limit:
            limits.append(stop.since + stop.call.limit)
        if isinstance(stop.call, Wait) and stop.call.gives_up and before < math.inf:
            deadlines = self._state.collectives.instance(stop.call.ticket).deadlines
            limits.append(deadlines.get(task.rank.number, math.inf))
        return min(limits, default=math.inf)

    @property
    def next_due(self) -> float:
        """When the first of them is over, if somebody continues then, in virtual nanoseconds."""
        return min((self.due(task, math.inf) for task in self._state.stopped_tasks()), default=math.inf)


class Agenda:
    """The faults, signals, timers and limits of a run that come by themselves."""

    def __init__(
        self,
        state: RunState,
        injector: Injector,
        launcher: Launcher,
        timers: Timers,
        limits: TimedWaits,
        patience: Patience,
    ) -> None:
        self._state, self._injector, self._launcher = state, injector, launcher
        self._timers, self._limits, self._patience = timers, limits, patience

    def act(self, soonest: float, idle: float, *, all_exit: bool) -> bool:
        """Do what is due before an option continues by itself (``soonest``), or others wait for nothing (``idle``).

        Returns whether something was: a signal of a fault, of the launcher or of a timer, or the end of a wait.
        """
        if not all_exit:
            until = min(idle, self._patience.next_due)
            is_there = not self._injector.is_preempted
            if self._injector.expire(until) or (is_there and self._launcher.act(idle)) or self._timers.act(idle):
                return True
        return self._limits.run_out(soonest) or self._patience.run_out(soonest)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to come that could end a livelock."""
        tasks = [task for rank in self._state.ranks for task in rank.tasks.values()]
        is_held = any(task.wait is not None or task.waits for task in tasks)
        is_due = self._patience.next_due < math.inf or self._timers.are_armed
        is_due |= any(rank.past.alarmed for rank in self._state.ranks)
        return not (is_held or is_due or self._injector.has_pending)
