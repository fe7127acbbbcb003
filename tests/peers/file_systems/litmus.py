"""Random programs on a few files, as calls and as the log that they make.  Models are tried on them.

After the litmus tests of memory models, and Mohan et al., "CrashMonkey and ACE" (OSDI 2018).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal, Protocol

from racecheck.crash.changes import PAGE, settled
from racecheck.crash.log import ROOT, Data, Entry, Inode, Log, Stored, Tree

OUTSIDE = 2
"""The number of a directory that the comparison after the crash leaves out."""
_FIRST = 3
_DIRECTORIES = ("", "d", "e", "d/f")
_NAMES = ("a", "b", "c")
_SYNCS = frozenset({"fsync", "fdatasync"})
_HOW = {"O_SYNC": os.O_SYNC, "O_DSYNC": os.O_DSYNC, "": 0}
_SIZES = (PAGE, PAGE, PAGE, 2 * PAGE, 100, 3000, 5000)


@dataclass(frozen=True, slots=True)
class Call:
    """One step of a program, with paths below its directory.

    "write" puts ``length`` bytes of the value ``fill`` at ``offset``, through a descriptor with O_SYNC or O_DSYNC if
    ``how`` says so; "flush" is sync_file_range, and "commit" makes the file system write its journal without a promise
    about any file of the program.  "sync" and "syncfs" are the same call: what is done before the first is the start of
    a log, the second is an entry of it.
    """

    kind: str
    path: str = ""
    to: str = ""
    offset: int = 0
    length: int = 0
    fill: int = 0
    how: Literal["", "O_SYNC", "O_DSYNC"] = ""

    def __str__(self) -> str:
        how = f" {self.how}" * bool(self.how)
        return {
            "write": f"pwrite({self.path}, {self.length} x {self.fill:#04x}, at {self.offset}){how}",
            "truncate": f"truncate({self.path}, {self.length})",
            "rename": f"rename({self.path}, {self.to})",
            "link": f"link({self.path}, {self.to})",
        }.get(self.kind, f"{self.kind}({self.path or ('.' if self.kind in _SYNCS else '')})")


Program = tuple[Call, ...]


def program(random: Random) -> Program:
    """Return a program of 16 to 26 calls, all of which succeed.  Half of the programs start with old files."""
    disk = _Disk(shared_journal=False)
    calls: list[Call] = []
    settled = random.choice([0, 0, random.randint(3, 8)])
    for number in range(1, random.randint(16, 26) + 1):
        call = Call("sync") if number == settled else _drawn(random, disk, number)
        disk.apply(call)
        calls.append(call)
    return tuple(calls)


def log_of(calls: Sequence[Call], *, shared_journal: bool) -> Log:
    """Return the log of a program.  `content` knows the bytes of its blobs.

    A write is as many entries as it touches pages, and what a sync has made last is the start.  ``shared_journal``: an
    fsync of another file commits (ext4, XFS).
    """
    disk = _Disk(shared_journal=shared_journal)
    log = Log(Tree({ROOT: Inode("directory"), OUTSIDE: Inode("directory")}), ())
    for event, call in enumerate(calls):
        entries = (replace(entry, event=event) for entry in disk.apply(call))
        log = Log(settled(log), ()) if call.kind == "sync" else replace(log, entries=(*log.entries, *entries))
    return log


def content(stored: Stored) -> bytes:
    """Return the bytes of a file that a program wrote."""
    parts = (
        bytes(length) if data is None else bytes([int(data.digest)]) * length for _, length, data in stored.extents
    )
    return b"".join(parts)


class Special(Protocol):
    """The steps that differ between file systems; `perform` calls them."""

    def flush(self, descriptor: int) -> None:
        """Write the bytes of a file back (sync_file_range), without a promise."""
        ...

    def sync(self) -> None:
        """Make everything durable."""
        ...

    def commit(self) -> None:
        """Write the journal."""
        ...


def perform(calls: Sequence[Call], directory: str, special: Special) -> None:
    """Make the calls of a program in a directory; raises `OSError`."""
    for call in calls:
        if call.kind == "commit":
            special.commit()
        elif call.kind in {"sync", "syncfs"}:
            special.sync()
        else:
            _perform(call, os.path.join(directory, call.path), os.path.join(directory, call.to), special)


def _perform(call: Call, path: str, to: str, special: Special) -> None:
    if call.kind in {"rename", "link"}:
        (os.rename if call.kind == "rename" else os.link)(path, to)
    elif call.kind == "truncate":
        os.truncate(path, call.length)
    elif call.kind in {"mkdir", "unlink", "rmdir"}:
        {"mkdir": os.mkdir, "unlink": os.unlink, "rmdir": os.rmdir}[call.kind](path)
    else:
        how = os.O_WRONLY | (os.O_CREAT | os.O_EXCL if call.kind == "create" else _HOW[call.how])
        descriptor = os.open(path, os.O_RDONLY if call.kind in _SYNCS else how, 0o644)
        try:
            if call.kind == "write":
                os.pwrite(descriptor, bytes([call.fill]) * call.length, call.offset)
            elif call.kind in _SYNCS:
                (os.fsync if call.kind == "fsync" else os.fdatasync)(descriptor)
            elif call.kind == "flush":
                special.flush(descriptor)
        finally:
            os.close(descriptor)


@dataclass(slots=True)
class _Disk:
    """The objects that a program has made so far."""

    shared_journal: bool
    names: dict[str, int] = field(default_factory=lambda: {"": ROOT})
    sizes: dict[int, int] = field(default_factory=dict)
    last: int = _FIRST - 1

    @property
    def files(self) -> list[str]:
        return [path for path, inode in self.names.items() if inode in self.sizes]

    @property
    def directories(self) -> list[str]:
        return [path for path, inode in self.names.items() if inode not in self.sizes]

    def free(self, *, taken: bool = False) -> list[str]:
        """Return paths for files in directories that exist; with ``taken``, paths of existing files too."""
        paths = (f"{directory}/{name}".lstrip("/") for directory in self.directories for name in _NAMES)
        return [path for path in paths if taken or path not in self.names]

    def apply(self, call: Call) -> list[Entry]:
        """Make the call, and return its log entries."""
        kind, inode = call.kind, self.names.get(call.path, 0)
        if kind in {"sync", "syncfs"}:
            return [Entry(-1, "sync")]
        if kind in _SYNCS:
            return [Entry(-1, "fsync", inode, datasync=kind == "fdatasync")]
        if kind == "flush":
            return []
        if kind == "commit":
            return self._commit() if self.shared_journal else []
        if kind == "write":
            self.sizes[inode] = max(self.sizes[inode], call.offset + call.length)
            return [*_pages(inode, call), *_lasting(inode, call)]
        if kind == "truncate":
            before, self.sizes[inode] = self.sizes[inode], call.length
            return [Entry(-1, "truncate", inode, length=call.length)] if call.length != before else []
        return [self._named(call)]

    def _commit(self) -> list[Entry]:
        inode = self._new()
        made = Entry(-1, "create", inode, OUTSIDE, f"commit{inode}")
        return [made, Entry(-1, "write", inode, length=1), Entry(-1, "fsync", inode)]

    def _new(self) -> int:
        self.last += 1
        return self.last

    def _named(self, call: Call) -> Entry:
        directory, name = self._place(call.path)
        if call.kind in {"create", "mkdir"}:
            inode = self.names[call.path] = self._new()
            if call.kind == "create":
                self.sizes[inode] = 0
                return Entry(-1, "create", inode, directory, name)
            return Entry(-1, "mkdir", inode, directory, name)
        if call.kind == "link":
            inode = self.names[call.to] = self.names[call.path]
            return Entry(-1, "link", inode, *self._place(call.to))
        inode = self.names.pop(call.path)
        if call.kind == "rename":
            replaced = self.names.get(call.to, 0)
            self.names[call.to] = inode
            return Entry(-1, "rename", inode, directory, name, *self._place(call.to), replaced)
        return Entry(-1, "unlink" if call.kind == "unlink" else "rmdir", inode, directory, name)

    def _place(self, path: str) -> tuple[int, str]:
        directory, _, name = path.rpartition("/")
        return self.names[directory], name


def _pages(inode: int, call: Call) -> Iterator[Entry]:
    """Yield the pages of a write."""
    start, end = call.offset, call.offset + call.length
    while start < end:
        stop = min(end, (start // PAGE + 1) * PAGE)
        data = Data(str(call.fill), 0, stop - start)
        yield Entry(-1, "write", inode, offset=start, length=stop - start, data=data)
        start = stop


def _lasting(inode: int, call: Call) -> Iterator[Entry]:
    """Return what a write promises by itself."""
    if call.how:
        yield Entry(-1, "fsync", inode, offset=call.offset, length=call.length, datasync=call.how == "O_DSYNC")


def _drawn(random: Random, disk: _Disk, fill: int) -> Call:
    """Return a call that succeeds on this disk."""
    while True:
        call = _tried(random, disk, random.choices(tuple(_WEIGHTS), tuple(_WEIGHTS.values()))[0], fill)
        if call is not None:
            return call


def _tried(random: Random, disk: _Disk, kind: str, fill: int) -> Call | None:
    """Return a call of a kind, or None if there is nothing to make it on."""
    if kind in {"commit", "syncfs"}:
        return Call(kind)
    if kind == "mkdir":
        there = disk.directories
        fresh = [each for each in _DIRECTORIES if each not in there and each.rpartition("/")[0] in there]
        return Call("mkdir", random.choice(fresh)) if fresh else None
    if kind == "create":
        free = disk.free()
        return Call("create", random.choice(free)) if free else None
    if kind in {"fsync directory", "fdatasync directory"}:
        return Call(kind.removesuffix(" directory"), random.choice(disk.directories))
    if not disk.files:
        return None
    path = random.choice(disk.files)
    size = disk.sizes[disk.names[path]]
    length = random.choice(_SIZES)
    if kind == "append":
        return Call("write", path, offset=size, length=length, fill=fill, how=random.choice(_HOWS))
    if kind == "overwrite":
        offset = random.randrange(0, size, PAGE) if size else 0
        return Call("write", path, offset=offset, length=length, fill=fill, how=random.choice(_HOWS)) if size else None
    if kind == "truncate":
        return Call("truncate", path, length=random.choice((0, 0, size // 2, size // PAGE * PAGE, size + PAGE)))
    if kind in {"rename", "link"}:
        free = [each for each in disk.free(taken=kind == "rename") if disk.names.get(each) != disk.names[path]]
        return Call(kind, path, random.choice(free)) if free else None
    return Call(kind, path)


_WEIGHTS: Mapping[str, float] = {
    "create": 6, "append": 7, "overwrite": 3, "truncate": 3, "rename": 6, "unlink": 2, "mkdir": 2, "link": 2,
    "fsync": 3, "fdatasync": 3, "fsync directory": 3, "fdatasync directory": 1, "flush": 2, "commit": 2, "syncfs": 0.5,
}  # fmt: skip
_HOWS: Sequence[Literal["", "O_SYNC", "O_DSYNC"]] = ("", "", "", "", "", "", "O_SYNC", "O_DSYNC")
