"""How the engine is told what a thread of a generated program is about to do: as an op with places and flags."""

from __future__ import annotations

from typing import Any

from racecheck.model.nouns import Op, Place

from .machine import FOLLOWS, Machine, Opened
from .programs import Instruction

_CALLS = {
    "mkdir": ("mkdir", "mkdir", ()), "rmdir": ("rmdir", "unlinkat", ("AT_REMOVEDIR",)),
    "unlink": ("unlink", "unlinkat", ()), "rename": ("rename", "renameat", ()), "link": ("link", "linkat", ()),
    "symlink": ("symlink", "symlinkat", ()), "readlink": ("readlink", "readlink", ()),
    "stat": ("stat", "newfstatat", ()), "age": ("stat", "newfstatat", ()), "list": ("list", "getdents64", ()),
    "create": ("open", "openat", ("O_CREAT", "O_TRUNC", "O_WRONLY")), "open": ("open", "openat", ("O_RDONLY",)),
    "write": ("write", "write", ()), "read": ("read", "read", ()), "fsync": ("fsync", "fsync", ()),
    "map": ("mmap", "mmap", ("MAP_SHARED", "PROT_READ")),
    "close": ("close", "close", ()), "sleep": ("sleep", "clock_nanosleep", ()),
    "begin": ("begin", "thread", ()), "started": ("start", "started", ()), "leave": ("leave", "left", ()),
    "end": ("end", "end of thread", ()), "tell": ("poll", "Event.set", ()),
    "told": ("poll", "Event.is_set", ()), "alive": ("poll", "Thread.is_alive", ()), "polled": ("reap", "wait4", ()),
    "join": ("join", "futex", ()), "listen": ("join", "futex", ()), "reap": ("reap", "wait4", ()),
    "exit": ("exit", "exit_group", ()),
}  # fmt: skip
"""Family, system call and flags."""
_STORE = {"await": "wait", "compare": "compare_set"}
STORE = frozenset({"set", "get", "await", "check", "delete", "add", "compare"})
THROUGH_DESCRIPTOR = frozenset({"write", "read", "fsync", "map", "close", "flock", "funlock", "record", "runlock"})
_MODES = {"SH": "LOCK_SH", "EX": "LOCK_EX"}


class Ops:
    """Describes the steps of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._numbers: dict[tuple[str, str], int] = {}

    def describe(self, name: str, *, alone: bool) -> Op:
        """The op that the next step of a thread is."""
        step = self._machine.next(name)
        what = step[0]
        thread = self._machine.threads[name]
        if what in STORE:
            call, syscall, flags = "store", _STORE.get(what, what), ()
            places: tuple[Place, ...] = (self._key(step[1]),)
        elif what in {"flock", "funlock", "record", "runlock"}:
            call, syscall, flags = _lock_call(step)
            places = (self._opened(name, step[1]),)
        else:
            call, syscall, flags = _CALLS.get(what, ("issue", what, ()))
            places = self._places(name, step)
        if what == "close" and self._holds(name, step[1]):
            flags = ("LOCK_UN",)
        if what == "exit" and places:
            flags = ("LOCK_UN",)
        args = {**_args(step), **self._of_locks(name, step)}
        return Op(thread.rank, name, call, syscall, places, tuple(sorted(flags)), args, alone=alone)

    def _of_locks(self, name: str, step: Instruction) -> dict[str, int]:
        """The numbers of an op on locks that depend on who asks, and on what it has."""
        machine, thread = self._machine, self._machine.threads[name]
        if step[0] in {"flock", "funlock"}:
            file = dict(thread.files)[step[1]]
            own = machine.flocks.get((file.inode, file.number), "SH")
            is_vain = step[0] == "flock" and step[3] == "try" and not machine.gets_flock(thread, step[1], step[2])
            lost = is_vain and machine.has_flock(thread, step[1])
            return {"shared": int(own == "SH" and (step[0] == "funlock" or step[2] == "SH")), "lost": int(lost)}
        if step[0] not in {"record", "runlock", "close", "exit"}:
            return {}
        process = self._number("process", thread.process) if "." in thread.process else 0
        return {"process": process, "waits": 2 * (name in machine.waits)}

    def _key(self, key: str) -> Place:
        return Place(f"store:{key}", 0, key, int(key in self._machine.store), "")

    def _places(self, name: str, step: Instruction) -> tuple[Place, ...]:
        what = step[0]
        if what == "exit":
            return tuple(self._file(file) for file in self._kept(name))
        if what in THROUGH_DESCRIPTOR:
            return (self._opened(name, step[1]),)
        if what in {"rename", "link"}:
            return self._path(step[1], follow=False), self._path(step[2], follow=False)
        if what == "symlink":
            return (self._path(step[2], follow=False),)
        if what in _CALLS:
            return (self._path(step[1], follow=what in FOLLOWS),) if _CALLS[what][0] in _OF_FILES else ()
        group = str(step[1])
        return (Place(f"{what} of group {group}", 0, group, 0, ""),)

    def _path(self, path: str, *, follow: bool) -> Place:
        tree = self._machine.tree
        found = tree.find(path, follow=follow)
        inode = tree.inodes.get(found.inode)
        numbers = self._number("inode", found.directory), self._number("inode", found.inode)
        kind, size = (inode.kind, len(inode.data)) if inode else ("", 0)
        return Place(found.path, numbers[0], found.name, numbers[1], kind, size=size, through=found.through)

    def _opened(self, name: str, path: str) -> Place:
        return self._file(dict(self._machine.threads[name].files)[path])

    def _file(self, file: Opened) -> Place:
        inode = self._machine.tree.inodes[file.inode]
        path = self._machine.name_of(file)
        number = self._number("inode", file.inode)
        opened = self._number("open file", file.number)
        return Place(path, 0, path.rpartition("/")[2], number, inode.kind, opened, size=len(inode.data))

    def _number(self, kind: str, identity: str) -> int:
        count = sum(known == kind for known, _ in self._numbers)
        return self._numbers.setdefault((kind, identity), count + 1) if identity else 0

    def _holds(self, name: str, path: str) -> bool:
        machine, thread = self._machine, self._machine.threads[name]
        file = dict(thread.files)[path]
        records = any(key[:2] == (file.inode, thread.process) for key in machine.records)
        return records or (file.inode, file.number) in machine.flocks

    def _kept(self, name: str) -> list[Opened]:
        """The open files of a process on which it holds locks."""
        machine = self._machine
        files = [
            file
            for each in machine.threads.values() if each.process == name
            for path, file in each.files if self._holds(each.name, path)
        ]  # fmt: skip
        return list({file.number: file for file in files}.values())


_OF_FILES = frozenset({"mkdir", "rmdir", "unlink", "readlink", "stat", "list", "open"})


def _lock_call(step: Instruction) -> tuple[str, str, tuple[str, ...]]:
    if step[0] == "funlock":
        return "flock", "flock", ("LOCK_UN",)
    if step[0] == "runlock":
        return "flock", "fcntl", ("F_SETLK", "LOCK_UN")
    if step[0] == "flock":
        return "flock", "flock", (_MODES[step[2]], *(("LOCK_NB",) if step[3] == "try" else ()))
    return "flock", "fcntl", (_MODES[step[2]], "F_SETLK" if step[5] == "try" else "F_SETLKW")


def _args(step: Instruction) -> dict[str, Any]:
    if step[0] == "write":
        return {"length": len(step[2])}
    if step[0] in {"record", "runlock"}:
        first, last = step[-3:-1] if step[0] == "record" else step[-2:]
        return {"start": first, "length": last + 1 - first}
    return {}
