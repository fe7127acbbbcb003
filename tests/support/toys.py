"""Toy worlds in memory, to test explorers with: small programs, a file system, and brute force as the judge.

A program's actors are the ranks of a world.  `run` does what the supervisor does with real ranks (when ops are placed,
what is offered as options, how clocks go on), without processes; `every_run` goes through all schedules there are.
"""

from __future__ import annotations

import errno
import hashlib
import math
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, islice, pairwise
from random import Random
from typing import Any, Literal, NamedTuple

from racecheck.faults import Plan
from racecheck.model.nouns import (
    Choice,
    Collective,
    DiskEntry,
    Event,
    Fault,
    Op,
    Outcome,
    Place,
    Point,
    RankResult,
    Result,
    Returned,
    Stopped,
    World,
)
from racecheck.model.ops.footprint import depends
from racecheck.model.ops.locks import END, EXCLUSIVE, SHARED, UNLOCK, Lock, Locks
from racecheck.scheduling.relation import Relation
from racecheck.scheduling.strategies import Strategy

Clock = dict[str, int]


class Seen(NamedTuple):
    """What an actor sees of an instruction: an errno by name, or else what was read, listed, found or sent."""

    errno: str = ""
    text: str = ""

    def __str__(self) -> str:
        return self.errno or self.text


@dataclass(frozen=True, slots=True)
class Do:
    """An instruction, and what follows it if it went well or if it did not.

    ``what``: stat, mkdir, rmdir, unlink, rename (to ``other``), open (and truncate), write (``other``), read, list,
    lock, trylock, unlock, close (of a lock's file), sleep; barrier, broadcast and gather (``root``); start (a thread
    that does ``then``).  Reading and listing go well if there is something.  What needs a descriptor opens the file
    first if the actor has not yet, which is an op of its own.  A lock has a ``kind`` ("flock", "posix", "ofd") and a
    ``mode`` ("EX", "SH"); a record lock has a ``span`` of bytes, its start and its length, 0 for all that follow.
    """

    what: str
    path: str = ""
    other: str = ""
    then: tuple[Do, ...] = ()
    otherwise: tuple[Do, ...] = ()
    root: int = 0
    mode: str = "EX"
    kind: str = "flock"
    span: tuple[int, int] = (0, 0)


Script = Callable[[], Generator[Do, Seen, None]]
Actor = tuple[Do, ...] | Script


@dataclass(frozen=True, slots=True)
class Program:
    """``directories`` and ``files`` are there at the start; every actor has ``inherited`` files open, to lock them."""

    actors: tuple[Actor, ...]
    directories: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    inherited: tuple[str, ...] = ()
    max_ops: int = 500
    faults: tuple[Fault, ...] = ()


# The file system.


@dataclass(slots=True, eq=False)
class Inode:
    """``last`` is the path that it had when it lost its name."""

    kind: Literal["file", "directory"]
    data: bytes = b""
    entries: dict[str, Inode] = field(default_factory=dict)
    last: str = ""


@dataclass(slots=True, eq=False)
class OpenFile:
    number: int
    inode: Inode
    position: int = 0


@dataclass(slots=True, eq=False)
class Call:
    """What an actor asks for; ``opened`` is the answer of an open, ``args`` are the op's numbers.

    ``most`` is how many bytes may move.  A ``lock`` is what a request is about, ``begun`` that it has begun to wait.
    """

    family: str
    syscall: str
    paths: tuple[str, ...] = ()
    file: OpenFile | None = None
    flags: tuple[str, ...] = ()
    data: bytes = b""
    opened: OpenFile | None = None
    most: int | None = None
    rank: int = 0
    lock: tuple[str, str, tuple[int, int]] | None = None
    begun: bool = False
    args: dict[str, int] = field(default_factory=dict)


class Failed(Exception):
    """With the errno's name."""


