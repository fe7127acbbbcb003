"""The supervisor's view of ranks: their processes, their threads, and the stop of each thread."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from racecheck.kernel import proc
from racecheck.kernel.memory import Memory
from racecheck.kernel.signature import Role
from racecheck.kernel.syscalls import Call
from racecheck.model.hypercalls import Exit, Hypercall
from racecheck.model.nouns import Op, Returned
from racecheck.model.ops.locks import Lock
from racecheck.model.ops.unstable_names import Names
from racecheck.model.vector_clock import Clock
from racecheck.supervisor.files.open_files import Descriptors, OpenFile, OpenFiles
from racecheck.supervisor.files.paths import Located, ThreadView
from racecheck.supervisor.state.rank_parts import Phase, RankEnd, RankPast, Wire, stirred

if TYPE_CHECKING:
    from racecheck.kernel.path_walk import Mount
    from racecheck.supervisor.state.collectives import Instance


MOST = 0x7FFFF000
"""The most bytes that one read or write moves: MAX_RW_COUNT of read(2)."""


@dataclass(slots=True, eq=False)
class Request:
    """A call that waits for its answer.

    ``located`` and ``files`` say, by index of the argument, where its paths lead and what its descriptors
    refer to; ``paths`` are the paths as given.  ``op`` is the pending op, ``lock`` the lock that it is about, ``until``
    the virtual time at which a sleep ends, and ``seen`` how many ops had been performed when it was placed, -1 before.
    ``left`` is how many nanoseconds a sleep that a signal has interrupted would have gone on for.  ``most``
    is how many bytes may move, ``received`` when the call came in (CLOCK_MONOTONIC).  Of a call in parts
    ``walked`` says how far its paths were followed (an O_PATH handle, which it owns, and the rest of the path) and
    ``walks`` how often, and ``done`` how many bytes have moved.
    """

    task: Task
    id: int
    call: Call
    arguments: tuple[int, ...]
    op: Op
    located: dict[int, Located] = field(default_factory=dict)
    files: dict[int, OpenFile] = field(default_factory=dict)
    paths: dict[int, bytes] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    how: tuple[int, int, int] | None = None
    lock: Lock | None = None
    until: int = 0
    left: int = 0
    seen: int = -1
    most: int = MOST
    received: int = 0
    walked: dict[int, tuple[int, str]] = field(default_factory=dict)
    walks: int = 0
    done: int = 0

    @property
    def touches(self) -> bool:
        """Whether it is about anything in the watched directories, or a link there decides its subject."""
        return bool(self.files) or any(
            each.shown is not None or each.crossed or each.through for each in self.located.values()
        )

    @property
    def file(self) -> OpenFile:
        """Return the open file that a call on one descriptor is about.

        Raises `OSError` if another thread has closed the descriptor while the call was pending.
        """
        for found in self.files.values():
            return found
        raise OSError(errno.EBADF, "closed by another thread")

    def is_of(self, call: Call, arguments: tuple[int, ...]) -> bool:
        """Return whether it is this call with these arguments."""
        return (self.call, self.arguments) == (call, arguments)

    def number(self, name: str) -> int:
        """Return an ``int`` or ``long`` argument by name."""
        return self.op.args[name]

    def raw(self, role: Role) -> int:
        """Return the register of the first argument with this role."""
        return self.arguments[self.index(role)]

    def index(self, role: Role) -> int:
        return next(index for index, arg in enumerate(self.call.args) if arg.role is role)

    @property
    def view(self) -> ThreadView:
        """Return how the calling thread sees the file system."""
        return ThreadView(self.task.process.pid, self.task.tid, self.task.rank.mount)

    def close(self) -> None:
        """Close all handles."""
        self.forget()
        for handle, _ in self.walked.values():
            os.close(handle)
        self.walked.clear()

    def forget(self) -> None:
        """Close the handles of where its paths lead."""
        for each in self.located.values():
            each.close()
        self.located.clear()


@dataclass(frozen=True, slots=True)
class MemoryWait:
    """A call that waits until a ``word`` in memory is not ``expected`` any more."""

    id: int
    word: int
    expected: int


@dataclass(slots=True)
class HypercallStop:
    """A hypercall that waits for its answer, which goes to the address ``reply`` and has ``room`` bytes there.

    It has an ``op`` if the answer depends on the order of ranks.  ``since`` is when it was placed (virtual time).
    """

    id: int
    call: Hypercall
    reply: int
    room: int
    op: Op | None = None
    since: int = 0


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that is held before it is made.

    A connect until somebody listens, a wait for descriptors, with a limit, until one is ready, and a question for a
    missing file until that is there.
    """

    request: Request


