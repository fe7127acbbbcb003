"""Diamonds: from one state two ops in both orders, on a real file system, in this process.

The same code as in a controlled run says what an op is about and performs it, but the calls come from here: so
thousands of pairs are tried in the time that a few worlds take.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import stat
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from socket import socketpair
from typing import NamedTuple

from racecheck.kernel import libc
from racecheck.kernel.memory import Memory
from racecheck.kernel.syscalls import TABLE
from racecheck.model.nouns import Op, Result
from racecheck.model.ops.locks import Locks
from racecheck.model.ops.unstable_names import Names
from racecheck.supervisor.calls import locks, sleeps
from racecheck.supervisor.calls.perform import Answer, creates, perform
from racecheck.supervisor.files.open_files import Descriptors, OpenFiles
from racecheck.supervisor.files.paths import AT_FDCWD, Identities, Watched
from racecheck.supervisor.state.decoder import Decoder
from racecheck.supervisor.state.rank_parts import Wire
from racecheck.supervisor.state.tasks import Process, Rank, Request, Task
from racecheck.supervisor.state.virtual_time import VirtualTime

_PATHS = (
    ".", "a", "a", "b", "h", "d", "d/a", "d/a", "d/s", "d/s/a", "e", "e/a", "l", "l/a", "m", "m/a", "k", "k/a", "o",
    "d/../a", "d/s/../a", "e/../l/s", "gone", "a/x",
)  # fmt: skip
_NAMES = (b"a", b"s", b"s/a", b".", b"..", b"../a", b"../e", b"s/../a")
_ROOM = 4096
_FIRST = 300
"""Where descriptors begin: in the range of those that ranks get."""
HERE = AT_FDCWD


def plant(root: Path) -> None:
    """What all begins with: directories, files of which one has two names, links to a directory, to nothing, out."""
    (root / "d" / "s").mkdir(parents=True)
    (root / "e").mkdir()
    (root / "a").write_text("the first")
    (root / "d" / "a").write_text("the second")
    os.link(root / "a", root / "h")
    for name, target in {"l": "d", "m": "l/s", "k": "gone", "o": "/proc/self/cmdline"}.items():
        os.symlink(target, root / name)


class File(NamedTuple):
    """The ``number``-th of the files or directories that a process has open, counted from the last."""

    kind: str
    number: int


class Link(NamedTuple):
    """The path of a file's link in /proc."""

    file: File


class Room(NamedTuple):
    """Memory for what the kernel says, and how to read it."""

    tells: Callable[[bytes, int], object]


Argument = int | str | bytes | File | Link | Room
"""Text is a path below the root; bytes are given as they are."""


class Call(NamedTuple):
    name: str
    arguments: tuple[Argument, ...]