class FileSystem:
    """A tree of inodes, and who has locked which."""

    def __init__(self, program: Program) -> None:
        self.root = Inode("directory")
        self.locks = Locks()
        self._numbers: dict[Inode, int] = {}
        self._opened = 0
        for path in program.directories:
            self._add(path, Inode("directory"))
        for path, text in (*program.files, *((path, "") for path in program.inherited)):
            self._add(path, Inode("file", text.encode()))

    def place(self, path: str) -> Place:
        found = self._find(path)
        inode = self.identity(found) if found else 0
        try:
            directory = self.identity(self._parent(path)) if path != "." else 0
        except Failed:
            directory = 0
        size = len(found.data) if found else 0
        return Place(path, directory, _name(path), inode, found.kind if found else "", size=size)

    def place_of(self, file: OpenFile) -> Place:
        inode = file.inode
        path = next((path for path, each in self.walk() if each is inode), inode.last or ".")
        return Place(path, 0, _name(path), self.identity(inode), inode.kind, file.number, size=len(inode.data))

    def identity(self, inode: Inode) -> int:
        """The number of an inode, in the order in which the run meets them."""
        return self._numbers.setdefault(inode, len(self._numbers) + 1)

    def walk(self) -> Iterator[tuple[str, Inode]]:
        todo = [("", self.root)]
        while todo:
            above, directory = todo.pop()
            for name, inode in directory.entries.items():
                yield above + name, inode
                todo.append((f"{above}{name}/", inode))

    def open(self, inode: Inode) -> OpenFile:
        self._opened += 1
        return OpenFile(self._opened, inode)

    def inherit(self, path: str) -> OpenFile:
        inode = self._find(path)
        assert inode is not None
        return self.open(inode)

    def is_enabled(self, call: Call) -> bool:
        if not _waits(call):
            return True
        return self.locks.can_go(self._lock(call), has_begun=call.begun)

    def begins_to_wait(self, call: Call) -> bool:
        if not _waits(call):
            return False
        lock = self._lock(call)
        is_stuck = self.locks.conflict(lock) is not None and not self.locks.is_deadlock(lock)
        return is_stuck and self.locks.begins(lock, has_begun=call.begun)

    def begin_to_wait(self, call: Call) -> None:
        self.locks.begin(self._lock(call))
        call.begun = True

    def _lock(self, call: Call) -> Lock:
        assert call.file is not None
        assert call.lock is not None
        kind, mode, (start, length) = call.lock
        owner = call.rank if kind == "posix" else call.file
        file, end = self.identity(call.file.inode), start + length if length else END
        return Lock(kind, file, owner, mode, *((start, end) if kind != "flock" else (0, END)))

    def perform(self, call: Call) -> tuple[Result, Seen]:
        try:
            data: bytes = getattr(self, f"_{call.family}")(call)
        except Failed as failed:
            return Result(errno=str(failed)), Seen(str(failed))
        if call.family not in {"read", "write", "list"}:
            return Result(), Seen(text=data.decode())
        size = len(data.split(b",")) * bool(data) if call.family == "list" else len(data)
        digest, text = hashlib.sha256(data).hexdigest(), data.decode()
        value = 24 * (size + 2) if call.family == "list" else size  # the dots are listed too
        return Result(value=value, size=size, digest=digest, text=text), Seen(text=text)

    def _add(self, path: str, inode: Inode) -> None:
        self._parent(path).entries[_name(path)] = inode

    def _find(self, path: str) -> Inode | None:
        found: Inode | None = self.root
        for name in path.split("/") if path != "." else ():
            found = found.entries.get(name) if found else None
        return found

    def _parent(self, path: str) -> Inode:
        found = self._find(path.rpartition("/")[0] or ".")
        if found is None or found.kind != "directory":
            raise Failed("ENOTDIR" if found else "ENOENT")
        return found

    def _there(self, path: str) -> Inode:
        self._parent(path)
        found = self._find(path)
        if found is None:
            raise Failed("ENOENT")
        return found

    def _stat(self, call: Call) -> bytes:
        found = self._there(call.paths[0])
        return f"{found.kind}:{len(found.data)}".encode()

    def _mkdir(self, call: Call) -> bytes:
        (path,) = call.paths
        if _name(path) in self._parent(path).entries:
            raise Failed("EEXIST")
        self._create(path, "directory")
        return b""

    def _create(self, path: str, kind: Literal["file", "directory"]) -> Inode:
        inode = Inode(kind)
        self._add(path, inode)
        self.identity(inode)
        return inode

    def _rmdir(self, call: Call) -> bytes:
        (path,) = call.paths
        found = self._there(path)
        if found.kind != "directory" or found.entries:
            raise Failed("ENOTEMPTY" if found.kind == "directory" else "ENOTDIR")
        self._lose(path)
        return b""

    def _unlink(self, call: Call) -> bytes:
        (path,) = call.paths
        if self._there(path).kind == "directory":
            raise Failed("EISDIR")
        self._lose(path)
        return b""

    def _lose(self, path: str) -> None:
        self._there(path).last = path
        del self._parent(path).entries[_name(path)]

    def _rename(self, call: Call) -> bytes:
        source, target = call.paths
        self._parent(target)
        found, there = self._there(source), self._find(target)
        if found is there:
            return b""
        if f"{target}/".startswith(f"{source}/"):
            raise Failed("EINVAL")
        if there is not None and there.kind != found.kind:
            raise Failed("EISDIR" if there.kind == "directory" else "ENOTDIR")
        if there is not None and there.entries:
            raise Failed("ENOTEMPTY")
        self._lose(source)
        if there is not None:
            there.last = target
        self._add(target, found)
        return b""

    def _open(self, call: Call) -> bytes:
        (path,) = call.paths
        found = self._find(path) if path == "." or "O_CREAT" in call.flags else self._there(path)
        if found is None:
            self._parent(path)
            found = self._create(path, "file")
        if "O_DIRECTORY" in call.flags and found.kind == "file":
            raise Failed("ENOTDIR")
        if "O_CREAT" in call.flags and found.kind == "directory":
            raise Failed("EISDIR")
        if "O_TRUNC" in call.flags:
            found.data = b""
        call.opened = self.open(found)
        return b""

    def _write(self, call: Call) -> bytes:
        assert call.file is not None
        file, old = call.file, call.file.inode.data
        before = old[: file.position].ljust(file.position, b"\0")
        data = call.data[: call.most]
        file.position += len(data)
        file.inode.data = before + data + old[file.position :]
        return data

    def _read(self, call: Call) -> bytes:
        assert call.file is not None
        if call.file.inode.kind == "directory":
            raise Failed("EISDIR")
        data = call.file.inode.data[call.file.position :][: call.most]
        call.file.position += len(data)
        return data

    def _list(self, call: Call) -> bytes:
        assert call.file is not None
        return ",".join(sorted(call.file.inode.entries)).encode()

    def _flock(self, call: Call) -> bytes:
        lock = self._lock(call)
        if self.locks.conflict(lock) is not None:
            self._refuse(call, lock)
        if call.begun:
            self.locks.stop_waiting(lock)
        if lock.mode != EXCLUSIVE and all(each.mode == SHARED for each in self.locks.own(lock)):
            call.args["shared"] = 1
        self.locks.set(lock)
        return b""

    def _refuse(self, call: Call, lock: Lock) -> None:
        if _waits(call):
            if call.begun:
                self.locks.stop_waiting(lock)
            raise Failed("EDEADLK")
        if lock.kind == "flock" and self.locks.own(lock):
            self.locks.set(replace(lock, mode=UNLOCK))
            call.args["lost"] = 1
        raise Failed("EAGAIN")

    def _close(self, call: Call) -> bytes:
        assert call.file is not None
        inode = self.identity(call.file.inode)
        given = [*self.locks.of(call.rank, inode), *self.locks.of(call.file)]
        call.args["last"] = 1
        call.args["flock"] = int(any(each.kind == "flock" for each in given))
        call.args["record"] = int(any(each.is_record for each in given))
        call.args["shared"] = int(all(each.mode == SHARED for each in given))
        self.locks.release(call.rank, inode)
        self.locks.release(call.file)
        return b""

    def _sleep(self, _: Call) -> bytes:
        return b""

    def disk(self) -> dict[str, DiskEntry]:
        return {
            path: DiskEntry(inode.kind, len(inode.data), hashlib.sha256(inode.data).hexdigest())
            if inode.kind == "file"
            else DiskEntry("directory")
            for path, inode in sorted(self.walk(), key=lambda each: each[0])
        }


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _waits(call: Call) -> bool:
    waits = call.lock is not None and call.lock[1] != UNLOCK
    return waits and call.flags[-1] not in {"LOCK_NB", "F_SETLK", "F_OFD_SETLK"}


