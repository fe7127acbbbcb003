"""Calls on a storage whose nodes have caches: a choice decides which version a node sees, and the answer follows it.

The storage's view (`racecheck.storage.views`) decides which may be seen; here are the copies of attributes, bytes and
listings that this takes, and the part that needs real files: NFS's renaming of a removed file that is still open on its
own node, and the mirrors of an object storage (`racecheck.supervisor.act.object_mirrors`).
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from racecheck import storage
from racecheck.kernel import libc, syscalls
from racecheck.kernel.signature import SIZES, Role
from racecheck.model.nouns import Op, Result
from racecheck.model.ops import op_kinds
from racecheck.storage.nfs.view import KEPT
from racecheck.storage.views import Seen, View
from racecheck.supervisor.act.object_mirrors import ObjectMirrors
from racecheck.supervisor.calls.perform import Answer, Next
from racecheck.supervisor.files.open_files import OpenFile
from racecheck.supervisor.files.paths import AT_FDCWD
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.tasks import Rank, Request

_MOST = 256 << 20
"""The most bytes that are copied of a file; of a longer one no old content is shown."""
_EMPTY_PATH, _NO_FOLLOW = 0x1000, 0x100
_BASIC_STATS = 0xFFF


@dataclass(frozen=True, slots=True)
class _CachedAttributes:
    """The kernel's answer about an object, in both forms that programs ask for."""

    stat: bytes
    statx: bytes


class ClientCaches:
    """The views of a run; unused if every node sees the true state."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._view = storage.view(state.world)
        self._mirrors = ObjectMirrors(state, self._view) if state.storage.mirrored else None
        self._copies: list[int] = []
        self._kept: dict[str, int] = {}
        self._ended: set[int] = set()
        if self._view is not None and state.world.nodes == 1:
            state.ledger.note("one node only: its caches are never stale (use --nodes 2)")

    def flushes(self, request: Request) -> bool:
        """Return whether a call that no other thread could notice otherwise shows others something new."""
        if self._view is None:
            return False
        self._settle()
        if self._mirrors is not None and self._mirrors.completes(request):
            return True
        return self._view.flushes(request.op)

    def perform(self, request: Request, next_: Next) -> Answer:
        """Carry a call out, or answer it with the version that its node sees."""
        if self._view is None:
            return next_(request)
        self._settle()
        now = self._state.time.elapsed
        truth = _CurrentObject(request, self._copies)
        clock = dict(request.task.clock)
        answers = self._view.before(replace(request.op, clock=clock), now, truth)
        index = 0
        if len(answers) > 1:
            stale = (_shown_as(request.op, each) for each in answers[1:])
            index = self._state.decide("view", (request.op, *stale))
        seen = answers[index]
        if seen.fault:
            request.op = _shown_as(request.op, seen)
        if request.op.call == "list" and request.files:
            request.file.keeps_listing = True
        result = self._answer(request, seen, next_)
        self._view.after(_done(replace(request.op, clock=clock), result), seen, now, truth)
        if request.op.call in op_kinds.CLOSES:
            self._remove_kept()
        return result

    def finish(self) -> None:
        """End the run: the open files of ranks are closed with them."""
        if self._view is not None:
            self._settle()
            for path in self._kept:
                with suppress(OSError):
                    os.unlink(path)
            if self._mirrors is not None:
                self._mirrors.complete_all(everything=True)
            for descriptor in self._copies:
                os.close(descriptor)
            self._copies.clear()

    def _settle(self) -> None:
        """Note ranks that have ended meanwhile: their files are closed."""
        assert self._view is not None
        for rank in self._state.ranks:
            if rank.gone and rank.number not in self._ended:
                self._ended.add(rank.number)
                self._view.ended(rank.number)
                self._remove_kept()
                if self._mirrors is not None:
                    self._mirrors.complete_all()
                self._state.trace.changes += 1

    # Answers.

    def _answer(self, request: Request, seen: Seen, next_: Next) -> Answer:
        if seen.errno:
            return Answer(errno=getattr(errno, seen.errno))
        if seen.shown is not None:
            return self._show(request, seen.shown, next_)
        if self._mirrors is not None:
            return self._mirrors.perform(request, next_)
        if getattr(self._view, "renames_open", False) and request.op.call in {"unlink", "rename"}:
            return self._remove(request, next_)
        return next_(request)

    def _show(self, request: Request, shown: object, next_: Next) -> Answer:
        if isinstance(shown, _CachedAttributes):
            return self._show_attributes(request, shown, next_)
        if isinstance(shown, list):
            request.file.listing = list(shown)
            return next_(request)
        assert isinstance(shown, int)
        with _instead(request, shown):
            return next_(request)

    def _show_attributes(self, request: Request, shown: _CachedAttributes, next_: Next) -> Answer:
        if request.op.call == "access":
            return Answer()
        for index, arg in enumerate(request.call.args):
            if arg.role is Role.OUT and arg.name in {"stat", "statx"}:
                data = shown.stat if arg.name == "stat" else shown.statx
                try:
                    request.task.process.memory.write(request.arguments[index], data)
                except OSError:
                    return Answer(errno=errno.EFAULT)
                self._state.time.show(request)
                return Answer()
        return next_(request)

    # A removed file that is open on its own node.

    def _remove(self, request: Request, next_: Next) -> Answer:
        """Remove or replace a file; one that is open on this node gets a name of its own first (fs/nfs/unlink.c)."""
        located, places = [*request.located.values()], request.op.places
        target, place, node = located[-1], places[-1], self._state.world.node(request.op.rank)
        if not _can_go(request.op, [each.name for each in located]) or not self._is_open(node, target.via):
            return next_(request)
        name = f"{os.path.dirname(target.via)}/.nfs{place.inode:016x}{len(self._kept) + 1:08x}"
        try:
            os.rename(target.via, name)
        except OSError:
            return next_(request)
        self._kept[os.path.realpath(name)] = node
        request.op = replace(request.op, flags=tuple(sorted({*request.op.flags, KEPT})))
        if request.op.call == "unlink":
            return Answer()
        return next_(request)

    def _remove_kept(self) -> None:
        for path, node in [*self._kept.items()]:
            if not self._is_open(node, path):
                del self._kept[path]
                with suppress(OSError):
                    os.unlink(path)

    def _is_open(self, node: int, path: str) -> bool:
        """Return whether a process of a node has a file open."""
        try:
            wanted = os.stat(path)
        except OSError:
            return False
        ranks = [rank for rank in self._state.ranks if self._state.world.node(rank.number) == node]
        return any(os.path.samestat(wanted, file.status()) for rank in ranks for file in open_files(rank))


def open_files(rank: Rank) -> Iterator[OpenFile]:
    """Yield the open files of a rank's processes."""
    for process in rank.processes.values():
        yield from process.descriptors.among(0, 1 << 30)


