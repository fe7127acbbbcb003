"""One controlled run of a world: wait until it is quiet, choose which pending op goes, perform it, repeat.

Quiet means that every thread is stopped at an op or an announcement, is gone, or sleeps in the kernel.  After an op only
its own rank may run, and it is known to be quiet when it stops again: the kernel is asked (`proc.asleep`) only when a
rank has not stopped after a while, and then about every thread of the world, since what wakes a sleeper may be on its
way.  What no order of ranks can change (collectives, announcements, invisible ops) is done as soon as the world is quiet,
in the order of ranks; the rest is a point.
"""

from __future__ import annotations

import json
import os
import random
import select
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from racecheck import storage
from racecheck.errors import CannotRun, UsageError
from racecheck.kernel import libc, proc, seccomp, syscalls
from racecheck.kernel.signature import Treatment
from racecheck.model import (
    Choice, Died, Event, Mismatch, Op, Outcome, Place, Point, Raised, Result, Returned, Stopped, World,
)  # fmt: skip
from racecheck.world import bookkeeping, disk, stacks
from racecheck.world.agent import Job
from racecheck.world.calls import Decoder, Request, Unreachable
from racecheck.world.collectives import Collectives, Mismatched
from racecheck.world.coverage import Ledger
from racecheck.world.files import OpenFiles
from racecheck.world.locks import Locks
from racecheck.world.perform import CARRY_ON, Answer, creates, perform
from racecheck.world.resolve import Identities, Watched
from racecheck.world.session import Session
from racecheck.world.store import RACING, Store
from racecheck.world.tasks import Announcement, Rank, Task, frames, join

_YIELDS = frozenset({"sleep", "test"})
_LOOK_AFTER = 1
_BOOT_SECONDS = 60.0


class _Over(BaseException):
    """The run has ended before its ranks have; ``why`` is "" for a mismatch, which has its own record."""

    def __init__(self, why: str = "") -> None:
        super().__init__()
        self.why = why