# Collectives.


@dataclass(slots=True, eq=False)
class Instance:
    """One collective: the clock and the word of each rank that has come."""

    kind: str
    number: int
    root: int
    ranks: tuple[int, ...]
    clocks: dict[int, Clock] = field(default_factory=dict)
    words: dict[int, str] = field(default_factory=dict)
    issued: Clock = field(default_factory=dict)
    left: Clock = field(default_factory=dict)

    def before(self, rank: int) -> tuple[int, ...]:
        """Whose parts happen before ``rank`` goes on."""
        if self.kind == "broadcast":
            return (self.root,)
        return (rank,) if self.kind == "gather" and rank != self.root else self.ranks

    def may_return(self, rank: int) -> bool:
        return all(each in self.clocks for each in self.before(rank))

    def heard(self, rank: int) -> str:
        return "" if self.kind == "barrier" else "|".join(self.words[each] for each in self.before(rank))

    def event(self) -> Collective:
        clock: Clock = {}
        for each in self.clocks.values():
            _join(clock, each)
        root = self.root if self.kind != "barrier" else -1
        return Collective(self.kind, "0", self.number, self.ranks, root, clock, issued=self.issued, left=self.left)


def _join(clock: Clock, other: Mapping[str, int]) -> None:
    for thread, count in other.items():
        clock[thread] = max(clock.get(thread, 0), count)