class Hand:
    """Three threads that do as they are told: those of two ranks, and another one of the first's."""

    def __init__(self, root: Path) -> None:
        plant(root)
        self.root = root
        self._files = OpenFiles(Watched({str(root): ""}))
        self._decoder = Decoder(self._files.watched, Identities(), Names())
        self._locks, self._time = Locks(), VirtualTime(mmap.mmap(-1, 8))
        self._channel, theirs = socketpair()
        theirs.close()
        pid, rank = os.getpid(), Rank(0, Wire(self._channel), self._files, pid=os.getpid())
        self._processes = [Process(rank, pid, Memory(pid), Descriptors(pid, self._files)) for _ in range(2)]
        self._opened: list[dict[str, list[int]]] = [{"file": [], "directory": []} for _ in self._processes]
        self._threads = [0, 1, 0]
        self._decoder.identities.meet(self._files.watched)

    def close(self) -> None:
        self._channel.close()
        self._files.close()
        for opened in self._opened:
            for number in [*opened["file"], *opened["directory"]]:
                os.close(number)

    def about(self, thread: int, call: Call) -> Call | None:
        """A call with descriptors in place of its files; None if one of them is not open."""
        found: list[Argument] = []
        for each in call.arguments:
            file = each.file if isinstance(each, Link) else each
            if isinstance(file, File):
                opened = self._opened[self._threads[thread]][file.kind]
                if file.number >= len(opened):
                    return None
                number = opened[-1 - file.number]
                found.append(b"/proc/self/fd/%d" % number if isinstance(each, Link) else number)
            else:
                found.append(each)
        return Call(call.name, tuple(found))

    def do(self, thread: int, call: Call) -> tuple[Op, object]:
        """Gives the op with its result, and what the kernel says."""
        owner = self._threads[thread]
        given = [self._argument(each) for each in call.arguments]
        registers = [
            ctypes.addressof(each) if isinstance(each, ctypes.Array) else each & (1 << 64) - 1 for each in given
        ]
        task = Task(self._processes[owner], threading.get_native_id(), str(thread))
        request = self._decoder.decode(task, TABLE[call.name], (*registers, *[0] * (6 - len(registers))))
        self._decoder.place(request)
        sleeps.describe(request, self._time)
        locks.describe(request)
        if locks.releases(request, self._locks):
            request.op = replace(request.op, flags=(*request.op.flags, "LOCK_UN"))
        answer = self._perform(request)
        if answer.opened >= 0:
            self._keep(owner, answer.opened)
        if call.name == "close":
            self._drop(owner, registers[0])
        request.close()
        ended = Result(errno=libc.errno_name(answer.errno), value=answer.value, size=answer.size, digest=answer.digest)
        told = [
            each.tells(bytes(buffer), answer.value)
            for each, buffer in zip(call.arguments, given, strict=True)
            if isinstance(each, Room) and isinstance(buffer, ctypes.Array) and not answer.errno
        ]
        return replace(request.op, result=ended), told

    def _argument(self, given: Argument) -> int | ctypes.Array[ctypes.c_char]:
        assert not isinstance(given, (File, Link))
        if isinstance(given, int):
            return given
        if isinstance(given, Room):
            return ctypes.create_string_buffer(_ROOM)
        return ctypes.create_string_buffer(os.fsencode(f"{self.root}/{given}") if isinstance(given, str) else given)

    def _perform(self, request: Request) -> Answer:
        makes = creates(request)
        answer = sleeps.perform(request, lambda each: locks.perform(each, perform, held=self._locks))
        if makes and not answer.errno and not answer.carry_on:
            made = [*request.located.values()][-1].via.rstrip("/")
            self._decoder.identities.created(os.fstat(answer.opened) if answer.opened >= 0 else os.lstat(made))
        return answer

    def _keep(self, owner: int, opened: int) -> None:
        number = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _FIRST)
        self._processes[owner].descriptors.set(number, self._files.add(opened))
        kind = "directory" if stat.S_ISDIR(os.fstat(number).st_mode) else "file"
        self._opened[owner][kind].append(number)

    def _drop(self, owner: int, number: int) -> None:
        for numbers in self._opened[owner].values():
            with suppress(ValueError):
                numbers.remove(number)
        os.close(number)

    # What anybody could find out later, but times.

    def state(self) -> list[object]:
        names = [(str(each.relative_to(self.root)), _about(each)) for each in sorted(self.root.rglob("*"))]
        owners: dict[object, object] = {process: at for at, process in enumerate(self._processes)}
        files: list[object] = []
        for at, opened in enumerate(self._opened):
            for kind, numbers in opened.items():
                for place, number in enumerate(numbers):
                    file = self._processes[at].descriptors.look_up(number)
                    assert file is not None
                    owners[file] = (at, kind, place)
                    offset = (
                        os.lseek(number, 0, os.SEEK_CUR) if kind == "file" else (file.position, file.listing is None)
                    )
                    files.append((at, kind, place, offset, _about(Path(f"/proc/self/fd/{number}"), follow=True)))
        held = sorted(
            repr((lock.kind, owners[lock.owner], lock.mode, lock.start, lock.end)) for lock in self._locks.held
        )
        return [names, files, held]


def _about(path: Path, *, follow: bool = False) -> tuple[object, ...]:
    status = path.stat() if follow else path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return "link", os.readlink(path)
    if not stat.S_ISREG(status.st_mode):
        return (stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode))
    attributes = {each: os.getxattr(path, each) for each in os.listxattr(path)}
    return "file", status.st_mode, status.st_nlink, path.read_bytes(), attributes


# Random calls.


def stat_of(raw: bytes, _: int) -> object:
    """struct stat of x86-64."""
    links, mode = struct.unpack_from("QI", raw, 16)
    (size,) = struct.unpack_from("q", raw, 48)
    return (mode, links, size) if stat.S_ISREG(mode) else mode


def kept(raw: bytes, length: int) -> object:
    return raw[:length]