Stop = Request | HypercallStop | HeldCall | MemoryWait
_AT_OPS = (Request, HypercallStop)
"""Stops that have an op.  (A tuple: asked for each thread at each step, and a union would be made each time.)"""


@dataclass(slots=True, eq=False)
class Process:
    """A process of a rank: the rank itself, or a child that it started."""

    rank: Rank
    pid: int
    memory: Memory
    descriptors: Descriptors
    number: int = 0
    """The number by which locks name it, 0 for a rank's own process and before its first lock."""
    has_executed: bool = False
    is_foreign: bool = False

    @property
    def is_main(self) -> bool:
        return self.pid == self.rank.pid

    @property
    def is_another_program(self) -> bool:
        return self.has_executed or self.is_foreign


@dataclass(slots=True, eq=False)
class Task:
    """A thread.

    It is stopped ``at`` one thing, or it runs, as far as is known.
    """

    process: Process
    tid: int
    name: str
    """Its parent's with the number of the child; while it works on an item of a thread pool, the item's."""
    own_name: str = ""
    """Its name when it works on no item."""
    clock: Clock = field(default_factory=dict)
    children: int = 0
    workers: int = 0
    hiring: bool = False
    """A thread that it starts now is a worker of a pool."""
    started: bool = False
    """It has shown itself as one of the program's own, by a call or a hypercall."""
    fresh: bool = False
    """It has stopped since the world was last quiet."""
    deadline: int = 0
    """When the wait that it was seen in would end by itself (CLOCK_MONOTONIC, 0 for never)."""
    released: int = 0
    """When a call of its was last answered (CLOCK_MONOTONIC)."""
    limit: int = 0
    """How many nanoseconds it has named for its next wait."""
    timeouts: int = 0
    """How many waits for descriptors have timed out in a row, without another call that is seen."""
    at: Stop | None = None
    inside: Instance | None = None
    """The collective that it was let into and has not been seen to leave."""
    leaves: bool = False
    """It has been let into a collective, and will say that it has left it."""
    makes_group: bool = False
    """It makes a process group."""
    sleeps: bool = False
    """It slept when all threads of its rank were last looked at, and has not been released since."""

    @property
    def rank(self) -> Rank:
        return self.process.rank

    def stop(self, at: Stop) -> None:
        """Note that it has stopped: it is stopped nowhere else."""
        assert self.at is None, f"{self.name} is stopped twice"
        self.at = at

    def lose(self) -> None:
        """Note that its stop is gone: nobody waits for the answer any more."""
        for request in (self.request, self.wait):
            if request is not None:
                request.close()
        self.at = None

    def release(self) -> None:
        """Note that its stop is answered."""
        assert self.at is not None, f"{self.name} is not stopped"
        self.at = None

    @property
    def request(self) -> Request | None:
        """The call that it is stopped at as an op, if it is."""
        return self.at if isinstance(self.at, Request) else None

    @property
    def hypercall(self) -> HypercallStop | None:
        return self.at if isinstance(self.at, HypercallStop) else None

    @property
    def wait(self) -> Request | None:
        """The connect, wait for descriptors or question for a file that it is held before (`timed_waits`), if it is."""
        return self.at.request if isinstance(self.at, HeldCall) else None

    @property
    def selects(self) -> bool:
        """Whether it is held before a wait for descriptors."""
        return self.wait is not None and self.wait.call.family == "select"

    @property
    def memory_wait(self) -> MemoryWait | None:
        """The wait for memory that it is held before (`memory_waits`), if it is."""
        return self.at if isinstance(self.at, MemoryWait) else None

    @property
    def stopped(self) -> bool:
        return isinstance(self.at, _AT_OPS)

    @property
    def waits(self) -> bool:
        """Whether it is stopped in a wait with a time limit, which another thread may end."""
        return self.request is not None and self.request.call.family == "wait"

    @property
    def stands(self) -> bool:
        """Whether it is stopped, whatever other threads do."""
        return self.stopped and not self.waits

    @property
    def is_held(self) -> bool:
        """Whether it is still until we answer."""
        return self.stopped or self.wait is not None or self.tid in self.rank.gil

    @property
    def op(self) -> Op | None:
        """The pending op, if it is stopped at one."""
        return self.at.op if isinstance(self.at, _AT_OPS) else None

    @property
    def call(self) -> Hypercall | None:
        """The hypercall that it is stopped in, if it is."""
        return self.hypercall.call if self.hypercall is not None else None

    def next_child(self) -> str:
        """Return the name of a thread, process or item that it starts."""
        if self.hiring:
            self.workers += 1
            return f"{self.name}.worker{self.workers}"
        self.children += 1
        return f"{self.name}.{self.children}"

    def tick(self) -> Clock:
        """Return the clock of the thread's next event."""
        self.clock[self.name] = self.clock.get(self.name, 0) + 1
        return dict(self.clock)