# Actors.


@dataclass(slots=True, eq=False)
class Issue:
    kind: str
    root: int
    word: str


@dataclass(slots=True, eq=False)
class Wait:
    instance: Instance


@dataclass(slots=True, eq=False)
class Start:
    actor: tuple[Do, ...]


Stop = Call | Issue | Wait | Start
Body = Generator[Stop, Any, Any]

_PLAIN: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "stat": ("stat", "newfstatat", ()),
    "mkdir": ("mkdir", "mkdir", ()),
    "rmdir": ("rmdir", "unlinkat", ("AT_REMOVEDIR",)),
    "unlink": ("unlink", "unlinkat", ()),
    "rename": ("rename", "renameat", ()),
    "sleep": ("sleep", "clock_nanosleep", ()),
}
_THROUGH_DESCRIPTOR: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {
    "write": ("w", "write", "write", ()),
    "read": ("r", "read", "read", ()),
    "list": ("list", "list", "getdents64", ()),
    "lock": ("lock", "flock", "flock", ()),
    "trylock": ("lock", "flock", "flock", ()),
    "unlock": ("lock", "flock", "flock", ()),
    "close": ("lock", "close", "close", ("LOCK_UN",)),
}
_HOW: Mapping[str, tuple[str, ...]] = {
    "w": ("O_CLOEXEC", "O_CREAT", "O_TRUNC", "O_WRONLY"),
    "r": ("O_CLOEXEC", "O_RDONLY"),
    "list": ("O_CLOEXEC", "O_DIRECTORY", "O_RDONLY"),
    "lock": ("O_CLOEXEC", "O_CREAT", "O_RDWR"),
}
_LOCKING: Mapping[str, dict[str, tuple[str, ...]]] = {
    "lock": {"flock": (), "posix": ("F_SETLKW",), "ofd": ("F_OFD_SETLKW",)},
    "trylock": {"flock": ("LOCK_NB",), "posix": ("F_SETLK",), "ofd": ("F_OFD_SETLK",)},
    "unlock": {"flock": (), "posix": ("F_SETLK",), "ofd": ("F_OFD_SETLK",)},
}
_COLLECTIVES = frozenset({"barrier", "broadcast", "gather"})
_FRUITFUL = frozenset({"read", "list"})


