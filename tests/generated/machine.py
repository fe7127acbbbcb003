"""What a generated program means: the machine that carries out one step of one thread after another.

Nothing here knows of the engine: no op, no footprint, no clock.  A step is one call of the system; what a thread does
in memory belongs to the call before (a claim says so: "threads of a rank switch at their ops only").
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .programs import COLLECTIVES, Block, Instruction, Program, words
from .tree import ROOT, Failed, Found, Inode, Tree

FOLLOWS = frozenset({"stat", "age", "create", "open", "list"})
"""What goes through a symbolic link at the end of a path."""
LOCKABLE = ("l", "m")
"""Files that every thread has open from the start."""
_ASKS = frozenset({"read", "list", "told", "alive", "check", "polled"})
"""What goes well if there is an answer."""
_SILENT = frozenset({"started", "tell"})


class Seen(NamedTuple):
    errno: str = ""
    text: str = ""

    def __str__(self) -> str:
        return self.errno or self.text


class Waits(Exception):
    """A call has begun to wait, and is still to be answered."""


class Opened(NamedTuple):
    """An open file: ``number`` is its identity."""

    number: str
    inode: str
    path: str


class Record(NamedTuple):
    """What a process asks of the bytes of a file."""

    inode: str
    process: str
    mode: str
    first: int
    last: int


class Thread(NamedTuple):
    """``rest`` is what it has still to do, ``inside`` the collective that it waits in; ``stage``: new, on, over."""

    name: str
    process: str
    rest: Block
    saw: tuple[str, ...] = ()
    files: tuple[tuple[str, Opened], ...] = ()
    inside: tuple[Any, ...] = ()
    stage: str = "new"
    daemon: bool = False
    made: int = 0
    children: int = 0
    processes: int = 0

    @property
    def rank(self) -> int:
        return int(self.name.partition(".")[0])


class Machine:
    """The state of a program between two steps."""

    def __init__(self, program: Program, *, blocking: bool = False) -> None:
        """``blocking``: nobody gets out of a collective before all have come, as with gloo."""
        self.program, self.blocking = program, blocking
        self.looks = any("age" in words(block) for block in program.ranks)
        self.tree = Tree()
        self.threads: dict[str, Thread] = {}
        self.flocks: dict[tuple[str, str], str] = {}
        self.records: dict[tuple[str, str, int], str] = {}
        self.waits: dict[str, Record] = {}
        self.store: dict[str, str] = {}
        self.memory: dict[tuple[str, str], str] = {}
        self.positions: dict[str, int] = {}
        self.words: dict[tuple[Any, ...], dict[int, str]] = {}
        self.kinds: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.issued: dict[tuple[Any, ...], int] = {}
        self.met: dict[int, int] = {}
        self.times: dict[str, int] = {}
        self.looked: dict[str, int] = {}
        self.steps = 0
        self.mismatch = False
        for path in program.directories:
            self.tree.make(path, path, Inode("directory"))
        for path, text in (*program.files, *((each, "") for each in LOCKABLE)):
            self.tree.make(path, path, Inode("file", text))
        for rank, block in enumerate(program.ranks):
            self._begin(Thread(str(rank), str(rank), block, stage="on"))

    def copy(self) -> Machine:
        other = object.__new__(Machine)
        other.program, other.blocking, other.mismatch = self.program, self.blocking, self.mismatch
        other.looks = self.looks
        other.tree, other.threads = self.tree.copy(), dict(self.threads)
        other.flocks, other.records, other.waits = dict(self.flocks), dict(self.records), dict(self.waits)
        other.store, other.memory, other.positions = dict(self.store), dict(self.memory), dict(self.positions)
        other.words = {key: dict(each) for key, each in self.words.items()}
        other.kinds, other.issued, other.met = dict(self.kinds), dict(self.issued), dict(self.met)
        other.times, other.looked, other.steps = dict(self.times), dict(self.looked), self.steps
        return other

    def key(self) -> tuple[object, ...]:
        """Two machines with the same key go on in the same ways."""
        parts = (
            self.tree.inodes, self.threads, self.flocks, self.records, self.store, self.memory, self.positions,
            self.issued, self.met, self.kinds, self._ages(),
        )  # fmt: skip
        said = frozenset((key, frozenset(each.items())) for key, each in self.words.items())
        locks = tuple(self.records), tuple(self.waits.items())
        return (*(frozenset(part.items()) for part in parts), locks, said, self.mismatch)

    def _ages(self) -> dict[tuple[str, str], int]:
        """Which of the times that a thread may compare is older than which."""
        known = {("file", name): time for name, time in self.times.items()}
        known |= {("thread", name): time for name, time in self.looked.items()}
        order = sorted({*known.values()})
        return {key: order.index(time) for key, time in known.items()} if self.looks else {}

    def _begin(self, thread: Thread) -> None:
        opened = tuple((path, Opened(f"{thread.name} {path}", path, path)) for path in LOCKABLE)
        self.threads[thread.name] = thread._replace(files=opened)
        if thread.stage == "on":
            self._run_in_memory(thread.name)

    # What comes next.

    def next(self, name: str) -> Instruction:
        """What a thread does next: an instruction, or ("begin",), ("leave",), ("exit",), ("end",)."""
        thread = self.threads[name]
        if thread.stage == "new":
            return ("begin",)
        if thread.inside:
            return ("leave",)
        if thread.rest:
            first = thread.rest[0]
            return first[1] if first[0] == "if" else first
        return ("exit",) if thread.name == thread.process else ("end",)

    def able(self, name: str) -> bool:
        """Whether a thread can take a step."""
        thread = self.threads[name]
        if thread.stage == "over" or self.mismatch:
            return False
        step = self.next(name)
        check = getattr(self, f"_can_{step[0]}", None)
        return check is None or check(thread, *step[1:])

    def _can_leave(self, thread: Thread) -> bool:
        kind, ranks, _ = self.kinds[thread.inside]
        needs = ranks if self.blocking else self.awaited(thread.inside, kind, thread.rank)
        return set(needs) <= self.words[thread.inside].keys()

    def awaited(self, key: tuple[Any, ...], kind: str, rank: int) -> tuple[int, ...]:
        """Those without whom a rank does not get out of a collective, as weakly as any backend has it."""
        ranks, root = self.kinds[key][1:]
        if kind == "pair":
            return (ranks[0],)
        if kind in {"broadcast", "scatter"}:
            return (root,)
        if kind == "gather" and rank != root:
            return (rank,)
        return tuple(ranks)

    def _can_flock(self, thread: Thread, path: str, mode: str, how: str) -> bool:
        """A request that waits and has a lock of the other mode loses that first."""
        return how == "try" or not self._flock_is_taken(thread, path, mode) or self.has_flock(thread, path)

    def _can_record(self, thread: Thread, path: str, mode: str, first: int, last: int, how: str) -> bool:
        file = dict(thread.files).get(path)
        if how == "try" or file is None:
            return True
        asked = Record(file.inode, thread.process, mode, first, last)
        begins = thread.name not in self.waits and any(key[1] == thread.process for key in self.records)
        return not self._holder(asked) or begins or self._is_circle(asked)

    def _can_get(self, _: Thread, key: str) -> bool:
        return key in self.store

    _can_await = _can_get

    def _can_join(self, thread: Thread, number: int) -> bool:
        child = self.threads.get(f"{thread.name}.{number}")
        return child is None or child.stage == "over"

    def _can_reap(self, thread: Thread, number: int) -> bool:
        child = self.threads.get(f"{thread.name}.p{number}")
        return child is None or child.stage == "over"

    def _can_listen(self, thread: Thread, event: str) -> bool:
        return (thread.process, event) in self.memory

    def _can_exit(self, thread: Thread) -> bool:
        return all(each.daemon or each.stage == "over" for each in self.of_process(thread.process, thread.name))

    def of_process(self, process: str, but: str = "") -> list[Thread]:
        return [each for each in self.threads.values() if each.process == process and each.name != but]

    # A step.

    def step(self, name: str) -> Seen:
        """One thread takes a step, and then does what it does in memory."""
        thread, before = self.threads[name], dict(self.tree.inodes) if self.looks else {}
        if thread.stage == "new":
            self.threads[name] = thread._replace(stage="on")
            seen = Seen()
        elif thread.inside:
            seen = self._leave(thread)
        elif not thread.rest:
            self._end(thread)
            return Seen()
        else:
            seen = self._carry_out(thread)
        if not self.mismatch:
            self._run_in_memory(name)
        if self.looks:
            self.times |= {each: self.steps for each, inode in self.tree.inodes.items() if before.get(each) != inode}
        self.steps += 1
        return seen

    def _carry_out(self, thread: Thread) -> Seen:
        first = thread.rest[0]
        what = first[1] if first[0] == "if" else first
        try:
            seen = self._failing(thread, what) or Seen(text=getattr(self, f"_{what[0]}")(thread, *what[1:]) or "")
        except Failed as failed:
            seen = Seen(str(failed))
        except Waits:
            return Seen()
        thread = self.threads[thread.name]
        rest = thread.rest[1:]
        if first[0] == "if":
            good = not seen.errno and (what[0] not in _ASKS or seen.text)
            rest = (*(first[2] if good else first[3]), *rest)
        saw = thread.saw if thread.inside or what[0] in _SILENT else (*thread.saw, str(seen))
        self.threads[thread.name] = thread._replace(rest=rest, saw=saw)
        return seen

    def _failing(self, thread: Thread, what: Instruction) -> Seen | None:
        """The errno that a fault has for this call."""
        for number, failure in enumerate(self.program.failures):
            is_ours = what[0] == failure.call and failure.rank in (-1, thread.rank)
            if is_ours and self._path_of(thread, what) == failure.path:
                self.met[number] = self.met.get(number, 0) + 1
                if self.met[number] == failure.nth:
                    return Seen(failure.errno)
        return None

    def _path_of(self, thread: Thread, what: Instruction) -> str:
        file = dict(thread.files).get(what[1])
        if what[0] in {"write", "read", "fsync"}:
            return self.name_of(file) if file else ""
        return self.tree.find(what[1], follow=what[0] in FOLLOWS).path

    def name_of(self, file: Opened) -> str:
        """What an open file is called now: its old name where it still has that, or else another one, or its last."""
        found = self.tree.find(file.path, follow=True)
        if found.inode == file.inode:
            return found.path
        return next((path for path, inode in self._walk() if inode == file.inode), file.path)

    def _walk(self, directory: str = ROOT, above: str = "") -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for name, inode in self.tree.inodes[directory].names:
            found.append((above + name, inode))
            if self.tree.inodes[inode].kind == "directory":
                found += self._walk(inode, f"{above}{name}/")
        return found

    def _run_in_memory(self, name: str) -> None:
        """Up to where the thread calls the system again."""
        while (thread := self.threads[name]).rest and (step := _plain(thread))[0] != "":
            rest, saw = thread.rest[1:], thread.saw
            if step[0] == "put":
                self.memory[thread.process, step[1]] = saw[-1] + "x" if step[2] == "+" and saw else step[2]
            elif step[0] == "look":
                saw = (*saw, self.memory.get((thread.process, step[1]), "none"))
            elif step[0] == "until":
                rest = (*_asking(step[1], step[2]), *rest)
            else:
                rest = (("started",), *rest)
            self.threads[name] = thread._replace(rest=rest, saw=saw)
            if step[0] in {"start", "daemon", "spawn"}:
                self._give_birth(self.threads[name], step)

    def _give_birth(self, thread: Thread, step: Instruction) -> None:
        if step[0] == "spawn":
            name = f"{thread.name}.p{thread.processes + 1}"
            self.threads[thread.name] = thread._replace(processes=thread.processes + 1)
            self.memory |= {(name, key): text for (owner, key), text in self.memory.items() if owner == thread.process}
            self._begin(Thread(name, name, step[1]))
        else:
            name = f"{thread.name}.{thread.children + 1}"
            self.threads[thread.name] = thread._replace(children=thread.children + 1)
            self._begin(Thread(name, thread.process, step[1], daemon=step[0] == "daemon"))

    def _end(self, thread: Thread) -> None:
        ends = [thread] if thread.name != thread.process else [thread, *self.of_process(thread.process, thread.name)]
        for each in ends:
            self.threads[each.name] = each._replace(stage="over", rest=(), inside=())
        if thread.name == thread.process:
            own = {file.number for each in ends for _, file in each.files}
            self.flocks = {key: mode for key, mode in self.flocks.items() if key[1] not in own}
            self.records = {key: mode for key, mode in self.records.items() if key[1] != thread.process}
            self.waits = {name: asked for name, asked in self.waits.items() if asked.process != thread.process}

    # Instructions.

    def _started(self, _: Thread) -> str:
        return ""

    _sleep = _started

    def _join(self, thread: Thread, number: int) -> str:
        child = self.threads.get(f"{thread.name}.{number}")
        return ",".join(child.saw) if child else ""

    def _reap(self, thread: Thread, number: int) -> str:
        return "reaped" if f"{thread.name}.p{number}" in self.threads else "nobody"

    def _alive(self, thread: Thread, number: int) -> str:
        return "alive" if not self._can_join(thread, number) else ""

    def _polled(self, thread: Thread, number: int) -> str:
        return "ended" if self._can_reap(thread, number) else ""

    def _told(self, thread: Thread, event: str) -> str:
        return self.memory.get((thread.process, event), "")

    _listen = _told

    def _tell(self, thread: Thread, event: str) -> None:
        self.memory[thread.process, event] = "told"

    def _new(self, thread: Thread) -> str:
        thread = self.threads[thread.name]
        self.threads[thread.name] = thread._replace(made=thread.made + 1)
        return f"{thread.name}:{thread.made + 1}"

    def _mkdir(self, thread: Thread, path: str) -> None:
        self.tree.make(path, self._new(thread), Inode("directory"))

    def _symlink(self, thread: Thread, target: str, path: str) -> None:
        self.tree.make(path, self._new(thread), Inode("symlink", target))

    def _readlink(self, _: Thread, path: str) -> str:
        inode = self.tree.inodes[self.tree.there(path, follow=False).inode]
        if inode.kind != "symlink":
            raise Failed("EINVAL")
        return inode.data

    def _stat(self, _: Thread, path: str) -> str:
        inode = self.tree.inodes[self.tree.there(path, follow=True).inode]
        return f"{inode.kind}:{len(inode.data)}"

    def _age(self, thread: Thread, path: str) -> str:
        """When a file was changed, beside the one at which the thread has looked last."""
        time = self.times.get(self.tree.there(path, follow=True).inode, -1)
        last, self.looked[thread.name] = self.looked.get(thread.name, -1), time
        return "older" if time < last else "younger" if time > last else "as old"

    def _link(self, _: Thread, source: str, target: str) -> None:
        found = self.tree.there(source, follow=False)
        there = self.tree.parent(target, follow=False)
        if there.inode:
            raise Failed("EEXIST")
        if self.tree.inodes[found.inode].kind == "directory":
            raise Failed("EPERM")
        self.tree.add(there.directory, there.name, found.inode)

    def _unlink(self, _: Thread, path: str) -> None:
        found = self.tree.there(path, follow=False)
        if self.tree.inodes[found.inode].kind == "directory":
            raise Failed("EISDIR")
        self.tree.remove(found.directory, found.name)

    def _rmdir(self, _: Thread, path: str) -> None:
        found = self.tree.there(path, follow=False)
        inode = self.tree.inodes[found.inode]
        if inode.kind != "directory" or inode.names:
            raise Failed("ENOTEMPTY" if inode.names else "ENOTDIR")
        self.tree.remove(found.directory, found.name)

    def _rename(self, _: Thread, source: str, target: str) -> None:
        old = self.tree.parent(source, follow=False)
        new = self.tree.parent(target, follow=False)
        if not old.inode:
            raise Failed("ENOENT")
        if old.inode == new.inode:
            return
        if self._is_directory(old.inode) and self.tree.is_below(new.directory, old.inode):
            raise Failed("EINVAL")
        self._check_replaced(old, new)
        self.tree.remove(old.directory, old.name)
        self.tree.add(new.directory, new.name, old.inode)

    def _check_replaced(self, old: Found, new: Found) -> None:
        if not new.inode:
            return
        if new.inode and self._is_directory(new.inode) and self.tree.is_below(old.directory, new.inode):
            raise Failed("ENOTEMPTY")
        if self._is_directory(new.inode) != self._is_directory(old.inode):
            raise Failed("EISDIR" if self._is_directory(new.inode) else "ENOTDIR")
        if self.tree.inodes[new.inode].names:
            raise Failed("ENOTEMPTY")

    def _is_directory(self, inode: str) -> bool:
        return self.tree.inodes[inode].kind == "directory"

    def _create(self, thread: Thread, path: str) -> None:
        found = self.tree.parent(path, follow=True)
        if found.inode and self._is_directory(found.inode):
            raise Failed("EISDIR")
        inode = found.inode or self._new(thread)
        self.tree.inodes[inode] = Inode("file")
        if not found.inode:
            self.tree.add(found.directory, found.name, inode)
        self._keep(thread, path, inode, found.path)

    def _open(self, thread: Thread, path: str) -> None:
        found = self.tree.there(path, follow=True)
        if self._is_directory(found.inode):
            raise Failed("EISDIR")
        self._keep(thread, path, found.inode, found.path)

    def _keep(self, thread: Thread, path: str, inode: str, place: str) -> None:
        number = self._new(thread)
        thread = self.threads[thread.name]
        files = {**dict(thread.files), path: Opened(number, inode, place)}
        self.threads[thread.name] = thread._replace(files=tuple(files.items()))

    def file(self, thread: Thread, path: str) -> Opened:
        """Raises `Failed` if the thread has no such file open."""
        found = dict(thread.files).get(path)
        if found is None:
            raise Failed("EBADF")
        return found

    def _write(self, thread: Thread, path: str, text: str) -> None:
        file = self.file(thread, path)
        inode = self.tree.inodes[file.inode]
        if inode.kind == "directory":
            raise Failed("EBADF")
        text = (thread.saw[-1] if thread.saw else "") + "x" if text == "+" else text
        at = self.positions.get(file.number, 0)
        self.positions[file.number] = at + len(text)
        data = inode.data[:at].ljust(at, "0") + text + inode.data[at + len(text) :]
        self.tree.inodes[file.inode] = inode._replace(data=data)

    def _read(self, thread: Thread, path: str) -> str:
        file = self.file(thread, path)
        inode = self.tree.inodes[file.inode]
        if inode.kind == "directory":
            raise Failed("EISDIR")
        at = self.positions.get(file.number, 0)
        self.positions[file.number] = max(at, len(inode.data))
        return inode.data[at:]

    def _list(self, _: Thread, path: str) -> str:
        inode = self.tree.inodes[self.tree.there(path, follow=True).inode]
        if inode.kind != "directory":
            raise Failed("ENOTDIR")
        return ",".join(name for name, _ in inode.names if name not in LOCKABLE)

    def _map(self, thread: Thread, path: str) -> None:
        file = self.file(thread, path)
        length = len(self.tree.inodes[file.inode].data)
        files = {**dict(thread.files), f"map {path}": file._replace(path=str(length))}
        self.threads[thread.name] = thread._replace(files=tuple(files.items()))

    def _peek(self, thread: Thread, path: str) -> str:
        """What a mapping shows now of what was there when it was made."""
        file = self.file(thread, f"map {path}")
        return self.tree.inodes[file.inode].data[: int(file.path)]

    def _fsync(self, thread: Thread, path: str) -> None:
        self.file(thread, path)

    def _close(self, thread: Thread, path: str) -> None:
        """An open file's locks end with it, and all record locks of the process on that file (fcntl(2))."""
        file = self.file(thread, path)
        self.flocks.pop((file.inode, file.number), None)
        self.records = {key: mode for key, mode in self.records.items() if key[:2] != (file.inode, thread.process)}
        self.threads[thread.name] = thread._replace(files=tuple(each for each in thread.files if each[0] != path))

    # Locks.

    def _flock_is_taken(self, thread: Thread, path: str, mode: str) -> bool:
        file = dict(thread.files).get(path)
        if file is None:
            return False
        others = [held for key, held in self.flocks.items() if key[0] == file.inode and key[1] != file.number]
        return bool(others) and "EX" in {mode, *others}

    def gets_flock(self, thread: Thread, path: str, mode: str) -> bool:
        return not self._flock_is_taken(thread, path, mode)

    def has_flock(self, thread: Thread, path: str) -> bool:
        file = dict(thread.files).get(path)
        return file is not None and (file.inode, file.number) in self.flocks

    def _flock(self, thread: Thread, path: str, mode: str, how: str) -> None:
        """To ask in vain for another mode loses the old one."""
        file = self.file(thread, path)
        if self._flock_is_taken(thread, path, mode):
            self.flocks.pop((file.inode, file.number), None)
            raise Waits if how == "wait" else Failed("EAGAIN")
        self.flocks[file.inode, file.number] = mode

    def _funlock(self, thread: Thread, path: str) -> None:
        file = self.file(thread, path)
        self.flocks.pop((file.inode, file.number), None)

    def _holder(self, asked: Record) -> str:
        """The first process that has a lock in the way."""
        owners = dict.fromkeys(owner for inode, owner, _ in self.records if inode == asked.inode)
        held = (
            (owner, byte)
            for owner in owners
            for byte in range(asked.first, asked.last + 1)
            if "EX" in {asked.mode, self.records.get((asked.inode, owner, byte))}
        )
        taken = (owner for owner, byte in held if (asked.inode, owner, byte) in self.records and owner != asked.process)
        return next(taken, "")

    def _is_circle(self, asked: Record) -> bool:
        """Whether a process would wait for itself: the one that it waits for waits for another one, and so on."""
        owner, known = self._holder(asked), set[str]()
        while owner and owner not in known:
            known.add(owner)
            waits = [each for each in self.waits.values() if each.process == owner]
            owner = self._holder(waits[-1]) if waits else ""
            if owner == asked.process:
                return True
        return False

    def _record(self, thread: Thread, path: str, mode: str, first: int, last: int, how: str) -> None:
        file = self.file(thread, path)
        asked = Record(file.inode, thread.process, mode, first, last)
        if self._holder(asked):
            if how == "wait" and not self._is_circle(asked):
                self.waits[thread.name] = asked
                raise Waits
            self.waits.pop(thread.name, None)
            raise Failed("EAGAIN" if how == "try" else "EDEADLK")
        self.waits.pop(thread.name, None)
        self.records |= {(file.inode, thread.process, byte): mode for byte in range(first, last + 1)}

    def _runlock(self, thread: Thread, path: str, first: int, last: int) -> None:
        file = self.file(thread, path)
        for byte in range(first, last + 1):
            self.records.pop((file.inode, thread.process, byte), None)

    # The store.

    def _set(self, _: Thread, key: str, text: str) -> None:
        self.store[key] = text

    def _get(self, _: Thread, key: str) -> str:
        return self.store[key]

    def _await(self, _: Thread, key: str) -> str:
        return key

    def _check(self, _: Thread, key: str) -> str:
        return "there" if key in self.store else ""

    def _delete(self, _: Thread, key: str) -> str:
        return "deleted" if self.store.pop(key, None) is not None else "nothing"

    def _add(self, _: Thread, key: str, amount: int) -> str:
        old = self.store.get(key, "0")
        self.store[key] = str(int(old) + amount if old.isdigit() else amount)
        return self.store[key]

    def _compare(self, _: Thread, key: str, old: str, new: str) -> str:
        """As TCPStore has it: a key that is not there is set where nothing is expected."""
        known = self.store.get(key)
        if known is None and old:
            return old
        if known is None or known == old:
            self.store[key] = new
        return self.store[key]

    # Collectives.

    def _issue(self, thread: Thread, kind: str, ranks: tuple[int, ...], root: int, word: str) -> None:
        own = (ranks, kind == "pair", thread.rank)
        self.issued[own] = self.issued.get(own, 0) + 1
        key = (ranks, kind == "pair", self.issued[own])
        known = self.kinds.setdefault(key, (kind, ranks, root))
        if known != (kind, ranks, root):
            self.mismatch = True
            return
        self.words.setdefault(key, {})[thread.rank] = word
        self.threads[thread.name] = thread._replace(inside=key)

    def _leave(self, thread: Thread) -> Seen:
        kind, ranks, _ = self.kinds[thread.inside]
        words = self.words[thread.inside]
        heard = [words[each] for each in self.awaited(thread.inside, kind, thread.rank)]
        if kind == "barrier" or (kind == "pair" and thread.rank == ranks[0]):
            heard = []
        saw = (*thread.saw, "|".join(heard))
        self.threads[thread.name] = thread._replace(inside=(), saw=saw)
        return Seen(text=saw[-1])

    def _send(self, thread: Thread, peer: int) -> None:
        self._issue(thread, "pair", (thread.rank, peer), -1, thread.saw[-1] if thread.saw else "")

    def _recv(self, thread: Thread, peer: int) -> None:
        self._issue(thread, "pair", (peer, thread.rank), -1, "")

    def __getattr__(self, name: str) -> Any:
        if name[1:] not in COLLECTIVES:
            raise AttributeError(name)

        def issue(thread: Thread, ranks: tuple[int, ...], root: int = -1) -> None:
            self._issue(thread, name[1:], ranks, root, thread.saw[-1] if thread.saw else "")

        return issue

    # The end.

    def results(self) -> tuple[str, ...]:
        """What each rank saw, or that it could not go on."""
        return tuple(
            "; ".join(main.saw) if main.stage == "over" else "stopped"
            for main in (self.threads[str(rank)] for rank in range(len(self.program.ranks)))
        )

    def outcome(self) -> tuple[object, ...]:
        if self.mismatch:
            return ("mismatch",)
        return (self.results(), self.tree.shown())


def _plain(thread: Thread) -> Instruction:
    """What comes next if no call belongs to it, else ("",)."""
    first = thread.rest[0]
    return first if not thread.inside and first[0] in {"put", "look", "start", "daemon", "spawn", "until"} else ("",)


def _asking(times: int, what: Instruction) -> Block:
    """To ask up to a number of times, with a sleep between two questions."""
    if times == 1:
        return (what,)
    return (("if", what, (), (("sleep",), *_asking(times - 1, what))),)
