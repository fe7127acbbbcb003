"""The state of one run, shared by the parts of the supervisor."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from racecheck.model.hypercalls import UseStore, Wait
from racecheck.model.nouns import Choice, Op, Point, PointKind, World
from racecheck.model.ops.lock_ops import waits
from racecheck.model.ops.locks import Locks
from racecheck.model.ops.unstable_names import Names
from racecheck.storage import Storage
from racecheck.supervisor.calls import locks
from racecheck.supervisor.files.paths import Identities
from racecheck.supervisor.finish.trace import Trace
from racecheck.supervisor.run.boot import Members
from racecheck.supervisor.run.channels import Channels
from racecheck.supervisor.run.unseen import Unseen
from racecheck.supervisor.state.collectives import Collectives
from racecheck.supervisor.state.coverage import Ledger
from racecheck.supervisor.state.decoder import Decoder
from racecheck.supervisor.state.livelock import Livelock
from racecheck.supervisor.state.tasks import Rank, Task
from racecheck.supervisor.state.told import Told
from racecheck.supervisor.state.virtual_time import VirtualTime


@dataclass(slots=True)
class RunState:
    """The state that the parts of the supervisor share.

    ``choose`` answers points, ``current`` is the thread chosen last, and
    ``stacks`` says whether ops carry the stack that made them.  ``cause`` is the clock of the last op that was chosen:
    until the next one is, that op is the cause of all that happens.  ``cut`` are the ops of threads that ended with
    their process, each with the index of the event that ended it.
    """

    crew: Members
    world: World
    storage: Storage
    choose: Callable[[Point], int]
    ledger: Ledger
    stacks: bool
    time: VirtualTime
    identities: Identities = field(default_factory=Identities)
    collectives: Collectives = field(default_factory=Collectives)
    locks: Locks = field(default_factory=Locks)
    schedule: list[Choice] = field(default_factory=list)
    seed: str = "0"
    names: Names = field(default_factory=Names)
    _randomness: dict[str, random.Random] = field(default_factory=dict)
    told: Told = field(default_factory=Told)
    current: Task | None = None
    cause: Mapping[str, int] = field(default_factory=dict)
    cut: list[tuple[int, Op]] = field(default_factory=list)
    trace: Trace = field(init=False)
    livelock: Livelock = field(init=False)
    is_livelocked: bool = False
    unseen: Unseen = field(init=False)
    channels: Channels = field(init=False)

    def __post_init__(self) -> None:
        self.identities.meet(self.crew.files.watched)
        self.trace = Trace(self.time)
        self.channels = Channels(self.ledger, self.ranks)
        self.livelock = Livelock(self.time)
        self.unseen = Unseen(self.ledger, self.crew.files.watched, self.world)

    def check_deadline(self, task: Task) -> None:
        """Note how the wait that a thread was seen in has ended: by time, or not."""
        if task.deadline and time.monotonic_ns() >= task.deadline:
            self.ledger.hole("a wait with a real-time limit")
        task.deadline = 0

    @property
    def ranks(self) -> list[Rank]:
        return self.crew.ranks

    @property
    def decoder(self) -> Decoder:
        return Decoder(self.crew.files.watched, self.identities, self.names)

    def decide(self, kind: PointKind, options: tuple[Op, ...]) -> int:
        """Ask for one of several options, and keep the choice; returns its index."""
        index = self.choose(Point(kind, options, self.trace.events))
        self.schedule.append(Choice(kind, len(options), index, options[index].label))
        return index

    def randomness(self, thread: str) -> random.Random:
        """Return the random stream of a thread, by the thread's name."""
        if thread not in self._randomness:
            self._randomness[thread] = random.Random(f"{self.seed}:{thread}")
        return self._randomness[thread]

    def end(self, tasks: Iterable[Task]) -> None:
        """Note that these threads have ended with the last event, at whatever op each of them was."""
        ordered = sorted(tasks, key=lambda task: task.name)
        if any(map(self._waits_for_others, ordered)):
            self.ledger.untried("the rest of a thread that ended with its process while waiting")
        self.cut += [(len(self.trace) - 1, op) for op in self.pending(ordered)]

    def cut_others(self, last: Task, *, own: bool = False) -> None:
        """End the other threads of a process with it, at whatever op each of them is.

        When only its interpreter ends (``own``), only the program's own threads end: gloo's continue.
        """
        others = [task for task in last.rank.tasks.values() if task.process is last.process and task is not last]
        others = [task for task in others if task.started or not own]
        self.end(others)
        last.rank.drop(others)

    def ending(self, op: Op, task: Task) -> Op:
        """Return the op of the end of a thread's process, with the files whose locks it releases."""
        return locks.ending(op, task.process, self.locks, self.decoder)

    def _waits_for_others(self, task: Task) -> bool:
        """Return whether a thread is stopped where another one's action may let it continue."""
        if isinstance(task.call, UseStore):
            return bool(self.crew.store.missing(task.call.do, task.call.arguments))
        op = task.op
        return isinstance(task.call, Wait) or task.leaves or (op is not None and waits(op))

    def pending(self, tasks: Iterable[Task]) -> list[Op]:
        """Return the ops at which threads are, with the clocks that they would have."""
        return [replace(self.with_keys(task.op), clock=task.tick()) for task in tasks if task.op is not None]

    def with_keys(self, op: Op) -> Op:
        """Return an operation on the store, with which of its keys are present: their "inode" is 1."""
        if op.call != "store":
            return op
        there = self.crew.store
        return replace(op, places=tuple(replace(place, inode=int(place.name in there)) for place in op.places))

    def stopped_tasks(self) -> list[Task]:
        """Return the threads that wait for us, in the order of ranks."""
        return [task for rank in self.ranks for task in sorted(rank.stopped_tasks(), key=lambda each: each.name)]

    def held_tasks(self) -> list[Task]:
        """Return the threads that are held in a wait with a limit, or before they connect, in the order of ranks."""
        held = ([task for task in rank.tasks.values() if task.wait is not None] for rank in self.ranks)
        return [task for each in held for task in sorted(each, key=lambda task: task.name)]


class Over(BaseException):
    """The run has ended before its ranks have; ``why`` is "" for a mismatch, which has its own record."""

    def __init__(self, why: str = "") -> None:
        super().__init__()
        self.why = why