@dataclass(slots=True, eq=False)
class Task:
    """A thread; ``at`` is what it is stopped at, None at its end, and ``op`` is the pending op if that is one."""

    name: str
    actor: Actor
    files: dict[tuple[str, str], OpenFile]
    locked: dict[str, set[str]] = field(default_factory=dict)
    clock: Clock = field(default_factory=dict)
    saw: list[str] = field(default_factory=list)
    at: Stop | None = None
    op: Op | None = None
    fresh: bool = True
    children: int = 0

    @property
    def rank(self) -> int:
        return int(self.name.partition(".")[0])

    @property
    def ahead(self) -> bool:
        """Whether it stands at an op that does not let others go first."""
        return self.op is not None and self.op.call != "sleep"

    def tick(self) -> Clock:
        self.clock[self.name] = self.clock.get(self.name, 0) + 1
        return dict(self.clock)

    def body(self) -> Body:
        yield from self._follow(self.actor) if isinstance(self.actor, tuple) else self._play(self.actor)
        for path, how in [*self.files]:
            if how == "lock" and self.locked.get(path):
                yield from self._do(Do("close", path))

    def _follow(self, steps: tuple[Do, ...]) -> Body:
        for step in steps:
            seen = yield from self._do(step)
            if step.what != "start":
                good = not seen.errno and (step.what not in _FRUITFUL or seen.text)
                yield from self._follow(step.then if good else step.otherwise)

    def _play(self, script: Script) -> Body:
        playing = script()
        seen: Seen | None = None
        while True:
            try:
                step = next(playing) if seen is None else playing.send(seen)
            except StopIteration:
                return
            seen = yield from self._do(step)

    def _do(self, step: Do) -> Generator[Stop, Any, Seen]:
        if step.what in _COLLECTIVES:
            instance = yield Issue(step.what, step.root, self.saw[-1] if self.saw else "")
            seen = Seen(text=(yield Wait(instance)))
        elif step.what == "start":
            yield Start(step.then)
            return Seen()
        elif step.what == "open":
            seen = yield from self._open(step.path, "w")
        elif step.what in _PLAIN:
            family, syscall, flags = _PLAIN[step.what]
            paths = tuple(each for each in (step.path, step.other) if each)
            seen = yield Call(family, syscall, paths, flags=flags)
        else:
            seen = yield from self._use(step)
        self.saw.append(str(seen))
        return seen

    def _open(self, path: str, how: str) -> Generator[Stop, Any, Seen]:
        call = Call("open", "openat", (path,), flags=_HOW[how])
        seen: Seen = yield call
        if call.opened is not None:
            self.files[path, how] = call.opened
        return seen

    def _use(self, step: Do) -> Generator[Stop, Any, Seen]:
        how, family, syscall, flags = _THROUGH_DESCRIPTOR[step.what]
        if (step.path, how) not in self.files:
            if step.what in {"unlock", "close"}:
                return Seen("EBADF")
            failed: Seen = yield from self._open(step.path, how)
            if failed.errno:
                return failed
        if step.what == "close" and not self.locked.get(step.path):
            del self.files[step.path, how]
            return Seen()  # nobody else could notice
        file = self.files[step.path, how]
        call = Call(family, syscall, file=file, flags=flags, data=step.other.encode(), rank=self.rank)
        if family == "flock":
            _ask(call, step)
        seen: Seen = yield call
        if how == "lock":
            self._locked(step, seen)
        elif how == "list":
            del self.files[step.path, how]
        return seen

    def _locked(self, step: Do, seen: Seen) -> None:
        """Remember what the end of the actor has to give back."""
        kinds = self.locked.setdefault(step.path, set())
        if step.what == "unlock" and (step.kind == "flock" or not any(step.span)):
            kinds.discard(step.kind)
        elif step.what != "unlock" and not seen.errno:
            kinds.add(step.kind)
        if step.what == "close":
            del self.files[step.path, "lock"], self.locked[step.path]


def _ask(call: Call, step: Do) -> None:
    """A request for a lock, or to give it back."""
    mode = "UN" if step.what == "unlock" else step.mode
    call.syscall = "flock" if step.kind == "flock" else "fcntl"
    call.flags = (f"LOCK_{mode}", *_LOCKING[step.what][step.kind])
    call.lock = (step.kind, {"SH": SHARED, "EX": EXCLUSIVE, "UN": UNLOCK}[mode], step.span)
    call.args = dict(zip(("start", "length"), step.span, strict=True)) if step.kind != "flock" else {}


# A run.


