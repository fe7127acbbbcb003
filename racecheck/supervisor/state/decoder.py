"""From a stopped thread's registers to a request: which call, on which files, and whether it matters here."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from racecheck.kernel import libc
from racecheck.kernel.flags import flag_names
from racecheck.kernel.memory import Memory
from racecheck.kernel.signature import Role
from racecheck.kernel.syscalls import Call
from racecheck.model.nouns import Op, Place
from racecheck.model.ops import op_kinds
from racecheck.model.ops.unstable_names import Names
from racecheck.supervisor.files.open_files import OpenFile
from racecheck.supervisor.files.paths import (
    AT_FDCWD,
    Identities,
    Located,
    Resolver,
    ThreadView,
    Walked,
    Watched,
    kind_of,
)
from racecheck.supervisor.state.tasks import Request, Task

_UNIX = 1
_HOW_SIZE, _PAGE_SIZE = 24, 4096
_NEW_NAMES = op_kinds.MAKES | op_kinds.REMOVES | {"rename"}
"""Families that concern a name in a directory: a slash after a link does not make them follow it."""


class Unreachable(Exception):
    """The call is on a watched file whose descriptor we are not allowed to share."""


def signed(register: int, bits: int = 32) -> int:
    """Return a register as a signed number of this width in bits."""
    value = register & ((1 << bits) - 1)
    return value - (1 << bits) if value >> (bits - 1) else value


@dataclass(slots=True)
class Decoder:
    """Turns calls into requests."""

    watched: Watched
    identities: Identities
    names: Names

    def decode(self, task: Task, call: Call, arguments: tuple[int, ...]) -> Request:
        """Return the request that a call makes, as things stand.

        Raises `OSError` if its memory cannot be read (the kernel will say EFAULT), `Unreachable`.
        """
        flags, how = _flags(task, call, arguments)
        numbers = {
            arg.name: signed(arguments[index], 32 if arg.role is Role.INT else 64)
            for index, arg in enumerate(call.args)
            if arg.role in (Role.INT, Role.LONG)
        }
        named = tuple(sorted(flags))
        op = Op(task.rank.number, task.name, call.family_with(flags), call.name, args=numbers, flags=named)
        request = Request(task, 0, call, arguments, op, flags=flags, how=how)
        self.resolve(request)
        return request

    def resolve(self, request: Request) -> None:
        """Find (again) where the request's paths lead."""
        request.forget()
        request.files.clear()
        try:
            for index, arg in enumerate(request.call.args):
                if arg.role in (Role.PATH, Role.LINK):
                    self._path(request, index)
                elif arg.role is Role.FD:
                    self._descriptor(request, index, signed(request.arguments[index]))
                elif arg.role is Role.SOCKADDR:
                    self._address(request, index)
            if request.call.name == "close_range":
                request.files.update(enumerate(request.task.process.descriptors.among(*closing_range(request))))
        except BaseException:
            request.forget()
            raise

    def place(self, request: Request) -> None:
        """Give the op its places.

        The thread that is placed first gets the lower identities: so this is done when the world is quiet, in the order
        of ranks, never when a call comes in.
        """
        for located in request.located.values():
            for path in (*located.through, located.shown or ""):
                self.names.meet(request.task.name, path)
        request.op = replace(request.op, places=self._places(request))

    def _path(self, request: Request, index: int) -> None:
        """Resolve a path; one that is empty or NULL means the descriptor before it."""
        args, address = request.call.args, request.arguments[index]
        start = signed(request.arguments[index - 1]) if index and args[index - 1].role is Role.DIRFD else AT_FDCWD
        path = request.task.process.memory.string(address) if address else b""
        if path is None:
            return
        request.paths[index] = path
        if path or ("AT_EMPTY_PATH" in request.flags and start == AT_FDCWD and _looks_up(request, index)):
            request.located[index] = self._locate(request, index, start, os.fsdecode(path) or ".")
        elif "AT_EMPTY_PATH" in request.flags or (not address and request.call.family == "utime"):
            self._descriptor(request, index - 1, start)

    def _locate(self, request: Request, index: int, start: int, path: str) -> Located:
        follow = request.call.follows(index, request.flags)
        slash = _looks_up(request, index)
        resolver = self._resolver(request)
        if index in request.walked:
            base, rest = request.walked[index]
            return resolver.locate(start, rest, follow=follow, slash=slash, base=base)
        if "RESOLVE_IN_ROOT" not in request.flags:
            return resolver.locate(start, path, follow=follow, slash=slash)
        # Where links start again from the root that the call gives, only the root is certain.
        found = resolver.locate(start, path.lstrip("/") or ".", follow=follow, slash=slash)
        if found.shown is not None:
            return found
        found.close()
        return resolver.locate(start, ".", follow=False)

    def walk(self, request: Request, at: Collection[str]) -> Walked | None:
        """Follow a path of a request to the first name of ``at`` (as places show them), and have it go on from there.

        Returns how far that was; None if no path leads over such a name.
        """
        for index in sorted(request.located):
            start, path = AT_FDCWD, os.fsdecode(request.paths.get(index, b""))
            if index and request.call.args[index - 1].role is Role.DIRFD:
                start = signed(request.arguments[index - 1])
            base, path = request.walked.get(index, (-1, path))
            follow = request.call.follows(index, request.flags)
            found = self._resolver(request).walk(start, path, self._named(at), follow=follow, base=base)
            if found is not None:
                if base >= 0:
                    os.close(base)
                request.walked[index] = found.handle, found.rest
                return found
        return None

    def _named(self, names: Collection[str]) -> Callable[[str], bool]:
        def is_one(path: str) -> bool:
            shown = self.watched.shown(path)
            return shown is not None and self.names.show(shown) in names

        return is_one

    def walked_place(self, found: Walked) -> Place:
        """Return the place of the name that a path was followed to."""
        shown, inode = self.watched.shown(found.path), self.identities.of(found.status)
        assert shown is not None
        return Place(self.names.show(shown), 0, os.path.basename(found.path), inode, kind_of(found.status))

    def _resolver(self, request: Request) -> Resolver:
        return Resolver(self.watched, request.view)

    def _descriptor(self, request: Request, index: int, number: int) -> None:
        if number < 0:
            return
        try:
            file = request.task.process.descriptors.look_up(number)
        except PermissionError as error:
            raise Unreachable(str(error)) from None
        if file is not None:
            request.files[index] = file

    def _address(self, request: Request, index: int) -> None:
        length = request.arguments[request.call.args[index].length or 0]
        raw = request.task.process.memory.part(request.arguments[index], min(length, 128))
        if len(raw) > 2 and struct.unpack_from("H", raw)[0] == _UNIX and raw[2]:
            path = os.fsdecode(raw[2:].split(b"\0")[0])
            request.located[index] = self._resolver(request).locate(AT_FDCWD, path, follow=False, slash=False)

    def _places(self, request: Request) -> tuple[Place, ...]:
        """Return the places of a request's paths and files: the source before the target."""
        found = {index: self._place(located, request.view) for index, located in request.located.items()}
        found |= {index: self.file_place(file) for index, file in request.files.items()}
        targets = [index for index, arg in enumerate(request.call.args) if arg.name == "to"]
        return tuple(found[index] for index in sorted(found, key=lambda each: (each in targets, each)))

    def _place(self, located: Located, view: ThreadView) -> Place:
        name, status = os.path.basename(located.path), located.status
        through = tuple(map(self.names.show, located.through))
        if located.shown is None:
            return Place(view.shown(located.path), 0, name, 0, kind_of(status), through=through)
        inode = self.identities.of(status) if status else 0
        shown, own = _without_number(self.names.show(located.shown), status, inode)
        directory = self._directory(located, name)
        return Place(shown, directory, own, inode, kind_of(status), size=_size(status), through=through)

    def _directory(self, located: Located, name: str) -> int:
        """Return the identity of the directory that has the name; 0 if that does not exist."""
        if located.error:
            return 0
        if name == located.name.rstrip("/"):
            return self.identities.of(os.fstat(located.handle))
        try:  # the call's path ends in a dot, or leads through /proc
            return self.identities.of(os.stat(os.path.dirname(located.path)))
        except OSError:
            return 0

    def file_place(self, file: OpenFile) -> Place:
        """Return the place of an open file, wherever its name is now."""
        path, status = file.path(), file.status()
        inode = self.identities.of(status)
        shown, name = _without_number(self.names.show(self.watched.shown(path) or path), status, inode)
        return Place(shown, 0, name, inode, kind_of(status), file.number, _size(status))


