"""One controlled run of a world: wait until it is quiet, choose which pending op goes, perform it, repeat.

Quiet means that every thread is stopped at an op or a hypercall, is gone, or sleeps in the kernel (`quiescence`).
What no order of ranks can change (collectives, hypercalls, invisible ops) is done as soon as the world is quiet,
in the order of ranks; the rest is a point.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any

from racecheck import storage
from racecheck.kernel import libc, proc
from racecheck.kernel.signature import Treatment
from racecheck.model.errors import CannotRun
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
from racecheck.model.nouns import Op, Outcome, Point, Result, Returned, Weights, World
from racecheck.model.ops import op_kinds
from racecheck.model.ops.unstable_names import Names
from racecheck.model.vector_clock import Clock, join
from racecheck.processes.session import Session
from racecheck.scheduling.fairness import Fairness
from racecheck.scheduling.relation import Relation
from racecheck.supervisor.calls import bookkeeping, signals
from racecheck.supervisor.calls.perform import CARRY_ON, SORTED, Answer, creates, perform
from racecheck.supervisor.effects.caches import Viewer
from racecheck.supervisor.effects.fault_injection import Injector
from racecheck.supervisor.effects.halves import Halves
from racecheck.supervisor.effects.launcher import Launcher
from racecheck.supervisor.effects.timers import Timers
from racecheck.supervisor.finish.answers import answer, reply
from racecheck.supervisor.finish.recorder import Recorder
from racecheck.supervisor.order import timed_waits
from racecheck.supervisor.order.gil import Gil
from racecheck.supervisor.order.intake import Intake
from racecheck.supervisor.order.memory_waits import MemoryWaits
from racecheck.supervisor.order.quiescence import Quiet
from racecheck.supervisor.order.timed_waits import Limits
from racecheck.supervisor.run import boot
from racecheck.supervisor.run.ending import conclude, tell_parent
from racecheck.supervisor.run.state import Over, State
from racecheck.supervisor.threads import hypercall_ops
from racecheck.supervisor.threads.collectives import CONDITIONS, NEVER_AWAITED, OPEN, Instance, Mismatched
from racecheck.supervisor.threads.coverage import OTHERS, Ledger
from racecheck.supervisor.threads.tasks import HypercallStop, Rank, Request, Task
from racecheck.supervisor.threads.virtual_time import VirtualTime

MOVED = "a file is moved between TMPDIR and the watched directory, which are on one file system"
_TMPDIR = "TMPDIR"
LIMITED = "a process group has a time limit of its own: that it runs out because a rank is slow was not tried"
_USUAL_LIMIT = 1_700 * 10**9
"""Nanoseconds; gloo's own limit is half an hour, after which a rank counts as stuck anyway."""
_STALL = 5 * 10**9
"""Nanoseconds that a rank may be delayed while others sleep; otherwise a sleep of an hour would use up every time
limit."""
_YIELDS = frozenset({"sleep", "test", "poll"})
_OURS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.ENFILE})
"""Errors of the machine, not of the code under test."""