class Toy:
    """One run of a program."""

    def __init__(self, program: Program, choose: Callable[[Point], int]) -> None:
        self._program, self._choose = program, choose
        self._world = World(ranks=len(program.actors), max_ops=program.max_ops, faults=program.faults)
        self._files, self._plan = FileSystem(program), Plan(self._world)
        self._tasks: dict[str, Task] = {}
        self._bodies: dict[str, Body] = {}
        self._instances: list[Instance] = []
        self._issued: dict[int, int] = {}
        self._trace: list[Event] = []
        self._schedule: list[Choice] = []
        self._current: Task | None = None
        self._cause: Clock = {}

    def run(self) -> Outcome:
        for rank, actor in enumerate(self._program.actors):
            inherited = {(path, "lock"): self._files.inherit(path) for path in self._program.inherited}
            self._begin(Task(str(rank), actor, inherited))
        why = self._explore()
        return Outcome(
            self._world,
            tuple(self._trace),
            tuple(self._schedule),
            tuple(self._result(rank, why) for rank in range(self._world.ranks)),
            disk=self._files.disk(),
            fired=self._plan.fired,
            pending=tuple(replace(task.op, clock=task.tick()) for task in self._stopped() if task.op is not None),
        )

    def _begin(self, task: Task) -> None:
        self._tasks[task.name], self._bodies[task.name] = task, task.body()
        self._go_on(task, None)

    def _go_on(self, task: Task, reply: object) -> None:
        """Up to where it stops next."""
        task.op, task.fresh = None, True
        try:
            task.at = self._bodies[task.name].send(reply)
        except StopIteration:
            task.at = None

    def _stopped(self) -> list[Task]:
        return sorted((task for task in self._tasks.values() if task.at is not None), key=lambda task: task.name)

    def _explore(self) -> str:
        while True:
            self._place()
            if self._settle():
                continue
            options = self._options()
            if not options:
                return ""
            if len(self._trace) >= self._world.max_ops:
                return f"reached the limit of {self._world.max_ops} ops"
            self._current = self._next(options)
            self._execute(self._current)

    def _place(self) -> None:
        for task in self._stopped():
            if task.fresh:
                _join(task.clock, self._cause)
                task.fresh = False
            if isinstance(task.at, Call) and task.op is None:
                task.op = self._op(task, task.at)

    def _op(self, task: Task, call: Call) -> Op:
        places = tuple(self._files.place(path) for path in call.paths)
        if call.file is not None:
            places = (self._files.place_of(call.file),)
        args = {"length": len(call.data)} if call.data else {**call.args, **({"waits": 2} if call.begun else {})}
        return Op(task.rank, task.name, call.family, call.syscall, places, call.flags, args)

    def _settle(self) -> bool:
        """What no choice could change, in the order of ranks: collectives, threads that start."""
        answered = [self._answer(task, task.at) for task in self._stopped()]
        return any(answered)

    def _answer(self, task: Task, at: Stop | None) -> bool:
        if isinstance(at, Issue):
            self._go_on(task, self._issue(task, at))
        elif isinstance(at, Start):
            task.children += 1
            child = Task(f"{task.name}.{task.children}", at.actor, {}, clock=dict(task.clock))
            self._begin(child)
            self._go_on(task, None)
        elif isinstance(at, Wait) and at.instance.may_return(task.rank):
            for each in at.instance.before(task.rank):
                _join(task.clock, at.instance.clocks[each])
            at.instance.left[task.name] = task.clock[task.name]
            self._go_on(task, at.instance.heard(task.rank))
        else:
            return False
        return True

    def _issue(self, task: Task, issue: Issue) -> Instance:
        number = self._issued.get(task.rank, 0)
        self._issued[task.rank] = number + 1
        if number == len(self._instances):
            self._instances.append(Instance(issue.kind, number, issue.root, tuple(range(self._world.ranks))))
        instance = self._instances[number]
        if (instance.kind, instance.root) != (issue.kind, issue.root):
            raise ValueError(f"actors disagree on collective {number}: {instance.kind} and {issue.kind}")
        instance.clocks[task.rank], instance.words[task.rank] = task.tick(), issue.word
        instance.issued[task.name] = task.clock[task.name]
        if len(instance.clocks) == len(instance.ranks):
            self._trace.append(instance.event())
        return instance

    def _options(self) -> list[Task]:
        """The threads whose pending op may go: the one that was chosen last first, those that yield last."""
        able = [task for task in self._stopped() if isinstance(task.at, Call) and self._files.is_enabled(task.at)]
        going = [task for task in able if task.ahead]
        if self._current in going:
            going.remove(self._current)
            going.insert(0, self._current)
        return going + [task for task in able if not task.ahead]

    def _next(self, options: list[Task]) -> Task:
        if len(options) == 1:
            return options[0]
        ops = tuple(task.op for task in options if task.op is not None)
        index = self._choose(Point("next", ops, self._trace))
        self._schedule.append(Choice("next", len(ops), index, ops[index].label))
        return options[index]

    def _execute(self, task: Task) -> None:
        assert isinstance(task.at, Call)
        op = self._op(task, task.at)
        if self._files.begins_to_wait(task.at):
            self._files.begin_to_wait(task.at)
            self._add(task, replace(op, args={**op.args, "waits": 1}, result=Result()))
            task.op = self._op(task, task.at)
            return
        result, seen = self._perform(op, task.at)
        self._add(task, replace(op, args={**op.args, **task.at.args}, result=result))
        self._go_on(task, seen)

    def _add(self, task: Task, op: Op) -> None:
        self._cause = task.tick()
        self._trace.append(replace(op, clock=self._cause))

    def _perform(self, op: Op, call: Call) -> tuple[Result, Seen]:
        """As far as the faults let it go."""
        hit = next((number for number, _ in self._plan.due(op)), None)
        fault = self._plan.happens(hit) if hit is not None else None
        room = self._plan.room(op, len(call.data)) if call.family == "write" else None
        if fault is not None and fault.what in errno.errorcode.values():
            if call.family == "close":
                self._files.perform(call)
            return Result(errno=fault.what), Seen(fault.what)
        if room == 0 and call.data:
            return Result(errno="ENOSPC"), Seen("ENOSPC")
        call.most = room
        if fault is not None:
            call.most = int(fault.amount) if room is None else min(int(fault.amount), room)
        result, seen = self._files.perform(call)
        is_torn = fault is not None and fault.what == "torn" and not result.errno
        return (replace(result, errno="EIO"), Seen("EIO")) if is_torn else (result, seen)

    def _result(self, rank: int, why: str) -> RankResult:
        own = sorted((task for task in self._tasks.values() if task.rank == rank), key=lambda task: task.name)
        left = [task for task in own if task.at is not None]
        if not left:
            return Returned([*own[0].saw, *(task.saw for task in own[1:])])
        waits = next((task.at.instance for task in left if isinstance(task.at, Wait)), None)
        if waits is not None:
            return Stopped("collective", f"waits in {waits.kind} #{waits.number}")
        if why:
            return Stopped("running", why)
        return Stopped("lock", f"waits for the lock on {left[0].op.path if left[0].op else ''}")