class Supervisor:
    """Runs a world once.  ``choose`` answers points; ``seed`` is what ranks draw their randomness from."""

    def __init__(
        self, session: Session, target: str, world: World, choose: Callable[[Point], int], *, seed: str, stacks: bool
    ) -> None:
        self._session, self._target, self._world, self._choose = session, target, world, choose
        self._seed, self._stacks = seed, stacks
        slot = session.slot
        self._watched = Watched({str(slot.watched): "", str(slot.scratch): "TMPDIR"})
        self._identities = Identities()
        self._files = OpenFiles(self._watched)
        self._decoder = Decoder(self._watched, self._identities)
        self._collectives, self._store, self._locks = Collectives(), Store(), Locks()
        self._storage = storage.make(world.storage)
        self._ledger = Ledger(str(slot.path))
        self._calls = syscalls.calls(libc.MACHINE)
        self._trace: list[Event] = []
        self._schedule: list[Choice] = []
        self._mismatch: Mismatch | None = None
        self._ranks: list[Rank] = []
        self._random: dict[int, random.Random] = {}
        self._poll = select.poll()
        self._by_descriptor: dict[int, Rank] = {}
        self._begun = False
        self._current: Task | None = None
        self._changes = 0
        self._time = 0

    def run(self) -> Outcome:
        """Raises `CannotRun` or `UsageError` where no run came about."""
        started = time.perf_counter()
        try:
            self._start()
            why = self._explore()
            self._conclude(why)
            self._session.end_world()
            return self._outcome(time.perf_counter() - started)
        finally:
            self._end()

    # Starting and ending.

    def _start(self) -> None:
        slot, session = self._session.slot, self._session
        prepare(session, self._target, self._world)
        pairs = [socket.socketpair() for _ in range(self._world.ranks)]
        self._ranks = [Rank(number, ours, self._files) for number, (ours, _) in enumerate(pairs)]
        job = Job(
            target=self._target, ranks=self._world.ranks, seed=self._seed, watched=str(slot.watched),
            scratch=str(slot.scratch), output=str(slot.output), controlled=True,
        )  # fmt: skip
        answer = session.request("fork", job=asdict(job), sockets=tuple(theirs for _, theirs in pairs))
        for rank, pid, (_, theirs) in zip(self._ranks, answer["pids"], pairs, strict=True):
            theirs.close()
            rank.pid = pid
            self._random[rank.number] = random.Random(f"{self._seed}:{rank.number}")
        self._poll.register(session.socket, select.POLLIN)
        for rank in self._ranks:
            self._meet(rank)
        self._boot()

    def _meet(self, rank: Rank) -> None:
        """Receive the rank's listener, and the pipe for its stacks."""
        rank.channel.settimeout(_BOOT_SECONDS)
        data, received, _, _ = socket.recv_fds(rank.channel, 1, 2)
        if not data or len(received) != 2:
            raise CannotRun(f"rank {rank.number} did not start: {self._last_words(rank)}")
        rank.channel.setblocking(False)
        rank.listener, rank.stack_pipe = seccomp.Listener(received[0]), received[1]
        self._by_descriptor[received[0]] = rank
        self._poll.register(received[0], select.POLLIN)

    def _boot(self) -> None:
        """Until every rank has its process group and is ready; nothing is controlled yet but the store."""
        deadline = time.monotonic() + _BOOT_SECONDS
        while not all(self._is_ready(rank) for rank in self._ranks):
            self._pump(100)
            while self._settle():
                pass
            for rank in self._ranks:
                if rank.gone:
                    raise CannotRun(f"rank {rank.number} did not get ready: {self._last_words(rank)}")
            if time.monotonic() > deadline:
                raise CannotRun(f"the process group was not up after {_BOOT_SECONDS:.0f} seconds")
        self._begun = True
        self._trace.clear()
        for rank in self._ranks:
            rank.main.clock.clear()
            self._reply(rank.main)

    def _is_ready(self, rank: Rank) -> bool:
        announced = rank.main.announcement
        return announced is not None and announced.message["is"] == "ready"

    def _last_words(self, rank: Rank) -> str:
        """The end of what a rank has printed, in one line."""
        lines = disk.tail(self._session.slot.output / str(rank.number)).splitlines()
        return lines[-1] if lines else "it said nothing"

    def _end(self) -> None:
        self._session.end_world()
        for rank in self._ranks:
            rank.close()
        self._files.close()

    # The loop.

    def _explore(self) -> str:
        """Until nothing can go on; gives the reason if it was cut short."""
        try:
            while True:
                self._wait_until_quiet()
                if self._settle():
                    continue
                options = self._options()
                if not options:
                    if self._wait_for_timers():
                        continue
                    return ""
                if len(self._trace) >= self._world.max_ops:
                    raise _Over(f"it was still going after {self._world.max_ops} ops (a loop that polls?)")
                self._execute(self._next(options))
        except _Over as over:
            return over.why

    def _wait_until_quiet(self) -> None:
        """Raises `_Over` when a rank neither stops nor sleeps for as long as the world's timeout."""
        for rank in self._ranks:
            rank.running = rank.running or (rank.asleep and not rank.gone)
        last = time.monotonic()
        while any(rank.running for rank in self._ranks):
            fresh = any(rank.running and not rank.asleep for rank in self._ranks)
            if self._pump(_LOOK_AFTER if fresh else 0):
                last = time.monotonic()
            elif not self._look() and time.monotonic() - last > self._world.timeout:
                raise _Over(f"it ran for {self._world.timeout:g} s without coming to its next op or its end")

    def _look(self) -> bool:
        """Ask the kernel whether all that may run sleeps; if so, everything is quiet."""
        pids = self._processes()
        stopped = frozenset(task.tid for rank in self._ranks for task in rank.stopped_tasks())
        first = proc.asleep(pids, stopped)
        if first is None or self._poll.poll(0) or proc.asleep(pids, stopped) != first:
            return False
        for rank in self._ranks:
            if rank.running:
                rank.running, rank.asleep = False, not rank.stopped_tasks()
            rank.single = len(rank.processes) <= 1 and not proc.children(rank.pid)
        return True

    def _processes(self) -> list[int]:
        found = []
        for rank in self._ranks:
            if not rank.gone:
                found.append(rank.pid)
            if not rank.single:
                children = proc.descendants(rank.pid)
                found += children
                self._bury(rank, {rank.pid, *children})
        return found

    def _bury(self, rank: Rank, alive: set[int]) -> None:
        """Child processes that have ended give back their descriptors and locks."""
        for pid, process in list(rank.processes.items()):
            if pid not in alive and not os.path.exists(f"/proc/{pid}"):
                self._release(process)
                rank.processes.pop(pid)
                rank.tasks = {tid: task for tid, task in rank.tasks.items() if task.process is not process}

    def _release(self, process: Any) -> None:
        self._locks.release(process)
        for file in process.descriptors.drop_range(0, 1 << 30):
            self._locks.release(file)
        process.memory.forget()

    def _pump(self, milliseconds: int) -> bool:
        """Take in what has happened; whether anything has."""
        events = self._poll.poll(milliseconds)
        for descriptor, event in events:
            rank = self._by_descriptor.get(descriptor)
            if rank is None:
                for message in self._session.gone():
                    self._gone(self._ranks[message["gone"]], message["status"])
            elif event & select.POLLIN:
                self._stopped(rank)
            else:
                self._poll.unregister(descriptor)
        return bool(events)

    def _gone(self, rank: Rank, status: int) -> None:
        hear(rank)
        rank.end(status)
        for process in rank.processes.values():
            if process.pid == rank.pid:
                self._release(process)
        rank.tasks = {tid: task for tid, task in rank.tasks.items() if not task.process.is_main}
        rank.asleep = False
        if isinstance(rank.result, Died):
            words = disk.tail(self._session.slot.output / str(rank.number))
            rank.result = replace(rank.result, output=words)

    # What stops.

    def _stopped(self, rank: Rank) -> None:
        """A call of a rank waits to be received."""
        assert rank.listener is not None
        ahead = self._ahead(rank) if self._stacks and self._begun and not rank.replaced else None
        notification = rank.listener.receive()
        if notification is None:
            return
        if notification.number == seccomp.ANNOUNCE:
            self._announced(rank, notification)
        elif not self._begun:
            rank.listener.carry_on(notification.id)
        else:
            rank.running = True
            self._called(rank, notification, ahead)
        if rank.is_quiet:
            rank.running = rank.asleep = False

    def _ahead(self, rank: Rank) -> Request | None:
        """Look at the call before it is received, and fetch its stack if it is of our concern."""
        for _ in range(100):
            call = proc.stopped_call(rank.pid, rank.pid)
            if call is not None:
                break
        else:
            return None
        row = self._calls.get(call[0])
        if row is None or row.family in bookkeeping.NEVER_OPS:
            return None
        try:
            request = self._decoder.decode(rank.main, row, call[1])
        except (OSError, Unreachable):
            return None
        if request.touches or row.family == "sleep":
            assert rank.listener is not None
            found = stacks.capture(rank.pid, rank.pid, rank.stack_pipe, rank.listener.descriptor)
            request.op = replace(request.op, stack=found)
        return request

    def _called(self, rank: Rank, notification: seccomp.Notification, ahead: Request | None) -> None:
        assert rank.listener is not None
        row = None if notification.foreign else self._calls.get(notification.number)
        if row is None:
            self._ledger.hole(f"an unknown system call, number {notification.number}")
            rank.listener.carry_on(notification.id)
            return
        task = rank.task(notification.thread)
        if task.process.has_executed:
            task.process.has_executed = False
            task.process.descriptors.executed()
        same = ahead and (ahead.call, ahead.arguments, ahead.task) == (row, notification.arguments, task)
        try:
            request = ahead if ahead and same else self._decoder.decode(task, row, notification.arguments)
        except OSError:
            rank.listener.carry_on(notification.id)
            return
        except Unreachable:
            self._ledger.hole(f"{row.name} on a watched file that could not be shared (pidfd_getfd is forbidden)")
            rank.listener.carry_on(notification.id)
            return
        request.id = notification.id
        self._dispatch(request)

    def _dispatch(self, request: Request) -> None:
        """Let a call pass, answer it at once, or keep it as the thread's pending op."""
        task, rank = request.task, request.task.rank
        task.inside = None
        answer = bookkeeping.at_once(request, self._ledger, self._random[rank.number])
        if answer is not None:
            self._answer(request, answer)
            return
        if request.call.treatment is Treatment.REFUSE:
            self._ledger.refused(request)
            self._answer(request, Answer(errno=_errno(request.call.errno)))
            return
        if not request.touches and request.call.family not in bookkeeping.WITHOUT_PLACE:
            self._ledger.passed_by(request)
            self._answer(request, CARRY_ON)
            return
        if task.process.is_main and task.tid != rank.pid:
            self._ledger.hole(f"a second thread of rank {rank.number} made calls below the watched directory")
        self._ledger.kept(request)
        bookkeeping.describe(request)
        request.seen = self._changes
        task.request = request

    def _announced(self, rank: Rank, notification: seccomp.Notification) -> None:
        address, length, reply, room = notification.arguments[:4]
        task = rank.task(notification.thread)
        message = json.loads(task.process.memory.read(address, length))
        task.announcement = Announcement(notification.id, message, reply, room)
        task.inside = None
        if self._begun and (message["is"] == "test" or (message["is"] == "store" and message["do"] in RACING)):
            keys = message.get("arguments", [])[:1]
            places = tuple(Place(f"store:{key}", 0, str(key), 0, "") for key in keys)
            task.announcement.op = Op(
                rank.number, task.name, message["is"], message.get("do", "is_completed"), places,
                stack=frames(message.get("stack")),
            )  # fmt: skip

    # What goes on without a choice.

    def _settle(self) -> bool:
        """Answer whatever no choice could change, in the order of ranks; whether anything was."""
        answered = False
        for task in self._stopped_tasks():
            if task.announcement is not None and task.announcement.op is None:
                answered |= self._try_announcement(task)
            elif task.request is not None and not self._is_visible(task.request):
                self._execute(task)
                answered = True
        return answered or self._let_leave()

    def _stopped_tasks(self) -> list[Task]:
        return [task for rank in self._ranks for task in sorted(rank.stopped_tasks(), key=lambda each: each.name)]

    def _is_visible(self, request: Request) -> bool:
        return bookkeeping.releases(request, self._locks) or self._storage.visible(request.op)

    def _try_announcement(self, task: Task) -> bool:
        assert task.announcement is not None
        message = task.announcement.message
        if message["is"] == "issue":
            return self._issue(task, message)
        if message["is"] == "wait":
            return self._wait(task, message["ticket"])
        if message["is"] == "store":
            return self._use_store(task, message)
        return False

    def _issue(self, task: Task, message: dict[str, Any]) -> bool:
        try:
            ticket, event = self._collectives.issue(task.rank.number, message, task.tick())
        except Mismatched as found:
            self._mismatch = found.mismatch
            raise _Over from None
        if event is not None:
            self._trace.append(event)
        self._reply(task, ticket)
        return True

    def _wait(self, task: Task, ticket: int) -> bool:
        instance = self._collectives.instance(ticket)
        number = task.rank.number
        if instance.may_return(number):
            join(task.clock, *(instance.clocks[each] for each in instance.before(number)))
        elif not any(self._ranks[each].failed for each in instance.missing):
            return False
        self._reply(task)
        task.inside = instance
        return True

    def _use_store(self, task: Task, message: dict[str, Any]) -> bool:
        do, arguments = message["do"], message["arguments"]
        if self._store.missing(do, arguments):
            return False
        self._reply(task, self._store.do(do, arguments, task.clock))
        return True

    def _let_leave(self) -> bool:
        """Ranks end, and shut process groups down, only when nothing else goes on by itself: so nobody's connection
        closes while a peer is still on its way out of a collective."""
        leaving = [
            task
            for task in self._stopped_tasks()
            if task.announcement is not None and task.announcement.message["is"] in {"exit", "shutdown"}
        ]
        for task in leaving:
            self._reply(task)
        return bool(leaving)

    # What is chosen.

    def _options(self) -> list[Task]:
        """The threads whose pending op may go, the tamest first."""
        able = [task for task in self._stopped_tasks() if task.op is not None and self._is_enabled(task)]
        yielding = [task for task in able if task.op is not None and task.op.call in _YIELDS]
        going = [task for task in able if task not in yielding]
        if self._current in going:
            going.remove(self._current)
            going.insert(0, self._current)
        return going + yielding

    def _is_enabled(self, task: Task) -> bool:
        return task.request is None or bookkeeping.is_enabled(task.request, self._locks)

    def _next(self, options: list[Task]) -> Task:
        if len(options) == 1:
            return options[0]
        ops = tuple(task.op for task in options if task.op is not None)
        index = self._choose(Point("next", ops))
        self._schedule.append(Choice("next", len(ops), index, ops[index].label))
        return options[index]

    def _execute(self, task: Task) -> None:
        """Perform a pending op, record it and answer it."""
        self._current = task
        if task.request is None:
            self._execute_announced(task)
            return
        request = task.request
        if request.seen != self._changes:
            self._decoder.resolve(request)
        answer = self._perform(request)
        if answer.opened >= 0:
            answer = self._hand_out(request, answer)
        self._record(request, answer)
        task.request = None
        if answer.opened < 0:
            self._answer(request, answer)
        request.close()
        task.rank.running = True

    def _perform(self, request: Request) -> Answer:
        makes = creates(request)
        try:
            answer = bookkeeping.perform(request, self._locks)
            if answer is None:
                continues = request.call.treatment is Treatment.CONTINUE
                answer = CARRY_ON if continues else perform(request)
        except OSError:
            return CARRY_ON
        if makes and not answer.errno and not answer.carry_on:
            self._created(request, answer)
        return answer

    def _created(self, request: Request, answer: Answer) -> None:
        if answer.opened >= 0:
            self._identities.created(os.fstat(answer.opened))
        else:
            located = list(request.located.values())[-1]
            self._identities.created(os.lstat(located.via.rstrip("/")))

    def _hand_out(self, request: Request, answer: Answer) -> Answer:
        """Install an opened file in the rank, which answers its call."""
        task, listener = request.task, request.task.rank.listener
        assert listener is not None
        descriptors = task.process.descriptors
        number = descriptors.free_number(request.op.args.get("minimum", 0))
        installed = listener.give(request.id, answer.opened, number, close_on_exec=answer.close_on_exec)
        if installed < 0:
            os.close(answer.opened)
            return Answer(errno=-installed)
        file = next(iter(request.files.values()), None) if request.call.family in {"dup", "fcntl"} else None
        if file is not None:
            os.close(answer.opened)
        descriptors.set(number, file or self._files.add(answer.opened))
        return replace(answer, value=number)

    def _record(self, request: Request, answer: Answer) -> None:
        task = request.task
        if request.op.call == "sleep":
            self._time += request.op.args["nanoseconds"]
        result = Result(
            errno=libc.errno_name(answer.errno), value=answer.value, size=answer.size, digest=answer.digest,
            known=not answer.carry_on,
        )  # fmt: skip
        op = replace(request.op, result=result, clock=task.tick(), time=self._time)
        self._trace.append(op)
        self._changes += 1

    def _execute_announced(self, task: Task) -> None:
        assert task.announcement is not None
        message, op = task.announcement.message, task.announcement.op
        assert op is not None
        if message["is"] == "test":
            instance = self._collectives.instance(message["ticket"])
            value = instance.may_return(task.rank.number)
        else:
            value = self._store.do(message["do"], message["arguments"], task.clock)
        result = Result(value=value if isinstance(value, int) else 0)
        self._trace.append(replace(op, result=result, clock=task.tick(), time=self._time))
        self._reply(task, value)

    # Answering.

    def _answer(self, request: Request, answer: Answer) -> None:
        listener = request.task.rank.listener
        assert listener is not None
        if answer.opened >= 0:
            answer = self._hand_out(request, answer)
            if answer.opened >= 0:
                return
        if answer.carry_on:
            listener.carry_on(request.id)
        else:
            listener.answer(request.id, answer.value, answer.errno)
        request.close()

    def _reply(self, task: Task, data: Any = None) -> None:
        announced, listener = task.announcement, task.rank.listener
        assert announced is not None
        assert listener is not None
        raw = b"" if data is None else json.dumps(data).encode()
        error = 0
        if len(raw) > announced.room:
            raw, error = b"", 75  # EOVERFLOW
        try:
            task.process.memory.write(announced.reply, raw)
        except OSError:
            raw, error = b"", 14
        task.announcement = None
        task.rank.running = True
        listener.answer(announced.id, len(raw), error)

    # When nothing goes on.

    def _wait_for_timers(self) -> bool:
        """A sleeper whose wait has a real time limit will wake; whether there was one, and something happened."""
        sleepers = [rank for rank in self._ranks if rank.asleep and rank.main.inside is None]
        if not any(_is_timed(rank) for rank in sleepers):
            return False
        self._ledger.hole("a wait with a time limit in real time")
        if not self._pump(int(self._world.timeout * 1000)):
            raise _Over(f"nothing happened for {self._world.timeout:g} s")
        return True

    def _conclude(self, why: str) -> None:
        """Say of every rank that has not ended what it was at."""
        for rank in self._ranks:
            hear(rank)
        anyone_failed = any(isinstance(rank.result, (Raised, Died)) for rank in self._ranks)
        for rank in self._ranks:
            if rank.result is None or rank.running:
                rank.result = self._stop(rank, why, anyone_failed)
        if self._collectives.ambiguous:
            self._ledger.hole("a receive from any source that had several senders, or none yet")

    def _stop(self, rank: Rank, why: str, anyone_failed: bool) -> Stopped:
        task = rank.tasks.get(rank.pid)
        if why and rank.running:
            return Stopped("running", why, self._stack_now(rank))
        if task is not None and task.announcement is not None and task.announcement.message["is"] == "wait":
            instance = self._collectives.instance(task.announcement.message["ticket"])
            stack = frames(task.announcement.message.get("stack"))
            missing = ", ".join(self._missing(each) for each in instance.missing)
            return Stopped("echo" if anyone_failed else "collective", f"waits in {instance} for {missing}", stack)
        if task is not None and task.request is not None and not self._is_enabled(task):
            return Stopped("lock", f"waits for the lock on {task.request.op.path}", task.request.op.stack or ())
        if task is not None and task.inside is not None and task.inside.missing:
            missing = ", ".join(self._missing(each) for each in task.inside.missing)
            return Stopped("echo" if anyone_failed else "collective", f"is in {task.inside}, waiting for {missing}", self._stack_now(rank))
        if why or self._mismatch:
            return Stopped("running" if why else "echo", why or "the run was stopped", self._stack_now(rank))
        return Stopped("echo" if anyone_failed else "asleep", "sleeps, and nothing can wake it", self._stack_now(rank))

    def _missing(self, number: int) -> str:
        rank = self._ranks[number]
        if not rank.gone:
            return f"rank {number}"
        return f"rank {number}, which has {'returned' if isinstance(rank.result, Returned) else 'failed'}"

    def _stack_now(self, rank: Rank) -> tuple[Any, ...]:
        if rank.gone or (rank.pid in rank.tasks and rank.main.stopped):
            op = rank.main.op if not rank.gone else None
            return (op.stack or ()) if op is not None else ()
        return stacks.capture(rank.pid, rank.pid, rank.stack_pipe) or ()

    def _outcome(self, seconds: float) -> Outcome:
        for rank in self._ranks:
            assert rank.result is not None
        first = [rank.result for rank in self._ranks if isinstance(rank.result, (Raised, Died))]
        causes = [each for each in first if not (isinstance(each, Raised) and each.echo)]
        results = tuple(_without_echo(rank.result) if not causes else rank.result for rank in self._ranks)
        return Outcome(
            world=self._world,
            trace=tuple(self._trace),
            schedule=tuple(self._schedule),
            results=results,  # type: ignore[arg-type]
            disk=disk.read(self._session.slot.watched),
            outside=self._ledger.outside(),
            mismatch=self._mismatch,
            coverage=self._ledger.coverage(sum(isinstance(event, Op) for event in self._trace)),
            seconds=seconds,
        )

    def modules(self) -> list[str]:
        """What ranks had to import on the way."""
        return sorted({module for rank in self._ranks for module in rank.modules})