class Supervisor:
    """Runs a world once.

    ``choose`` answers points; ``seed`` is what ranks draw their randomness from; ``stacks``: ops carry the Python stack
    that made them; ``keep``: it is on the disk that the last run left; ``recovering``: that too, and what ranks run is
    the scenario's recovery; ``contents``: the outcome says what is in checkpoint files; ``names`` are those that differ
    from run to run, for a recovery as its run has met them.  A ``recorder`` keeps what ops write.
    """

    def __init__(
        self,
        session: Session,
        target: str,
        world: World,
        choose: Callable[[Point], int],
        *,
        seed: str,
        stacks: bool = True,
        recovering: bool = False,
        since: int = 0,
        keep: bool = False,
        contents: bool = False,
        names: Names | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._recorder = recorder
        self._session, self._target, self._world, self._choose = session, target, world, choose
        self._stacks, self._contents, self._names = stacks, contents, names or Names()
        self._job = session.job(target, world, seed, controlled=True, recovering=recovering)
        self._keep, self._since = keep or recovering, since

    def run(self) -> Outcome:
        """Make the run; raises `CannotRun` or `UsageError` where none was possible."""
        started = time.perf_counter()
        if self._keep:
            self._session.slot.make_room(self._world)
        else:
            self._session.make_ready(self._target, self._world)
        members = boot.Crew(self._session, self._job, self._world)
        try:
            members.boot()
            self._begin(members)
            with closing(self._quiet):
                why = self._explore()
                self._memory_waits.release()
                results = conclude(self._state, why)
            self._viewer.finish()
            self._session.imported.update(module for rank in members.ranks for module in rank.modules)
        finally:
            members.end()
        state = self._state
        if any(rank.shared for rank in state.ranks):
            state.ledger.note(hypercall_ops.CONDITION)
        if self._session.slot.is_covered and not state.trace.ops:
            state.ledger.hole("a program that does nothing in the watched directory")
        if self._session.slot.is_covered and not self._session.slot.is_apart:
            state.ledger.note("processes outside of the run can be seen: this machine allows no other /proc")
        if outside := self._session.slot.changed_outside():
            others = f" and {len(outside) - 1} more" * (len(outside) > 1)
            state.ledger.note(f"thrown away, not real: what was written to {outside[0]}{others}")
        if any(isinstance(each, Returned) and state.collectives.is_open(rank) for rank, each in enumerate(results)):
            state.ledger.untried(NEVER_AWAITED)
        outcome = Outcome(
            world=self._world,
            trace=tuple(state.trace),
            schedule=tuple(state.schedule),
            results=results,
            disk=self._session.slot.read(self._world),
            contents=self._session.contents(self._world) if self._contents else {},
            weights=tuple(sorted(state.weights, key=lambda each: (each.event, each.rank))),
            outside=state.ledger.outside(),
            mismatch=state.mismatch,
            names=tuple(self._names.patterns),
            fired=self._injector.fired,
            pending=tuple(state.pending(state.stopped_tasks())),
            cut=tuple(state.cut),
            looked=tuple(sorted(state.looked)),
            lookers=tuple(sorted(state.lookers)),
            times=dict(sorted(state.times.items())),
            coverage=state.ledger.coverage(len(state.trace.ops)),
            seconds=time.perf_counter() - started,
        )
        return replace(self._names.cover(replace(outcome, names=())), names=outcome.names)

    def _begin(self, members: boot.Crew) -> None:
        ledger = Ledger(str(self._session.slot.output))
        time_ = VirtualTime(members.clock, self._job.ahead)
        time_.tick(self._since)
        self._state = State(
            members, self._world, storage.make(self._world), self._choose, ledger, self._stacks, time_,
            seed=self._job.seed, names=self._names,
        )  # fmt: skip
        self._launcher = Launcher(self._state, is_there=self._session.slot.is_covered)
        self._injector, self._relation = Injector(self._state), Relation(self._world)
        self._viewer, self._fairness = Viewer(self._state), Fairness()
        self._halves = Halves(self._state, self._relation)
        if self._recorder is not None:
            slot, objects = self._session.slot, self._state.storage.mirrored
            self._recorder.begin(
                slot.disks(self._world), slot.kept, slot.scratch, self._state.identities, self._names, objects=objects
            )
        self._limits = Limits(self._state)
        gil, self._memory_waits = Gil(self._state, self._session.gil), MemoryWaits(members.ranks)
        self._timers = Timers(self._state)
        intake = Intake(self._state, self._limits, gil, self._memory_waits, self._timers)
        self._quiet = Quiet(self._session, self._state, intake, gil, self._memory_waits)
        for rank in members.ranks:
            rank.names = self._names
            rank.background = frozenset(proc.threads(rank.pid)) - {rank.pid}
            reply(rank.main)
            rank.main.started = True

    def _explore(self) -> str:
        """Loop until nothing can continue; returns the reason if the run was cut short."""
        try:
            while True:
                self._quiet.wait()
                tell_parent(self._state)
                if self._limits.end_some():
                    continue
                self._place()
                if self._settle():
                    continue
                options = self._options()
                if self._is_due(options):
                    continue
                if options and self._is_livelock():
                    self._state.is_livelocked = True
                    return ""
                if options:
                    self._state.current = self._next(options)
                    self._execute(self._state.current)
                    self._state.cause = self._state.trace.last.clock
                elif self._run_out(math.inf):
                    continue
                elif self._all_exit() or not self._waits_for_a_time():
                    return ""
        except Over as over:
            return over.why

    def _is_livelock(self) -> bool:
        """Return whether threads repeat themselves without an end, and nothing that is pending ends that."""
        stopped = self._state.stopped_tasks()
        going = [task for task in stopped if task.op is not None and self._is_enabled(task)]
        if not self._state.livelock.is_certain(going, self._state.trace.events):
            return False
        is_held = any(task.wait is not None or task.waits for rank in self._state.ranks for task in rank.tasks.values())
        is_due = any(self._due(task, math.inf) < math.inf for task in stopped) or self._timers.are_armed
        is_due |= any(rank.alarmed for rank in self._state.ranks)
        return not (is_held or is_due or self._injector.has_pending)

    def _run_out(self, before: float) -> bool:
        """End the wait for a key or a collective whose time limit is over first, if that is ``before`` then.

        Returns whether there was one.  A group's own limit counts only where somebody continues later: a deadlock is
        told as one.
        """
        due, task = min(
            ((self._due(task, before), task) for task in self._state.stopped_tasks()),
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

    def _due(self, task: Task, before: float) -> float:
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

    def _is_due(self, options: list[Task]) -> bool:
        """Do what is due before an option continues: a signal of a fault, the launcher or a timer, a wait's end."""
        soonest = self._soonest(options)
        idle = soonest if options else math.inf
        if not self._all_exit():
            limit = min((self._due(task, math.inf) for task in self._state.stopped_tasks()), default=math.inf)
            if self._injector.expire(min(idle, limit)) or self._launcher.act(idle) or self._timers.act(idle):
                return True
        return self._limits.run_out(soonest) or self._run_out(soonest)

    def _soonest(self, options: list[Task]) -> float:
        """Return when an option continues by itself: at once, or when it has slept; a thread that polls never does."""
        going = [task for task in options if task.op is not None and not self._fairness.is_vain(task.op)]
        return min(map(_until, going), default=math.inf) if options else 0

    def _waits_for_a_time(self) -> bool:
        return self._limits.run_out(math.inf) or self._quiet.wait_for_timers()

    def _place(self) -> None:
        """Place and describe the threads that have stopped since, in the order of ranks."""
        for task in self._state.stopped_tasks():
            if task.fresh:
                last = task.rank.last
                if last is not None and last is not task:
                    join(task.clock, last.clock)  # of one rank, one thread runs at a time: so that thread woke this one
                join(task.clock, self._state.cause)
                task.rank.shared |= task.rank.has_threads
                if task.hypercall is not None:
                    self._place_hypercall(task, task.hypercall)
            task.fresh = False
            if task.request is None:
                continue
            if task.request.seen < 0:
                self._place_request(task.request)
                bookkeeping.describe(task.request, self._state.time)
                self._injector.delay(task.request)
            if task.rank.shared and task.request.op.alone:
                task.request.op = replace(task.request.op, alone=False)

    def _place_request(self, request: Request) -> None:
        self._state.decoder.place(request)
        request.seen = self._state.trace.changes
        if request.call.family == "exit":
            request.op = self._ending(request.op, request.task)

    def _place_hypercall(self, task: Task, stop: HypercallStop) -> None:
        call, stop.op = stop.call, hypercall_ops.op_of(task, stacks=self._state.stacks)
        if isinstance(call, Wait):
            self._state.collectives.awaited(task.rank.number, call.ticket)
            limit = self._due(task, 0) if call.gives_up else math.inf
            if limit - self._state.time.elapsed < _USUAL_LIMIT:
                self._state.ledger.note(LIMITED)
        stop.since = self._state.time.elapsed
        if isinstance(call, UseStore | Wait) and call.limit:
            self._state.ledger.untried("an earlier timeout of a wait for a collective or a store key")
        if isinstance(call, Exit):
            op = self._ending(Op(task.rank.number, task.name, "exit", "exit_group", alone=not task.rank.shared), task)
            stop.op = op if op.places or task.rank.shared else None

    def _ending(self, op: Op, task: Task) -> Op:
        return bookkeeping.ending(op, task.process, self._state.locks, self._state.decoder)

    # What needs no choice.

    def _settle(self) -> bool:
        """Answer what no choice could change, in the order of ranks; returns whether anything was answered.

        Of the threads of one rank only one runs at a time, so that what they do in memory has an order.
        """
        answered: set[int] = set()
        for task in self._state.stopped_tasks():
            number = task.rank.number
            if number in answered:
                continue
            if task.hypercall is not None and task.hypercall.op is None:
                if self._try_hypercall(task, task.hypercall.call):
                    task.rank.last = task
                    answered.add(number)
            elif task.request is not None and not self._is_visible(task.request):
                self._execute(task)
                answered.add(number)
        return bool(answered) or self._let_leave()

    def _is_visible(self, request: Request) -> bool:
        if self._viewer.flushes(request):
            request.op = replace(request.op, flags=tuple(sorted({*request.op.flags, "FLUSH"})))
        if not bookkeeping.releases(request, self._state.locks):
            return "LOCK_UN" in request.op.flags or self._relation.visible(request.op)
        request.op = replace(request.op, flags=tuple(sorted({*request.op.flags, "LOCK_UN"})))
        return True

    def _try_hypercall(self, task: Task, call: Hypercall) -> bool:
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
                self._state.weights.append(Weights(rank=task.rank.number, event=len(self._state.trace), **said))
            case EndItem():
                task.name = task.own_name
            case Finalise():
                self._cut(task, own=True)
            case Shutdown(group=group) if self._world.collectives == "gloo":
                task.rank.left[group] = dict(task.clock)
        reply(task)

    def _issue(self, task: Task, call: Issue) -> None:
        try:
            ticket, event = self._state.collectives.issue(task.rank.number, call, task.tick())
        except Mismatched as found:
            self._state.mismatch = found.mismatch
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
        """Return whether a rank continues before its peers come; the claim names what that depends on."""
        if not instance.returns_early(task.rank.number):
            return False
        self._state.ledger.note(CONDITIONS[self._world.collectives])
        is_weakest = self._world.collectives == "weakest"
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
        ended = [rank.clock for rank in missing if rank.gone]
        return ended + [rank.left[instance.group] for rank in missing if not rank.gone and instance.group in rank.left]

    def _use_store(self, task: Task, call: UseStore) -> bool:
        store = self._state.crew.store
        if call.do.startswith("queue_"):
            self._state.ledger.untried("other orders of operations on a store queue")
        if store.missing(call.do, call.arguments):
            return False
        reply(task, store.do(call.do, call.arguments, task.clock))
        return True

    def _let_leave(self) -> bool:
        """Let ranks end, and shut process groups down, only when nothing else continues by itself.

        Otherwise a connection would close while a peer is still on its way out of a collective.  The last ones are not
        waited for: their end changes nothing any more.
        """
        if self._all_exit():
            return False
        leaving = [task for task in self._state.stopped_tasks() if task.op is None]
        exiting = [task for task in leaving if isinstance(task.call, Exit) and not self._is_needed(task.rank)]
        closing = [(task, task.call) for task in leaving if isinstance(task.call, Shutdown)]
        for task in exiting:
            task.rank.leaving = True
            reply(task)
        for task, call in closing:
            self._answer(task, call)
        return bool(exiting or closing)

    def _is_needed(self, rank: Rank) -> bool:
        """Return whether a peer may yet come to a collective from which the rank has returned early.

        No peer comes if each waits for a rank that is at its end.
        """
        if self._world.collectives == "gloo":
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

    def _all_exit(self) -> bool:
        """Return whether every remaining rank is at its end, which is the end of its threads too."""
        ranks = self._state.ranks
        return all(rank.gone or isinstance(rank.main.call, Exit) for rank in ranks) and not any(
            rank.forked for rank in ranks
        )

    # What is chosen.

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
        return bookkeeping.is_enabled(task.request, self._state.locks) and not self._halves.holds_up(task.request)

    def _next(self, options: list[Task]) -> Task:
        if len(options) == 1:
            return options[0]
        ops = tuple(task.op for task in options if task.op is not None)
        return options[self._state.decide("next", ops)]

    # What an op does.

    def _execute(self, task: Task) -> None:
        """Perform a pending op, answer it and record it."""
        trace, task.rank.last = self._state.trace, task
        if len(trace) >= self._world.max_ops:
            raise Over(f"reached the limit of {self._world.max_ops} ops; a polling loop?")
        if self._state.collectives.is_open(task.rank.number):
            self._state.ledger.note(OPEN)
        if task.request is None:
            self._execute_hypercall(task)
        else:
            self._execute_request(task, task.request)
        self._fairness.note(trace.last)

    def _execute_request(self, task: Task, request: Request) -> None:
        if request.seen != self._state.trace.changes and not self._resolve(request):
            return
        if bookkeeping.begins_to_wait(request, self._state.locks):
            self._begin_to_wait(request)
            return
        if (walked := self._halves.walk(request)) is not None:
            op, text = walked
            self._record(request, Answer(text=text), op)
            self._resolve(request)
            return
        fault = self._injector.draw(request)
        if self._injector.ends(task, request, fault):
            return
        is_half = self._halves.limit(request)
        result = self._injector.perform(request, fault, self._look)
        self._state.time.tick(request.until)
        if is_half and self._halves.goes_on(request, result):
            self._record(request, result)
            self._halves.second(request, result)
            return
        if fault is not None and fault.after:
            self._record(request, result)
            self._injector.ends(task, request, fault, done=True)
            if result.opened >= 0:
                os.close(result.opened)
            return
        result = answer(request, result, self._state.crew.files)
        self._record(request, result)
        if request.call.family == "kill":
            self._note_signal(task, request)
        if request.call.family == "exit":
            busy = {each.process.pid for each in task.rank.tasks.values() if each.is_held}  # others sleep until it ends
            self._note_handlers(signal.SIGCHLD, [pid for pid in task.rank.processes if pid in busy])
            self._cut(task)

    def _note_signal(self, task: Task, request: Request) -> None:
        """Note a signal, which the kernel is about to send: the ranks that it may end are waited for."""
        number = request.number("signal")
        task.rank.kills = True
        if number > 0 and any(signals.reaches(request, rank) for rank in self._state.ranks):
            self._state.ledger.note(signals.KILLS)
        self._note_handlers(number, task.rank.processes)
        for rank in self._state.ranks:
            if rank is task.rank or not signals.reaches(request, rank):
                continue
            if number > 0:
                rank.kills = rank.running = not rank.gone
                self._state.ledger.untried("other moments for a signal between ranks")
            else:
                self._state.ledger.untried(OTHERS)

    def _begin_to_wait(self, request: Request) -> None:
        """Record an op beside the request, which is still to be answered."""
        bookkeeping.begin_to_wait(request, self._state.locks)
        self._record(request, Answer())
        request.op = replace(request.op, args={**request.op.args, "waits": 2})

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

    def _look(self, request: Request) -> Answer:
        return self._viewer.perform(request, self._perform)

    def _perform(self, request: Request) -> Answer:
        makes = creates(request)
        try:
            result = bookkeeping.perform(request, self._state.locks)
            if result is None and request.call.family == "wait":
                result = self._limits.perform(request)
            if result is None:
                result = CARRY_ON if request.call.treatment is Treatment.CONTINUE else perform(request)
        except OSError:
            return CARRY_ON
        if not result.errno and not result.carry_on:
            if makes:
                self._created(request, result)
            self._state.time.stamp(request, result.opened)
            if request.call.family == "stat":
                shown = self._state.time.show(request)
                self._state.show(shown, request.op, all_seen=request.task.process.is_foreign)
        if result.errno in _OURS:
            name = libc.errno_name(result.errno)
            raise CannotRun(
                f"{request.op.label} got {name} from this machine, not from a fault: free space, or set RACECHECK_RUNS"
            )
        if self._recorder is not None:
            self._recorder.performed(len(self._state.trace), request, result, self._state.identities)
        return result

    def _created(self, request: Request, result: Answer) -> None:
        if result.opened >= 0:
            status = os.fstat(result.opened)
        else:
            status = os.lstat([*request.located.values()][-1].via.rstrip("/"))
        self._state.identities.created(status)
        self._state.time.created(status)

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

    def _execute_hypercall(self, task: Task) -> None:
        """Update a thread's clock after its op; the op's own clock does not contain what the thread learns with it."""
        stop, state = task.hypercall, self._state
        assert stop is not None
        assert stop.op is not None
        call = stop.call
        op = self._ending(stop.op, task) if isinstance(call, Exit) else stop.op
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
                bookkeeping.end(task.process, state.locks)
                stop.op = None
            case AmongThreads():
                self._answer(task, call)
            case _:
                reply(task, value)

    def _cut(self, last: Task, *, own: bool = False) -> None:
        """End the other threads of a process with it, at whatever op each of them is.

        When only its interpreter ends (``own``), only the program's own threads end: gloo's continue.
        """
        others = [task for task in last.rank.tasks.values() if task.process is last.process and task is not last]
        others = [task for task in others if task.started or not own]
        self._state.end(others)
        last.rank.drop(others)


def _until(task: Task) -> int:
    """Note when a thread that yields continues by itself."""
    return task.request.until if task.request is not None else 0


def _only_waits(task: Task) -> bool:
    """Return whether a thread can only learn that its wait with a time limit is over."""
    return task.request is not None and task.waits and not timed_waits.has_news(task.request)