def run(program: Program, choose: Callable[[Point], int]) -> Outcome:
    """One run; ``choose`` is asked wherever two ops or more may go next.  What it raises comes through."""
    return Toy(program, choose).run()


def attempt(program: Program, strategy: Strategy, seed: str) -> Outcome:
    """One run under a strategy, as the runner does it."""
    assert strategy.begin(Random(seed)), "it has nothing left to try"
    outcome = run(program, strategy.choose)
    strategy.end(outcome)
    return outcome


# Brute force.


def every_run(program: Program) -> Iterator[Outcome]:
    """All schedules, depth first.  There have to be finitely many: no loop that polls."""
    tape: list[int] = []
    while True:
        outcome = run(program, _taking(tape))
        yield outcome
        taken = list(outcome.schedule)
        while taken and taken[-1].index + 1 == taken[-1].count:
            taken.pop()
        if not taken:
            return
        tape = [*(each.index for each in taken[:-1]), taken[-1].index + 1]


def _taking(tape: list[int]) -> Callable[[Point], int]:
    """These choices, and then the default."""
    rest = iter(tape)
    return lambda _: next(rest, 0)


Effect = tuple[tuple[str, ...], tuple[tuple[str, DiskEntry], ...]]
Key = tuple[str, int]
Trace = frozenset[tuple[Key, ...]]


def effect(outcome: Outcome) -> Effect:
    """What a run came to: each rank's result, the disk and the faults that happened."""
    return (*map(repr, outcome.results), repr(outcome.fired)), tuple(outcome.disk.items())


def every_outcome(program: Program) -> tuple[int, set[Effect]]:
    """How many interleavings there are, and the effects they have."""
    effects = [effect(outcome) for outcome in every_run(program)]
    return len(effects), set(effects)


def trace_of(outcome: Outcome) -> Trace:
    """The Mazurkiewicz trace of a run: its ops, each as the n-th of its thread, and the order of dependent ones."""
    counts: dict[str, int] = {}
    events, relation = [], Relation(outcome.world)
    for op in outcome.ops:
        counts[op.thread] = counts.get(op.thread, 0) + 1
        events.append(((op.thread, counts[op.thread]), relation.footprint(op)))
    ordered = (
        (one, other)
        for (one, first), (other, second) in combinations(events, 2)
        if one[0] != other[0] and depends(first, second)
    )
    return frozenset([*((key,) for key, _ in events), *ordered])


def every_trace(program: Program) -> set[Trace]:
    """All Mazurkiewicz traces: what an explorer has to visit, each once at best."""
    return {trace_of(outcome) for outcome in every_run(program)}


# Random programs.


def with_faults(program: Program, rng: Random) -> Program:
    """The program with one or two faults, of each kind that a proof may take."""
    return replace(program, faults=tuple(_random_fault(rng) for _ in range(rng.choice((1, 1, 2)))))


def _random_fault(rng: Random) -> Fault:
    what = rng.choices(("EIO", "short", "torn", "full"), (4, 1, 1, 1))[0]
    if what == "full":
        return Fault("full", amount=float(rng.randint(0, 6)))
    any_calls: tuple[tuple[str, ...], ...] = (("write", "read"), ("open",), ("stat", "mkdir"), ("flock",), ())
    calls = rng.choice(any_calls) if what == "EIO" else ("write",)
    path = rng.choice(("**", "**", "a", "d/x", "d/*", "b/**", "d"))
    nth, times = rng.choice(((1, 1), (2, 1), (1, 2), (1, 0), (2, 0)))
    return Fault(what, calls, path, rng.choice((-1, -1, -1, 0, 1)), nth=nth, times=times, amount=2.0)


_PATHS = ("a", "d/x", "d")
_LOCKS = ("l", "m")