def names_of(raw: bytes, length: int) -> object:
    """Names and types of struct linux_dirent64."""
    found, at = [], 0
    while at < length:
        _, _, size, kind = struct.unpack_from("=QqHB", raw, at)
        found.append((raw[at + 19 : at + size].rstrip(b"\0"), kind))
        at += size
    return found


def _at(rng: Random, paths: Sequence[str]) -> tuple[Argument, Argument]:
    """Where a path starts, and the path."""
    if rng.random() < 0.25:
        return File("directory", rng.randrange(2)), rng.choice(_NAMES)
    return HERE, rng.choice(paths)


def _file(rng: Random) -> File:
    return File("file", rng.randrange(2))


_Drawn = tuple[str, tuple[Argument, ...]]
_HOW = (
    os.O_RDONLY, os.O_RDWR, os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    os.O_RDWR | os.O_CREAT | os.O_APPEND, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR | os.O_TRUNC,
    os.O_RDONLY | os.O_DIRECTORY, os.O_RDONLY | os.O_DIRECTORY, os.O_RDWR | os.O_TMPFILE, os.O_RDONLY | os.O_NOFOLLOW,
)  # fmt: skip
_LOCK = (1, 2, 4 | 1, 4 | 2, 4 | 2, 8)
_EMPTY = 0x1000


def _record(rng: Random, _: Sequence[str]) -> _Drawn:
    wanted = struct.pack("hhqqi4x", rng.choice((0, 1, 1, 2)), 0, rng.choice((0, 1, 4)), rng.choice((0, 2)), 0)
    return "fcntl", (_file(rng), rng.choice((6, 37)), wanted)


_KINDS: tuple[Callable[[Random, Sequence[str]], _Drawn], ...] = (
    lambda rng, paths: ("mkdirat", (*_at(rng, paths), 0o755)),
    lambda rng, paths: ("unlinkat", (*_at(rng, paths), 0x200)),
    lambda rng, paths: ("unlinkat", (*_at(rng, paths), 0x200)),
    lambda rng, paths: ("unlinkat", (*_at(rng, paths), 0)),
    lambda rng, paths: ("unlinkat", (*_at(rng, paths), 0)),
    lambda rng, paths: ("renameat2", (*_at(rng, paths), *_at(rng, paths), rng.choice((0, 0, 0, 1, 2)))),
    lambda rng, paths: ("renameat2", (*_at(rng, paths), *_at(rng, paths), 0)),
    lambda rng, paths: ("linkat", (*_at(rng, paths), *_at(rng, paths), rng.choice((0, 0x400)))),
    lambda rng, paths: ("linkat", (_file(rng), b"", *_at(rng, paths), _EMPTY)),
    lambda rng, paths: ("linkat", (HERE, Link(_file(rng)), *_at(rng, paths), 0x400)),
    lambda rng, paths: (
        "symlinkat",
        (rng.choice((b"a", b"d", b"e", b"s", b"l/s", b"../d", b"gone")), *_at(rng, paths)),
    ),
    lambda rng, paths: ("readlinkat", (*_at(rng, paths), Room(kept), _ROOM)),
    lambda rng, paths: ("newfstatat", (*_at(rng, paths), Room(stat_of), rng.choice((0, 0x100)))),
    lambda rng, paths: ("fstat", (_file(rng), Room(stat_of))),
    lambda rng, paths: ("faccessat", (*_at(rng, paths), rng.choice((4, 2, 1)))),
    lambda rng, paths: ("fchmodat", (*_at(rng, paths), rng.choice((0o700, 0o755, 0o500)))),
    lambda rng, paths: ("fchmod", (_file(rng), rng.choice((0o700, 0o644)))),
    lambda rng, paths: ("fchmod", (File("directory", rng.randrange(2)), rng.choice((0o700, 0o500)))),
    lambda rng, paths: ("setxattr", (rng.choice(paths), b"user.x", rng.choice((b"1", b"2")), 1, rng.choice((0, 1)))),
    lambda rng, paths: ("getxattr", (rng.choice(paths), b"user.x", Room(kept), _ROOM)),
    lambda rng, paths: ("removexattr", (rng.choice(paths), b"user.x")),
    lambda rng, paths: ("truncate", (rng.choice(paths), rng.choice((0, 3, 9)))),
    lambda rng, paths: ("ftruncate", (_file(rng), rng.choice((0, 3, 9)))),
    lambda rng, paths: ("fallocate", (_file(rng), 0, 0, rng.choice((4, 12)))),
    lambda rng, paths: ("openat", (*_at(rng, paths), rng.choice(_HOW), 0o644)),
    lambda rng, paths: ("openat", (*_at(rng, paths), rng.choice(_HOW), 0o644)),
    lambda rng, paths: ("openat", (*_at(rng, paths), rng.choice(_HOW), 0o644)),
    lambda rng, paths: ("openat", (HERE, rng.choice(paths), os.O_RDONLY | os.O_DIRECTORY, 0)),
    lambda rng, paths: ("getdents64", (File("directory", rng.randrange(2)), Room(names_of), _ROOM)),
    lambda rng, paths: ("getdents64", (File("directory", rng.randrange(2)), Room(names_of), _ROOM)),
    lambda rng, paths: ("read", (_file(rng), Room(kept), 4)),
    lambda rng, paths: ("pread64", (_file(rng), Room(kept), 4, rng.choice((0, 2)))),
    lambda rng, paths: ("write", (_file(rng), rng.choice((b"xy", b"z")), 1)),
    lambda rng, paths: ("write", (_file(rng), b"uvw", 3)),
    lambda rng, paths: ("pwrite64", (_file(rng), b"pq", 2, rng.choice((0, 1, 5)))),
    lambda rng, paths: ("copy_file_range", (_file(rng), 0, _file(rng), 0, 3, 0)),
    lambda rng, paths: ("sendfile", (_file(rng), _file(rng), 0, 3)),
    lambda rng, paths: ("lseek", (_file(rng), 0, os.SEEK_END)),
    lambda rng, paths: ("flock", (_file(rng), rng.choice(_LOCK) | 4)),
    _record,
    _record,
    lambda rng, paths: ("close", (_file(rng),)),
)


