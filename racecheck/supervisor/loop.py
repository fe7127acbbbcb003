"""The loop of a controlled run: wait until it is quiet, choose which pending op goes, perform it, repeat.

It is quiet if every thread is stopped at an op or a hypercall, is gone, or sleeps in the kernel (`quiescence`).
Actions that no order of ranks can change (collectives, hypercalls, invisible ops) are done as soon as the world is
quiet, in the order of ranks; the rest is a point.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial

from racecheck.kernel import libc, proc
from racecheck.model.hypercalls import UseStore
from racecheck.model.nouns import Op, RankResult, Result
from racecheck.model.ops import op_kinds
from racecheck.model.vector_clock import join
from racecheck.scheduling.fairness import Fairness
from racecheck.scheduling.parts import WALK
from racecheck.scheduling.relation import Relation
from racecheck.sessions.session import Session
from racecheck.supervisor.act.call_parts import CallParts
from racecheck.supervisor.act.client_caches import ClientCaches
from racecheck.supervisor.act.fault_injection import Injector
from racecheck.supervisor.act.launcher import Launcher
from racecheck.supervisor.act.outcomes import Outcomes, kernel
from racecheck.supervisor.act.timers import Timers
from racecheck.supervisor.agenda import Agenda, Patience
from racecheck.supervisor.arrive.receive import Receiver
from racecheck.supervisor.arrive.triage import Triage
from racecheck.supervisor.calls import locks, signals, sleeps
from racecheck.supervisor.calls.perform import CARRY_ON, SORTED, Answer, Next, OpLayer, stacked
from racecheck.supervisor.finish.answers import answer
from racecheck.supervisor.finish.recorder import Recorder
from racecheck.supervisor.hypercalls import Hypercalls
from racecheck.supervisor.quiescence import Quiescence
from racecheck.supervisor.run.ending import conclude, tell_parent
from racecheck.supervisor.run.state import Over, RunState
from racecheck.supervisor.state.collectives import OPEN
from racecheck.supervisor.state.coverage import OTHERS
from racecheck.supervisor.state.tasks import Request, Task
from racecheck.supervisor.wait import timed_waits
from racecheck.supervisor.wait.gil import Gil
from racecheck.supervisor.wait.memory_waits import MemoryWaits
from racecheck.supervisor.wait.timed_waits import TimedWaits

MOVED = "a file is moved between TMPDIR and the watched directory, which are on one file system"
_TMPDIR = "TMPDIR"
_STALL = 5 * 10**9
"""Nanoseconds that a rank may be delayed while others sleep; otherwise a sleep of an hour would use up every time
limit."""
_YIELDS = frozenset({"sleep", "test", "poll"})


class Loop:
    """One controlled run, once its ranks are ready; a ``recorder`` keeps the bytes that ops write."""

    def __init__(self, session: Session, state: RunState, recorder: Recorder | None, launcher: Launcher) -> None:
        self._state, self._recorder = state, recorder
        self._relation, self._fairness = Relation(state.world), Fairness()
        self.injector, self.caches = Injector(state), ClientCaches(state)
        self._parts = CallParts(state, self._relation)
        self._limits, timers, patience = TimedWaits(state), Timers(state), Patience(state)
        self._hypercalls = Hypercalls(state, patience, launcher)
        self._agenda = Agenda(state, self.injector, launcher, timers, self._limits, patience)
        self._patience = patience
        gil, self._memory_waits = Gil(state, session.gil), MemoryWaits(state.ranks)
        triage = Triage(state, self._limits, gil, self._memory_waits, timers)
        self._quiescence = Quiescence(session, state, Receiver(state, gil, triage), gil, self._memory_waits)
        self._act = self._layers()

    def _layers(self) -> Next:
        """Return the function that carries a request out, through all that may change how."""
        held = self._state.locks
        layers: tuple[OpLayer, ...] = (
            partial(locks.wait, held=held),
            self._parts.perform,
            self._delay,
            self.injector.perform,
            self.caches.perform,
            Outcomes(self._state, self._recorder).perform,
            partial(locks.perform, held=held),
            sleeps.perform,
            self._limits.perform,
        )
        return stacked(layers, kernel)

    def _delay(self, request: Request, next_: Next) -> Answer:
        """Let the time pass that a sleep takes, or a fault that makes a call slow."""
        result = next_(request)
        if not result.has_ended:
            self._state.time.tick(request.until)
        return result

    def run(self) -> tuple[RankResult, ...]:
        """Loop until nothing can continue; returns the result of every rank."""
        with closing(self._quiescence):
            why = self._explore()
            self._memory_waits.release()
            self._limits.release()
            results = conclude(self._state, why)
        self.caches.finish()
        return results

    def _explore(self) -> str:
        """Loop until nothing can continue; returns the reason if the run was cut short."""
        state = self._state
        try:
            while True:
                self._quiescence.wait()
                tell_parent(state)
                if self._limits.end_some():
                    continue
                self._place()
                if self._settle():
                    continue
                options = self._options()
                if self._is_due(options):
                    continue
                if options and self._is_livelock():
                    state.is_livelocked = True
                    return ""
                if options:
                    state.current = self._next(options)
                    self._execute(state.current)
                    state.cause = state.trace.last.clock
                elif not (self._runs_out() or self._goes_on()):
                    return ""
        except Over as over:
            return over.why

    def _runs_out(self) -> bool:
        """End the wait whose limit is over first, of those for descriptors, keys and collectives, if there is one."""
        due = self._patience.next_due
        return (due < math.inf and self._limits.run_out(due)) or self._patience.run_out(math.inf)

    def _goes_on(self) -> bool:
        """Return whether something happens by real time, although nothing is left to choose."""
        return not self._hypercalls.all_exit() and (
            self._limits.run_out(math.inf) or self._quiescence.wait_for_timers()
        )

    def _is_due(self, options: list[Task]) -> bool:
        """Do what is due before one of these continues by itself; returns whether something was.

        A thread does so at once, or when it has slept; one that polls never does.
        """
        going = [task for task in options if task.op is not None and not self._fairness.is_vain(task.op)]
        soonest = min(map(_until, going), default=math.inf) if options else 0
        idle = soonest if options else math.inf
        return self._agenda.act(soonest, idle, all_exit=self._hypercalls.all_exit())

    def _is_livelock(self) -> bool:
        """Return whether threads repeat themselves without an end, and nothing that is pending ends that."""
        stopped = self._state.stopped_tasks()
        going = [task for task in stopped if task.op is not None and self._is_enabled(task)]
        return self._state.livelock.is_certain(going, self._state.trace.events) and self._agenda.is_empty

    def _place(self) -> None:
        """Place and describe the threads that have stopped since, in the order of ranks."""
        for task in self._state.stopped_tasks():
            if task.fresh:
                last = task.rank.last
                if last is not None and last is not task:
                    join(task.clock, last.clock)  # of one rank, one thread runs at a time: so that thread woke this one
                join(task.clock, self._state.cause)
                task.rank.past.shared |= task.rank.has_threads
                if task.hypercall is not None:
                    self._hypercalls.place(task, task.hypercall)
            task.fresh = False
            if task.request is None:
                continue
            if task.request.seen < 0:
                self._place_request(task.request)
                sleeps.describe(task.request, self._state.time)
                locks.describe(task.request)
                self.injector.delay(task.request)
            if task.rank.past.shared and task.request.op.alone:
                task.request.op = replace(task.request.op, alone=False)

    def _place_request(self, request: Request) -> None:
        self._state.decoder.place(request)
        request.seen = self._state.trace.changes
        if request.call.family == "exit":
            request.op = self._state.ending(request.op, request.task)

    def _settle(self) -> bool:
        """Answer threads that no choice concerns, in the order of ranks; returns whether anything was answered.

        Of the threads of one rank only one runs at a time, so their effects in memory have an order.
        """
        answered: set[int] = set()
        for task in self._state.stopped_tasks():
            number = task.rank.number
            if number in answered:
                continue
            if task.hypercall is not None and task.hypercall.op is None:
                if self._hypercalls.settle(task, task.hypercall.call):
                    task.rank.last = task
                    answered.add(number)
            elif task.request is not None and not self._is_visible(task.request):
                self._execute(task)
                answered.add(number)
        return bool(answered) or self._hypercalls.let_leave()

    def _is_visible(self, request: Request) -> bool:
        if self.caches.flushes(request):
            request.op = replace(request.op, flags=tuple(sorted({*request.op.flags, "FLUSH"})))
        if not locks.releases(request, self._state.locks):
            return "LOCK_UN" in request.op.flags or self._relation.visible(request.op)
        request.op = replace(request.op, flags=tuple(sorted({*request.op.flags, "LOCK_UN"})))
        return True

    def _options(self) -> list[Task]:
        """Return the threads whose pending op may go, the default first and those that repeat a question last."""
        stopped = [task for task in self._state.stopped_tasks() if task.op is not None]
        able = [task for task in stopped if self._is_enabled(task)]
        yielding = sorted(filter(self._yields, able), key=_until)
        going = [task for task in able if task not in yielding]
        if yielding:
            begins = self._state.time.elapsed if going else max(self._state.time.elapsed, _until(yielding[0]))
            yielding = [task for task in yielding if _until(task) <= begins + _STALL]
        if self._state.current in going:
            going.remove(self._state.current)
            going.insert(0, self._state.current)
        return sorted(going + yielding, key=lambda task: task.op is not None and self._fairness.is_vain(task.op))

    def _yields(self, task: Task) -> bool:
        if task.waits:
            return _only_waits(task)
        is_late = task.request is not None and task.request.until > self._state.time.elapsed
        return is_late or (task.op is not None and task.op.call in _YIELDS)

    def _is_enabled(self, task: Task) -> bool:
        if isinstance(task.call, UseStore):
            return not self._state.crew.store.missing(task.call.do, task.call.arguments)
        if task.request is None:
            return True
        return locks.is_enabled(task.request, self._state.locks) and not self._parts.holds_up(task.request)

    def _next(self, options: list[Task]) -> Task:
        if len(options) == 1:
            return options[0]
        ops = tuple(task.op for task in options if task.op is not None)
        return options[self._state.decide("next", ops)]

    def _execute(self, task: Task) -> None:
        """Perform a pending op, answer it and record it."""
        trace, task.rank.last = self._state.trace, task
        if len(trace) >= self._state.world.max_ops:
            raise Over(f"reached the limit of {self._state.world.max_ops} ops; a polling loop?")
        if self._state.collectives.is_open(task.rank.number):
            self._state.ledger.note(OPEN)
        if task.request is None:
            self._hypercalls.execute(task)
        else:
            self._execute_request(task, task.request)
        self._fairness.note(trace.last)

    def _execute_request(self, task: Task, request: Request) -> None:
        if request.seen != self._state.trace.changes and not self._resolve(request):
            return
        result = self._act(request)
        if result.has_ended:
            return
        if result.part is not None:
            self._record(request, result, result.part)
            if result.part.call == WALK:
                self._resolve(request)
            return
        if result.kill is not None:
            self._record(request, result)
            self.injector.kill(request, result.kill)
            if result.opened >= 0:
                os.close(result.opened)
            return
        result = answer(request, result, self._state.crew.files)
        self._record(request, result)
        if request.call.family == "kill":
            self._note_signal(task, request)
        if request.call.family == "exit":
            self._note_handlers(signal.SIGCHLD, self._busy_parents(task))
            self._state.cut_others(task)

    def _busy_parents(self, task: Task) -> set[int]:
        """Return the process that has started the one of ``task``, unless its threads sleep until they are told.

        (Or would sleep, if they were not held before a wait for descriptors.)
        """
        parent = int(proc.status(task.process.pid).get("PPid", 0))
        busy = {each.process.pid for each in task.rank.tasks.values() if each.is_held and not each.selects}
        return busy & {parent} if not task.process.is_main else set()

    def _note_signal(self, task: Task, request: Request) -> None:
        """Note a signal, which the kernel is about to send: the ranks that it may end are waited for."""
        number = request.number("signal")
        task.rank.past.kills = True
        if number > 0 and any(signals.reaches(request, rank) for rank in self._state.ranks):
            self._state.ledger.note(signals.KILLS)
        self._note_handlers(number, task.rank.processes)
        for rank in self._state.ranks:
            if rank is task.rank or not signals.reaches(request, rank):
                continue
            if number > 0:
                rank.past.kills = not rank.gone
                if not rank.gone:
                    rank.stir()
                self._state.ledger.untried("other moments for a signal between ranks")
            else:
                self._state.ledger.untried(OTHERS)

    def _note_handlers(self, number: int, pids: Iterable[int]) -> None:
        """Note a signal to processes of a rank: a handler runs before that process's next op, never later."""
        if number > 0 and any(proc.is_caught(pid, number) for pid in pids):
            self._state.ledger.untried("other moments for a signal handler")

    def _resolve(self, request: Request) -> bool:
        """Find a pending op's places again; returns False if its memory is gone, as after the kill of its process.

        The kernel has the last word then.
        """
        try:
            self._state.decoder.resolve(request)
            self._place_request(request)
        except OSError:
            answer(request, CARRY_ON, self._state.crew.files)
            return False
        return True

    def _record(self, request: Request, result: Answer, part: Op | None = None) -> None:
        """Record the op of a request, or a part of it."""
        state = self._state
        ended = Result(
            errno=libc.errno_name(result.errno), value=result.value, size=result.size, digest=result.digest,
            text=result.text, known=not result.carry_on,
        )  # fmt: skip
        if self._recorder is not None:
            self._recorder.look(len(state.trace), state.identities)
        op = part or request.op
        if result.end >= 0:
            op = replace(op, args={**op.args, "end": result.end})
        op = state.trace.add(op, ended, request.task.tick())
        if op.call == "list" and result.size > 1:
            state.ledger.note(SORTED)
        if op.call in op_kinds.LINKS and len({place.path.startswith(_TMPDIR) for place in op.places}) > 1:
            state.ledger.note(MOVED)
        if not result.errno:
            state.unseen.note(op, self._relation.footprint(op))


def _until(task: Task) -> int:
    """Note when a thread that yields continues by itself."""
    return task.request.until if task.request is not None else 0


def _only_waits(task: Task) -> bool:
    """Return whether a thread can only learn that its wait with a time limit is over."""
    return task.request is not None and task.waits and not timed_waits.has_news(task.request)