def _can_go(op: Op, names: list[str]) -> bool:
    """Return whether a call will remove a file, or replace it by another one: its arguments exist and are valid."""
    wanted = {"unlink": 1, "rename": 2}[op.call]
    if len(names) != wanted or len(op.places) != wanted or any(each.endswith("/") for each in names):
        return False
    source, target = op.places[0], op.places[-1]
    if op.call == "rename" and (source.inode == target.inode or source.kind in {"", "directory"}):
        return False
    return target.kind == "file"


def _shown_as(op: Op, seen: Seen) -> Op:
    return replace(op, fault="; ".join(each for each in (op.fault, seen.fault) if each))


def _done(op: Op, result: Answer) -> Op:
    name = libc.errno_name(result.errno)
    return replace(op, result=Result(errno=name, value=result.value, size=result.size, known=not result.carry_on))


@dataclass(slots=True)
class _CurrentObject:
    """The object of a request as it is now; copies of bytes are descriptors, kept until the run ends."""

    request: Request
    copies: list[int]

    def attributes(self) -> object:
        path, flags = self._path()
        stat = _ask("newfstatat", path, SIZES[libc.MACHINE]["stat"], flags)
        statx = _ask("statx", path, SIZES[libc.MACHINE]["statx"], flags, _BASIC_STATS)
        return _CachedAttributes(stat, statx) if stat and statx else None

    def _path(self) -> tuple[str, int]:
        """Return a path to the object, and how to ask about it."""
        if self.request.files:
            return f"/proc/self/fd/{[*self.request.files.values()][-1].descriptor}", 0
        located = [*self.request.located.values()][-1]
        return located.via.rstrip("/"), _NO_FOLLOW

    def content(self) -> object:
        if self.request.op.call == "list":
            return list(self.request.file.listing or ())
        path, _ = self._path()
        try:
            source = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            return self._copied(source)
        finally:
            os.close(source)

    def _copied(self, source: int) -> int | None:
        left, start = os.fstat(source).st_size, 0
        if left > _MOST:
            return None
        copy = os.memfd_create("racecheck")
        self.copies.append(copy)
        while left > 0 and (moved := os.sendfile(copy, source, start, left)):
            left, start = left - moved, start + moved
        return copy


def _ask(name: str, path: str, size: int, *rest: int) -> bytes:
    """Return the answer of a call of the stat family; nothing if it fails."""
    buffer, number = ctypes.create_string_buffer(size), syscalls.number(name, libc.MACHINE)
    assert number is not None
    if name == "statx":
        flags, mask = rest
        _, error = libc.syscall(number, AT_FDCWD, os.fsencode(path), flags, mask, buffer)
    else:
        _, error = libc.syscall(number, AT_FDCWD, os.fsencode(path), buffer, *rest)
    return b"" if error else buffer.raw


@contextmanager
def _instead(request: Request, copy: int) -> Iterator[None]:
    """Have a call read from a copy at its own offset, and advance its own file by as much."""
    index = next(
        index for index in request.files if request.call.family == "read" or request.call.args[index].name == "from"
    )
    real = request.files[index]
    descriptor = os.open(f"/proc/self/fd/{copy}", os.O_RDONLY | os.O_CLOEXEC)
    os.lseek(descriptor, os.lseek(real.descriptor, 0, os.SEEK_CUR), os.SEEK_SET)
    request.files[index] = OpenFile(real.number, descriptor)
    try:
        yield
        os.lseek(real.descriptor, os.lseek(descriptor, 0, os.SEEK_CUR), os.SEEK_SET)
    finally:
        request.files[index] = real
        os.close(descriptor)


__all__ = ["ClientCaches", "View", "open_files"]