@dataclass(slots=True, eq=False)
class Rank:
    """A rank: its processes, and the threads of these."""

    number: int
    wire: Wire
    files: OpenFiles
    end: RankEnd = field(default_factory=RankEnd)
    past: RankPast = field(default_factory=RankPast)
    phase: Phase = Phase.RUNS
    pid: int = 0
    single: bool = True
    """It has no thread or process but the main one and those of the ``background``, so it is quiet once that stops."""
    background: frozenset[int] = frozenset()
    """Gloo's threads, from before the run."""
    unborn: tuple[str, Task] | None = None
    """The name of a thread or process that is being started, with its parent: one at a time, so the next is it."""
    items: dict[str, Clock] = field(default_factory=dict)
    """The clocks with which work was given to pools."""
    ahead: dict[int, Request] = field(default_factory=dict)
    """The calls of threads that were looked at before they were received."""
    mount: Mount | None = None
    """Its node's disk, which other nodes do not see."""
    last: Task | None = None
    """The thread that was released last."""
    dropped: set[int] = field(default_factory=set)
    """The threads that the end of their interpreter has cut."""
    gil: dict[int, MemoryWait] = field(default_factory=dict)
    """The threads that are stopped before they wait for the GIL, with their waits."""
    names: Names = field(default_factory=Names)
    numbered: int = 0
    """The number of processes that it has started and that have locked files."""
    processes: dict[int, Process] = field(default_factory=dict)
    tasks: dict[int, Task] = field(default_factory=dict)

    @property
    def main(self) -> Task:
        return self.task(self.pid)

    def wake(self) -> None:
        """Note that one of its threads continues, and has to be waited for."""
        self.phase = Phase.RUNS

    def stir(self) -> None:
        """Note that one of its threads may continue."""
        self.phase = stirred(self.phase)

    @property
    def gone(self) -> bool:
        """Whether its main process has ended."""
        return self.end.is_over

    def process(self, tid: int) -> Process:
        """Return the process that a thread belongs to."""
        pid, parent = tid, 0
        if tid != self.pid and tid not in self.processes:
            status = proc.status(tid)
            pid, parent = int(status.get("Tgid", tid)), int(status.get("PPid", 0))
        if pid not in self.processes:
            descriptors = Descriptors(pid, self.files)
            if parent in self.processes:
                descriptors.inherit(self.processes[parent].descriptors)
            self.processes[pid] = Process(self, pid, Memory(pid), descriptors)
        return self.processes[pid]

    def number_of(self, process: Process) -> int:
        """Return 0 for the rank's own process, else the number of the other one, in the order of their first locks."""
        if process.is_main:
            return 0
        if not process.number:
            self.numbered += 1
            process.number = self.numbered
        return process.number

    def task(self, tid: int) -> Task:
        """Return the task of a thread; a new one is entered and named."""
        if tid not in self.tasks:
            if tid == self.pid:
                name, clock = str(self.number), Clock()
            elif self.unborn is not None and tid not in self.background:
                (name, parent), self.unborn = self.unborn, None
                clock = dict(parent.clock)
            else:
                name, clock = f"{self.number}.unknown{len(self.tasks)}", dict(self.main.clock)
            self.tasks[tid] = Task(self.process(tid), tid, name, name, clock)
        return self.tasks[tid]

    def bear(self, parent: Task) -> None:
        """Note that ``parent`` starts a thread or a process."""
        self.unborn, self.single = (parent.next_child(), parent), False

    def await_birth(self, waiting: Task) -> None:
        """Note that ``waiting`` is about to start another thread or process.

        What is being started now has to be seen before, or be gone again already; otherwise the next one to appear
        would be taken for it.  (It may have done nothing that is seen, and its parent may have ended, too.)
        """
        while self.unborn is not None:
            parent = self.unborn[1]
            is_starting = parent is not waiting and proc.may_be_starting_one(parent.process.pid, parent.tid)
            found = [*proc.threads(self.pid), *(proc.descendants(self.pid) if self.past.forked else ())]
            fresh = [tid for tid in found if tid not in self.tasks and tid not in self.background]
            if fresh:
                self.task(fresh[0])
            elif not is_starting:
                self.unborn = None

    def stopped_tasks(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.stopped]

    @property
    def _stops(self) -> list[Stop]:
        return [task.at for task in self.tasks.values() if task.at is not None]

    @property
    def waiting_for_memory(self) -> list[int]:
        """The threads that are stopped before a wait for memory."""
        return [tid for tid, task in self.tasks.items() if task.memory_wait is not None]

    def drop(self, tasks: Iterable[Task]) -> None:
        """Drop threads that do nothing any more: their last stop is never answered."""
        for task in tasks:
            task.lose()
            self.dropped.add(task.tid)
            del self.tasks[task.tid]
        self.background |= self.dropped

    @property
    def unanswered(self) -> list[int]:
        """The calls that its threads are stopped in, by the ids of their notifications."""
        stops = [each.request if isinstance(each, HeldCall) else each for each in self._stops]
        return [each.id for each in (*stops, *self.gil.values())]

    @property
    def is_quiet(self) -> bool:
        """Whether it is known, without asking the kernel, that nothing of this rank runs."""
        return self.single and (self.gone or (self.main.stands and not self.gil))

    @property
    def is_at_end(self) -> bool:
        """Whether its main process has ended, or has nothing left to do but that."""
        if self.gone or self.end.is_due:
            return True
        return isinstance(self.main.call, Exit)

    @property
    def has_threads(self) -> bool:
        """Whether the program has several threads or processes."""
        return sum(task.started for task in self.tasks.values()) > 1

    @property
    def has_stopped(self) -> bool:
        """Whether every thread known to be the program's has stopped, at an op or for the GIL."""
        return self.gone or all(task.stands or task.tid in self.gil for task in self.tasks.values() if task.started)

    @property
    def has_only_waiting(self) -> bool:
        """Whether each of its threads is known to have stopped, none in a collective, and one before a wait."""
        if self.past.forked or self.gone or not (self.gil or self.waiting_for_memory):
            return False
        if any(task.inside is not None for task in self.tasks.values()):
            return False
        threads = {*proc.threads(self.pid)} - self.background
        held = {tid for tid, task in self.tasks.items() if task.stands or task.memory_wait or task.wait}
        return threads <= held | {*self.gil}

    @property
    def is_still(self) -> bool:
        """Whether every thread of the program has stopped, or slept when it was last looked at."""
        own = [task for task in self.tasks.values() if task.started]
        return self.gone or all(
            task.stands or task.sleeps or task.memory_wait or task.wait or task.tid in self.gil for task in own
        )

    @property
    def failed(self) -> bool:
        """Whether it has ended without returning."""
        return self.gone and not isinstance(self.end.result, Returned)

    def end_with(self, status: int) -> None:
        """Note the end of its main process; its other processes continue without it."""
        self.end.note(status)
        self.phase = Phase.RUNS if self.past.forked else Phase.STILL

    def close(self) -> None:
        self.wire.close()
        for request in [*self.ahead.values(), *(task.request for task in self.tasks.values() if task.request)]:
            request.close()