# Both orders.


Did = tuple[int, Call]
"""A thread, and what it does."""


class Seen(NamedTuple):
    """Two calls in one order, each with what the kernel says, and the state after them."""

    one: tuple[Op, object]
    other: tuple[Op, object]
    state: list[object]

    @property
    def ops(self) -> tuple[Op, Op]:
        return self.one[0], self.other[0]

    def same(self, swapped: Seen) -> bool:
        """Whether nobody could tell the order."""
        mine, theirs = ([_visible(*each) for each in (seen.one, seen.other)] for seen in (self, swapped))
        return (mine, self.state) == (theirs, swapped.state)


def _visible(op: Op, told: object) -> tuple[object, ...]:
    """What the caller of an op has seen; of an open file not the number."""
    assert op.result is not None
    result = replace(op.result, value=0) if op.call == "open" else op.result
    return result, told, [place.kind for place in op.places]


def orders(root: Path, prepare: Callable[[Hand], tuple[Did, Did]]) -> tuple[Seen, Seen]:
    """Two calls in both orders; ``prepare`` brings a hand into the state before them, and gives them."""
    found = []
    for order in ((0, 1), (1, 0)):
        watched = root / str(order[0]) / "watched"
        watched.mkdir(parents=True)
        hand = Hand(watched)
        try:
            pair = prepare(hand)
            did = {at: hand.do(*pair[at]) for at in order}
            found.append(Seen(did[0], did[1], hand.state()))
        finally:
            hand.close()
    return found[0], found[1]


def diamond(root: Path, seed: str, before: int) -> tuple[Seen, Seen]:
    """Two random calls in both orders, in a state that other random calls have led to."""

    def prepare(hand: Hand) -> tuple[Did, Did]:
        rng = Random(seed)
        for _ in range(before):
            thread = rng.randrange(3)
            hand.do(thread, _drawn(hand, thread, rng, _PATHS))
        threads, paths = rng.choice(((0, 1), (0, 1), (0, 2), (1, 2))), rng.choices(_PATHS, k=3)
        while True:
            one, other = (_drawn(hand, each, rng, paths) for each in threads)
            if threads != (0, 2) or not _is_about_numbers(one, other):
                return (threads[0], one), (threads[1], other)

    return orders(root, prepare)


def _drawn(hand: Hand, thread: int, rng: Random, paths: Sequence[str]) -> Call:
    """A call that this thread can make."""
    while True:
        call = hand.about(thread, Call(*rng.choice(_KINDS)(rng, paths)))
        if call is not None:
            return call


def _is_about_numbers(one: Call, other: Call) -> bool:
    """Whether two threads of a process could tell their order by the numbers of descriptors: these are left out."""
    return "close" in {one.name, other.name} or one.name == other.name == "openat"