def random_program(rng: Random, limit: int = 2000) -> Program:
    """A small program of 2 or 3 actors with up to ``limit`` interleavings, but not very few: ops on few paths, branches
    on what was seen, collectives, and locks that some take in another order than others.
    """
    while True:
        program = _any_program(rng)
        if 10 <= _interleavings(program) <= 2 * limit and 4 <= _count(program, limit) <= limit:
            return program


def _count(program: Program, limit: int) -> int:
    """How many interleavings there are, if no more than ``limit``."""
    return sum(1 for _ in islice(every_run(program), limit + 1))


def _any_program(rng: Random) -> Program:
    count = rng.choice((2, 3))
    actors = [_random_steps(rng, rng.randint(2, 5 if count == 2 else 4)) for _ in range(count)]
    if rng.random() < 0.5:
        actors = [_locked(rng, steps[:2]) if rng.random() < 0.9 else steps for steps in actors]
    kinds = rng.choices(("barrier", "broadcast", "gather"), (2, 1, 1), k=rng.choice((0, 0, 1, 1, 2)))
    actors = _with_collectives(rng, actors, [Do(kind, root=rng.randrange(count)) for kind in kinds])
    directories = ("d",) if rng.random() < 0.75 else ()
    files = [(path, "old") for path in ("a", "d/x")[: 1 + len(directories)] if rng.random() < 0.75]
    return Program(tuple(actors), directories, tuple(files), _LOCKS)


def _random_steps(rng: Random, count: int) -> tuple[Do, ...]:
    steps: list[Do] = []
    while sum(map(_length, steps)) < count:
        step = _random_step(rng)
        if rng.random() < 0.3:
            step = replace(step, then=(_random_step(rng),), otherwise=(_random_step(rng),) * rng.randint(0, 1))
        steps.append(step)
    return tuple(steps)


def _random_step(rng: Random) -> Do:
    what = rng.choices(
        ("stat", "mkdir", "rmdir", "unlink", "rename", "open", "write", "read", "list"), (3, 3, 1, 2, 3, 1, 2, 2, 1)
    )[0]
    if what in {"mkdir", "rmdir"}:
        return Do(what, rng.choice(("d", "d", "a")))
    if what == "list":
        return Do(what, rng.choice((".", "d", "d")))
    if what == "rename":
        return Do(what, *rng.choice((("a", "d/x"), ("d/x", "a"), ("d", "b"), ("b", "d"))))
    return Do(what, rng.choice(_PATHS), rng.choice(("one", "other")) if what == "write" else "")


def _locked(rng: Random, steps: tuple[Do, ...]) -> tuple[Do, ...]:
    """With one lock around it or two, or one that is only tried, and given back in one way or another."""
    back = rng.choice(("unlock", "close", ""))
    if rng.random() < 0.75:
        first, second = rng.sample(_LOCKS, 2)
        around = (Do("lock", first), Do("lock", second), *steps[:1])
        return (*around, Do(back, second), Do(back, first)) if back else around
    what = rng.choice(("lock", "trylock"))
    lock = rng.choice(_LOCKS)
    inside = (*steps, Do(back, lock)) if back else steps
    return (Do(what, lock, then=inside),) if what == "trylock" else (Do(what, lock), *inside)


def _with_collectives(rng: Random, actors: list[tuple[Do, ...]], collectives: list[Do]) -> list[tuple[Do, ...]]:
    """The same collectives in the same order for everybody, each somewhere."""
    found = []
    for steps in actors:
        at = sorted(rng.randint(0, len(steps)) for _ in collectives)
        bounds = [0, *at, len(steps)]
        parts = [steps[start:end] for start, end in pairwise(bounds)]
        found.append(
            (*parts[0], *(each for pair in zip(collectives, parts[1:], strict=True) for each in (pair[0], *pair[1])))
        )
    return found


def _length(step: Do) -> int:
    """The most ops that it may come to."""
    own = 0 if step.what in _COLLECTIVES else 2 if step.what in {"read", "write", "list"} else 1
    return own + max(sum(map(_length, step.then)), sum(map(_length, step.otherwise)))


def _interleavings(program: Program) -> int:
    """About that number; barriers cut the actors into phases."""
    actors = [actor for actor in program.actors if isinstance(actor, tuple)]
    phases = [[0] for _ in actors]
    for own, steps in zip(phases, actors, strict=True):
        for step in steps:
            if step.what == "barrier":
                own.append(0)
            own[-1] += _length(step)
    product = 1
    for lengths in zip(*phases, strict=True):
        product *= math.factorial(sum(lengths)) // math.prod(map(math.factorial, lengths))
    return product