def prepare(session: Session, target: str, world: World) -> None:
    """Make the session's directory ready and run the scenario's setup; raises `UsageError` if that fails."""
    slot = session.slot
    slot.reset(world.ranks)
    answer = session.request("setup", target=target, path=str(slot.watched), output=f"{slot.output}/setup")
    if answer["failed"]:
        raise UsageError(f"the setup of {target} failed: {answer['failed'].strip().splitlines()[-1]}")


def hear(rank: Rank) -> None:
    """Take in the result that a rank has sent."""
    for line in rank.lines():
        message = json.loads(line)
        if "usage" in message:
            raise UsageError(message["usage"])
        rank.modules = message["modules"]
        rank.result = _result(message["result"])


def _result(raw: dict[str, Any]) -> Returned | Raised | Died:
    kind = raw.pop("type_name")
    if kind == "Returned":
        return Returned(raw["value"])
    if kind == "Died":
        return Died(**raw)
    raw["stack"] = frames([[each["file"], each["line"], each["function"]] for each in raw["stack"]])
    raw["bases"] = tuple(raw["bases"])
    return Raised(**raw)


def _without_echo(result: Any) -> Any:
    return replace(result, echo=False) if isinstance(result, Raised) else result


def _errno(name: str) -> int:
    import errno

    return int(getattr(errno, name))


def _is_timed(rank: Rank) -> bool:
    """Whether the main thread sleeps in a call that has a time limit."""
    call = proc.stopped_call(rank.pid, rank.pid)
    return call is not None and bookkeeping.has_timeout(*call)

