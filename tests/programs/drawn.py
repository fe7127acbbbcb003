"""Carries out a generated program (tests/generated) with real ranks, threads, processes and files.

The program is in the file that the environment variable RACECHECK_PROGRAM names.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from racecheck import Rank, scenario
from tests.generated.programs import COLLECTIVES, START, Block, Instruction, Program, load

_NAMES = {**errno.errorcode, errno.EDEADLK: "EDEADLK"}
_ROOM = 40
_LOCKABLE = ("l", "m")
_MODES = {"SH": fcntl.LOCK_SH, "EX": fcntl.LOCK_EX}
_FRUITFUL = frozenset({"read", "list", "told", "alive", "check", "polled"})


def program() -> Program:
    return load(Path(os.environ["RACECHECK_PROGRAM"]).read_text(encoding="utf-8"))


@scenario(ranks=2)
def carry_out(rank: Rank) -> list[str]:
    whole = program()
    groups = _groups(whole)
    return Actor(rank, whole.ranks[rank.rank], {}, groups).run()


@carry_out.setup
def build(path: Path) -> None:
    """What `START` says: a session sets a scenario up once."""
    (path / "d").mkdir()
    for name, text in (*START, *((each, "") for each in _LOCKABLE)):
        (path / name).write_text(text, encoding="utf-8")


def _groups(whole: Program) -> dict[tuple[int, ...], Any]:
    """A process group for each set of ranks that has a collective of its own."""
    found: dict[tuple[int, ...], Any] = {tuple(range(len(whole.ranks))): None}
    for group in sorted({each[1] for block in whole.ranks for each in block if each[0] in COLLECTIVES}):
        if group not in found:
            found[group] = dist.new_group([*group])
    return found


class Actor:
    """A thread: its files, what it saw, and the threads and processes that it has started."""

    def __init__(self, rank: Rank, block: Block, memory: dict[str, Any], groups: dict[tuple[int, ...], Any]) -> None:
        self._rank, self._block, self._memory, self._groups = rank, block, memory, groups
        self._files: dict[str, int] = {}
        self._maps: dict[str, mmap.mmap] = {}
        self._threads: list[tuple[threading.Thread, Actor]] = []
        self._processes: list[int] = []
        self._reaped: set[int] = set()
        self.saw: list[str] = []

    def run(self) -> list[str]:
        for path in self._locked():
            self._files[path] = os.open(self._at(path), os.O_RDWR)
        self._follow(self._block)
        return self.saw

    def _locked(self) -> list[str]:
        return [path for path in _LOCKABLE if any(_uses(each, path) for each in self._block)]

    def _at(self, path: str) -> str:
        return os.path.join(self._rank.path, path)

    def _follow(self, block: Block) -> None:
        for each in block:
            self._take(each)

    def _take(self, step: Instruction) -> None:
        if step[0] == "if":
            self._follow(step[2] if self._is_good(step[1]) else step[3])
        elif step[0] == "until":
            for left in reversed(range(step[1])):
                if self._is_good(step[2]) or not left:
                    return
                self._do(("sleep",))
        else:
            self._do(step)

    def _is_good(self, step: Instruction) -> bool:
        seen, failed = self._do(step)
        return not failed and (step[0] not in _FRUITFUL or bool(seen))

    def _do(self, step: Instruction) -> tuple[str, bool]:
        """What is seen of an instruction, and whether that is an errno."""
        failed, silent = False, step[0] in {"put", "tell", "start", "daemon", "spawn"}
        try:
            seen = self._collect(step) if step[0] in COLLECTIVES else getattr(self, f"_{step[0]}")(*step[1:])
        except OSError as error:
            seen, failed = _NAMES[error.errno or 0], True
        if not silent:
            self.saw.append(seen or "")
        return seen or "", failed

    def _last(self) -> str:
        return self.saw[-1] if self.saw else ""

    # Files.

    def _mkdir(self, path: str) -> None:
        os.mkdir(self._at(path))

    def _rmdir(self, path: str) -> None:
        os.rmdir(self._at(path))

    def _unlink(self, path: str) -> None:
        os.unlink(self._at(path))

    def _rename(self, source: str, target: str) -> None:
        os.rename(self._at(source), self._at(target))

    def _link(self, source: str, target: str) -> None:
        os.link(self._at(source), self._at(target), follow_symlinks=False)

    def _symlink(self, target: str, path: str) -> None:
        os.symlink(target, self._at(path))

    def _readlink(self, path: str) -> str:
        return os.readlink(self._at(path))

    def _stat(self, path: str) -> str:
        status = os.stat(self._at(path))
        return "directory:0" if status.st_mode & 0o040000 else f"file:{status.st_size}"

    def _list(self, path: str) -> str:
        return ",".join(sorted({*os.listdir(self._at(path))} - {*_LOCKABLE}))

    def _create(self, path: str) -> None:
        self._files[path] = os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def _open(self, path: str) -> None:
        self._files[path] = os.open(self._at(path), os.O_RDWR)

    def _file(self, path: str) -> int:
        if path not in self._files:
            raise OSError(errno.EBADF, "not open")
        return self._files[path]

    def _write(self, path: str, text: str) -> None:
        os.write(self._file(path), (self._last() + "x" if text == "+" else text).encode())

    def _read(self, path: str) -> str:
        return os.read(self._file(path), 1000).decode()

    def _map(self, path: str) -> None:
        self._maps[path] = mmap.mmap(self._file(path), 0, prot=mmap.PROT_READ)

    def _peek(self, path: str) -> str:
        if path not in self._maps:
            raise OSError(errno.EBADF, "not mapped")
        return self._maps[path][:].decode()

    def _fsync(self, path: str) -> None:
        os.fsync(self._file(path))

    def _close(self, path: str) -> None:
        os.close(self._file(path))
        del self._files[path]

    # Locks.

    def _flock(self, path: str, mode: str, how: str) -> None:
        fcntl.flock(self._file(path), _MODES[mode] | (fcntl.LOCK_NB if how == "try" else 0))

    def _funlock(self, path: str) -> None:
        fcntl.flock(self._file(path), fcntl.LOCK_UN)

    def _record(self, path: str, mode: str, first: int, last: int, how: str) -> None:
        command = _MODES[mode] | (fcntl.LOCK_NB if how == "try" else 0)
        fcntl.lockf(self._file(path), command, last - first + 1, first)

    def _runlock(self, path: str, first: int, last: int) -> None:
        fcntl.lockf(self._file(path), fcntl.LOCK_UN, last - first + 1, first)

    # The store.

    @property
    def _store(self) -> Any:
        return dist.distributed_c10d._get_default_store()

    def _set(self, key: str, text: str) -> None:
        self._store.set(key, text)

    def _get(self, key: str) -> str:
        return str(self._store.get(key).decode())

    def _await(self, key: str) -> str:
        self._store.wait([key])
        return key

    def _check(self, key: str) -> str:
        return "there" if self._store.check([key]) else ""

    def _delete(self, key: str) -> str:
        return "deleted" if self._store.delete_key(key) else "nothing"

    def _add(self, key: str, amount: int) -> str:
        return str(self._store.add(key, amount))

    def _compare(self, key: str, old: str, new: str) -> str:
        return str(self._store.compare_set(key, old, new).decode())

    # Collectives.

    def _collect(self, step: Instruction) -> str:
        kind, ranks, root = step[0], step[1], step[2] if len(step) > 2 else -1
        group, own = self._groups[ranks], self._rank.rank
        if kind == "barrier":
            dist.barrier(group=group)
            return ""
        word = _tensor(self._last())
        into = [_tensor("") for _ in ranks]
        if kind == "reduce":
            dist.all_gather(into, word, group=group)
        elif kind == "gather":
            dist.gather(word, into if own == root else None, dst=root, group=group)
            into = into if own == root else [word]
        elif kind == "broadcast":
            dist.broadcast(word, src=root, group=group)
            into = [word]
        else:
            into = [into[0]]
            dist.scatter(into[0], [word] * len(ranks) if own == root else None, src=root, group=group)
        return "|".join(map(_text, into))

    def _send(self, peer: int) -> None:
        dist.send(_tensor(self._last()), peer)

    def _recv(self, peer: int) -> str:
        word = _tensor("")
        dist.recv(word, peer)
        return _text(word)

    # Threads and processes.

    def _start(self, block: Block, *, daemon: bool = False) -> None:
        actor = Actor(self._rank, block, self._memory, self._groups)
        thread = threading.Thread(target=actor.run, daemon=daemon)
        self._threads.append((thread, actor))
        thread.start()

    def _daemon(self, block: Block) -> None:
        self._start(block, daemon=True)

    def _join(self, number: int) -> str:
        if number > len(self._threads):
            return ""
        thread, actor = self._threads[number - 1]
        thread.join()
        return ",".join(actor.saw)

    def _alive(self, number: int) -> str:
        return "alive" if number <= len(self._threads) and self._threads[number - 1][0].is_alive() else ""

    def _put(self, name: str, text: str) -> None:
        self._memory[name] = self._last() + "x" if text == "+" and self.saw else text

    def _look(self, name: str) -> str:
        return str(self._memory.get(name, "none"))

    def _tell(self, name: str) -> None:
        self._event(name).set()

    def _told(self, name: str) -> str:
        return "told" if self._event(name).is_set() else ""

    def _listen(self, name: str) -> str:
        self._event(name).wait()
        return "told"

    def _event(self, name: str) -> threading.Event:
        event: threading.Event = self._memory.setdefault(f"event {name}", threading.Event())
        return event

    def _spawn(self, block: Block) -> None:
        child = os.fork()
        if not child:
            status = 1
            try:
                Actor(self._rank, block, self._memory, self._groups).run()
                status = 0
            finally:
                os._exit(status)
        self._processes.append(child)

    def _reap(self, number: int) -> str:
        if number > len(self._processes):
            return "nobody"
        if number not in self._reaped:
            os.waitpid(self._processes[number - 1], 0)
            self._reaped.add(number)
        return "reaped"

    def _polled(self, number: int) -> str:
        if number <= len(self._processes) and number not in self._reaped:
            if os.waitpid(self._processes[number - 1], os.WNOHANG) == (0, 0):
                return ""
            self._reaped.add(number)
        return "ended"

    def _sleep(self) -> None:
        time.sleep(0.1)


def _uses(step: Instruction, path: str) -> bool:
    """Whether an instruction of the thread's own, or one in its branches, is about a file."""
    if step[0] in {"start", "daemon", "spawn"}:
        return False
    parts: list[Any] = [*step[1:]]
    return path in parts or any(_uses(part, path) for part in _instructions(parts))


def _instructions(parts: list[Any]) -> list[Instruction]:
    found: list[Instruction] = []
    for part in parts:
        if isinstance(part, tuple) and part and isinstance(part[0], str):
            found.append(part)
        elif isinstance(part, tuple):
            found += [each for each in part if isinstance(each, tuple) and each]
    return found


def _tensor(text: str) -> torch.Tensor:
    return torch.tensor([*text.encode().ljust(_ROOM, b"\0")], dtype=torch.uint8)


def _text(word: torch.Tensor) -> str:
    return bytes(word.tolist()).rstrip(b"\0").decode()