def _size(status: os.stat_result | None) -> int:
    """Return how long a file is; 0 for anything else."""
    return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else 0


def _without_number(path: str, status: os.stat_result | None, inode: int) -> tuple[str, str]:
    """Return a path and its last name; the kernel names a file of O_TMPFILE by its inode number, we by its identity."""
    name = os.path.basename(path)
    if status is not None and name == f"#{status.st_ino}":
        return f"{path[: -len(name)]}#{inode}", f"#{inode}"
    return path, name


def closing_range(request: Request) -> tuple[int, int]:
    """Return the first and the last descriptor that close_range(2) closes; (0, -1) if it leaves them open."""
    first, last = (request.arguments[index] & 0xFFFFFFFF for index in (0, 1))
    return (first, last) if not request.flags else (0, -1)


def _flags(task: Task, call: Call, arguments: Sequence[int]) -> tuple[frozenset[str], tuple[int, int, int] | None]:
    """Return the names of a call's flags, and its ``struct open_how`` if it has one.

    Raises `OSError` if the kernel refuses that.
    """
    found, how = {*op_kinds.CREAT} if call.name == "creat" else set[str](), None
    for index, arg in enumerate(call.args):
        if arg.role is Role.FLAGS:
            found.update(flag_names(arg.name, signed(arguments[index], 64) & 0xFFFFFFFF, libc.MACHINE))
        elif arg.role is Role.HOW:
            how = flags, _, resolve = _how(task.process.memory, arguments[index], arguments[arg.length or 0])
            found.update(flag_names("open", flags, libc.MACHINE), flag_names("resolve", resolve, libc.MACHINE))
    return frozenset(found), how


def _how(memory: Memory, address: int, size: int) -> tuple[int, int, int]:
    """Return flags, mode and resolve flags of a ``struct open_how``; raises `OSError` if the kernel refuses it."""
    if not _HOW_SIZE <= size <= _PAGE_SIZE:
        raise OSError(errno.EINVAL, "no struct open_how")
    raw = memory.read(address, size)
    if any(raw[_HOW_SIZE:]):
        raise OSError(errno.E2BIG, "a struct open_how of the future")
    flags, mode, resolve = struct.unpack_from("QQQ", raw)
    return flags, mode, resolve


def _looks_up(request: Request, index: int) -> bool:
    """Return whether the path in argument ``index`` is of an existing object, not of a name to make or remove."""
    call = request.call
    if call.family in _NEW_NAMES or "O_CREAT" in request.flags:
        return False
    paths = [each for each, arg in enumerate(call.args) if arg.role in (Role.PATH, Role.LINK)]
    return call.family != "link" or index == paths[0]
