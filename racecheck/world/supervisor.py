"""One controlled run of a world: wait until it is quiet, choose which pending op goes, perform it, repeat.

Quiet means that every thread is stopped at an op or an announcement, is gone, or sleeps in the kernel (`quiet`).
What no order of ranks can change (collectives, announcements, invisible ops) is done as soon as the world is quiet,
in the order of ranks; the rest is a point.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from racecheck import storage
from racecheck.errors import CannotRun
from racecheck.kernel import libc
from racecheck.kernel.signature import Treatment
from racecheck.model import Choice, Op, Outcome, Point, Result, World
from racecheck.world import bookkeeping, crew, disk
from racecheck.world.agent import Job
from racecheck.world.answers import answer, reply
from racecheck.world.calls import Request
from racecheck.world.collectives import Mismatched
from racecheck.world.coverage import Ledger
from racecheck.world.ending import conclude
from racecheck.world.intake import Intake
from racecheck.world.perform import CARRY_ON, Answer, creates, perform
from racecheck.world.quiet import Quiet
from racecheck.world.session import Session
from racecheck.world.state import Over, State
from racecheck.world.tasks import Task, join

_YIELDS = frozenset({"sleep", "test"})
_OURS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.ENFILE})
"""What goes wrong with the machine, not with the code under test."""


class Supervisor:
    """Runs a world once.

    ``choose`` answers points; ``seed`` is what ranks draw their randomness from; ``stacks``: ops carry the Python stack
    that made them.
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
    ) -> None:
        slot = session.slot
        self._session, self._target, self._world, self._choose = session, target, world, choose
        self._stacks = stacks
        self._job = Job(
            target=target, ranks=world.ranks, seed=seed, watched=str(slot.watched), scratch=str(slot.scratch),
            output=str(slot.output), controlled=True,
        )  # fmt: skip
        self.modules: list[str] = []

    def run(self) -> Outcome:
        """``modules`` then names what ranks had to import on the way.

        Raises `CannotRun` or `UsageError` where no run came about.
        """
        started = time.perf_counter()
        self._session.make_ready(self._target, self._world.ranks, self._world.timeout)
        members = crew.Crew(self._session, self._job)
        try:
            members.boot()
            self._begin(members)
            results = conclude(self._state, self._explore())
            self.modules = sorted({module for rank in members.ranks for module in rank.modules})
        finally:
            members.end()
        state = self._state
        return Outcome(
            world=self._world,
            trace=tuple(state.trace),
            schedule=tuple(state.schedule),
            results=results,
            disk=disk.read(self._session.slot.watched),
            outside=state.ledger.outside(),
            mismatch=state.mismatch,
            coverage=state.ledger.coverage(sum(isinstance(event, Op) for event in state.trace)),
            seconds=time.perf_counter() - started,
        )

    def _begin(self, members: crew.Crew) -> None:
        ledger = Ledger(str(self._session.slot.path))
        self._state = State(members, self._world, storage.make(self._world.storage), ledger, self._stacks)
        self._quiet = Quiet(self._session, self._state, Intake(self._state))
        for rank in members.ranks:
            self._state.randomness[rank.number] = random.Random(f"{self._job.seed}:{rank.number}")
            reply(rank.main)

    def _explore(self) -> str:
        """Until nothing can go on; gives the reason if it was cut short."""
        try:
            while True:
                self._quiet.wait()
                self._place()
                if self._settle():
                    continue
                options = self._options()
                if options:
                    if len(self._state.trace) >= self._world.max_ops:
                        raise Over(f"it was still going after {self._world.max_ops} ops (a loop that polls?)")
                    self._execute(self._next(options))
                elif not self._quiet.wait_for_timers():
                    return ""
        except Over as over:
            return over.why

    def _place(self) -> None:
        """What has stopped since gets its place and its description, in the order of ranks."""
        for task in self._state.stopped_tasks():
            if task.request is not None and task.request.seen < 0:
                self._state.decoder.place(task.request)
                bookkeeping.describe(task.request)
                task.request.seen = self._state.changes

    # What goes on without a choice.

    def _settle(self) -> bool:
        """Answer whatever no choice could change, in the order of ranks; whether anything was."""
        answered = False
        for task in self._state.stopped_tasks():
            if task.announcement is not None and task.announcement.op is None:
                answered |= self._try_announcement(task, task.announcement.message)
            elif task.request is not None and not self._is_visible(task.request):
                self._execute(task)
                answered = True
        return answered or self._let_leave()

    def _is_visible(self, request: Request) -> bool:
        return bookkeeping.releases(request, self._state.locks) or self._state.storage.visible(request.op)

    def _try_announcement(self, task: Task, message: dict[str, Any]) -> bool:
        if message["is"] == "issue":
            return self._issue(task, message)
        if message["is"] == "wait":
            return self._wait(task, message["ticket"])
        if message["is"] == "store":
            return self._use_store(task, message)
        return False

    def _issue(self, task: Task, message: dict[str, Any]) -> bool:
        try:
            ticket, event = self._state.collectives.issue(task.rank.number, message, task.tick())
        except Mismatched as found:
            self._state.mismatch = found.mismatch
            raise Over from None
        if event is not None:
            self._state.trace.append(event)
        reply(task, ticket)
        return True

    def _wait(self, task: Task, ticket: int) -> bool:
        """Let a rank into a collective that will complete, or whose failure it has to hear of."""
        instance, number = self._state.collectives.instance(ticket), task.rank.number
        if instance.may_return(number):
            join(task.clock, *(instance.clocks[each] for each in instance.before(number)))
        elif not any(self._state.ranks[each].failed for each in instance.missing):
            return False
        reply(task)
        task.inside = instance
        return True

    def _use_store(self, task: Task, message: dict[str, Any]) -> bool:
        store, do, arguments = self._state.crew.store, message["do"], message["arguments"]
        if store.missing(do, arguments):
            return False
        reply(task, store.do(do, arguments, task.clock))
        return True

    def _let_leave(self) -> bool:
        """Ranks end, and shut process groups down, only when nothing else goes on by itself: so nobody's connection
        closes while a peer is still on its way out of a collective.  The last ones are not waited for: nothing can come
        of their end any more.
        """
        ranks = self._state.ranks
        exiting = [task for task in self._state.stopped_tasks() if _announces(task, "exit")]
        closing = [task for task in self._state.stopped_tasks() if _announces(task, "shutdown")]
        if len(exiting) == sum(not rank.gone for rank in ranks) and all(rank.single or rank.gone for rank in ranks):
            return False
        for task in exiting + closing:
            reply(task)
        return bool(exiting or closing)

    # What is chosen.

    def _options(self) -> list[Task]:
        """The threads whose pending op may go, the tamest first."""
        able = [task for task in self._state.stopped_tasks() if task.op is not None and self._is_enabled(task)]
        yielding = [task for task in able if task.op is not None and task.op.call in _YIELDS]
        going = [task for task in able if task not in yielding]
        if self._state.current in going:
            going.remove(self._state.current)
            going.insert(0, self._state.current)
        return going + yielding

    def _is_enabled(self, task: Task) -> bool:
        return task.request is None or bookkeeping.is_enabled(task.request, self._state.locks)

    def _next(self, options: list[Task]) -> Task:
        if len(options) == 1:
            return options[0]
        ops = tuple(task.op for task in options if task.op is not None)
        index = self._choose(Point("next", ops))
        self._state.schedule.append(Choice("next", len(ops), index, ops[index].label))
        return options[index]

    # What an op does.

    def _execute(self, task: Task) -> None:
        """Perform a pending op, answer it and record it."""
        self._state.current = task
        request = task.request
        if request is None:
            self._execute_announced(task)
            return
        if request.seen != self._state.changes:
            self._state.decoder.resolve(request)
            self._state.decoder.place(request)
        result = self._perform(request)
        task.request = None
        task.rank.running = True
        result = answer(request, result, self._state.crew.files)
        self._record(request, result)

    def _perform(self, request: Request) -> Answer:
        makes = creates(request)
        try:
            result = bookkeeping.perform(request, self._state.locks)
            if result is None:
                result = CARRY_ON if request.call.treatment is Treatment.CONTINUE else perform(request)
        except OSError:
            return CARRY_ON
        if makes and not result.errno and not result.carry_on:
            self._created(request, result)
        if result.errno in _OURS:
            name = libc.errno_name(result.errno)
            raise CannotRun(
                f"{request.op.label} got {name} from the machine itself: free space there, or set RACECHECK_RUNS"
            )
        return result

    def _created(self, request: Request, result: Answer) -> None:
        if result.opened >= 0:
            self._state.identities.created(os.fstat(result.opened))
        else:
            located = list(request.located.values())[-1]
            self._state.identities.created(os.lstat(located.via.rstrip("/")))

    def _record(self, request: Request, result: Answer) -> None:
        state = self._state
        if request.op.call == "sleep":
            state.time += request.op.args["nanoseconds"]
        ended = Result(
            errno=libc.errno_name(result.errno), value=result.value, size=result.size, digest=result.digest,
            known=not result.carry_on,
        )  # fmt: skip
        state.trace.append(replace(request.op, result=ended, clock=request.task.tick(), time=state.time))
        state.changes += 1

    def _execute_announced(self, task: Task) -> None:
        assert task.announcement is not None
        message, op, state = task.announcement.message, task.announcement.op, self._state
        assert op is not None
        value: Any
        if message["is"] == "test":
            value = state.collectives.instance(message["ticket"]).may_return(task.rank.number)
        else:
            value = state.crew.store.do(message["do"], message["arguments"], task.clock)
        ended = Result(value=value if isinstance(value, int) else 0)
        state.trace.append(replace(op, result=ended, clock=task.tick(), time=state.time))
        reply(task, value)


def _announces(task: Task, what: str) -> bool:
    return task.announcement is not None and task.announcement.message["is"] == what
