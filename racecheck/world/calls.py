"""From a stopped thread's registers to a request: which call, on what, and is it of our concern?"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from racecheck.kernel import libc
from racecheck.kernel.flags import flag_names
from racecheck.kernel.signature import Role
from racecheck.kernel.syscalls import Call
from racecheck.model import Op, Place
from racecheck.world.files import OpenFile
from racecheck.world.locks import Lock
from racecheck.world.resolve import Identities, Located, Watched, kind_of, locate

if TYPE_CHECKING:
    from racecheck.world.tasks import Task

AT_FDCWD = -100
_UNIX = 1


class Unreachable(Exception):
    """The call is on a watched file whose descriptor we are not allowed to share."""


@dataclass(slots=True, eq=False)
class Request:
    """A call that waits for its answer.

    ``located`` and ``files`` say, by index of the argument, where its paths lead and what its descriptors
    refer to; ``paths`` are the paths as given.  ``op`` is the pending op, ``lock`` the lock that it is about, and
    ``seen`` how many ops had been performed when it was placed, -1 before.
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
    seen: int = -1

    @property
    def touches(self) -> bool:
        """Whether it is about anything in the watched directories."""
        return bool(self.files) or any(each.shown is not None for each in self.located.values())

    @property
    def file(self) -> OpenFile:
        """The open file that a call on one descriptor is about."""
        return next(iter(self.files.values()))

    def number(self, name: str) -> int:
        """An ``int`` or ``long`` argument by name."""
        return self.op.args[name]

    def raw(self, role: Role) -> int:
        """The register of the first argument with this role."""
        return self.arguments[self.index(role)]

    def index(self, role: Role) -> int:
        return next(index for index, arg in enumerate(self.call.args) if arg.role is role)

    def close(self) -> None:
        """Give the handles of its paths back."""
        for each in self.located.values():
            each.close()
        self.located.clear()


def signed(register: int, bits: int = 32) -> int:
    """A register as a signed number of so many bits."""
    value = register & ((1 << bits) - 1)
    return value - (1 << bits) if value >> (bits - 1) else value


@dataclass(slots=True)
class Decoder:
    """Turns calls into requests."""

    watched: Watched
    identities: Identities

    def decode(self, task: Task, call: Call, arguments: tuple[int, ...]) -> Request:
        """What a call is about, as things stand.

        Raises `OSError` where its memory cannot be read (the kernel will say EFAULT), `Unreachable`.
        """
        request = Request(task, 0, call, arguments, Op(task.rank.number, task.name, call.family, call.name))
        request.flags = self._flags(request)
        numbers = {
            arg.name: signed(arguments[index], 32 if arg.role is Role.INT else 64)
            for index, arg in enumerate(call.args)
            if arg.role in (Role.INT, Role.LONG)
        }
        self.resolve(request)
        family = "rmdir" if "AT_REMOVEDIR" in request.flags else call.family
        request.op = replace(request.op, call=family, args=numbers, flags=tuple(sorted(request.flags)))
        return request

    def resolve(self, request: Request) -> None:
        """Find out (again) where the request's paths lead."""
        request.close()
        request.files.clear()
        for index, arg in enumerate(request.call.args):
            if arg.role in (Role.PATH, Role.LINK):
                self._path(request, index, follow=arg.role is Role.PATH)
            elif arg.role is Role.FD:
                self._descriptor(request, index, signed(request.arguments[index]))
            elif arg.role is Role.SOCKADDR:
                self._address(request, index)

    def place(self, request: Request) -> None:
        """Give the op its places.

        Whoever is placed first gets the lower identities: so this is done when the world is quiet, in the order of ranks,
        never when a call comes in.
        """
        request.op = replace(request.op, places=self._places(request))

    def _flags(self, request: Request) -> frozenset[str]:
        found: set[str] = set()
        for index, arg in enumerate(request.call.args):
            if arg.role is Role.FLAGS:
                found.update(flag_names(arg.name, signed(request.arguments[index], 64) & 0xFFFFFFFF, libc.MACHINE))
            elif arg.role is Role.HOW:
                raw = request.task.process.memory.read(request.arguments[index], 24)
                request.how = flags, _, resolve = struct.unpack("QQQ", raw)
                found.update(flag_names("open", flags, libc.MACHINE), flag_names("resolve", resolve, libc.MACHINE))
        return frozenset(found)

    def _path(self, request: Request, index: int, *, follow: bool) -> None:
        """Resolve a path; one that is empty or NULL means the descriptor before it."""
        process, address = request.task.process, request.arguments[index]
        args = request.call.args
        start = signed(request.arguments[index - 1]) if index and args[index - 1].role is Role.DIRFD else AT_FDCWD
        path = process.memory.string(address) if address else b""
        if path is None:
            return
        request.paths[index] = path
        if not path and (start != AT_FDCWD or "AT_EMPTY_PATH" not in request.flags):
            if not address or "AT_EMPTY_PATH" in request.flags:
                self._descriptor(request, index - 1, start)
            return
        text = own_proc(os.fsdecode(path), process.pid, request.task.tid)
        if request.how and "RESOLVE_IN_ROOT" in request.flags:
            text = text.lstrip("/") or "."
        base = f"/proc/{process.pid}/cwd" if start == AT_FDCWD else f"/proc/{process.pid}/fd/{start}"
        request.located[index] = locate(self.watched, base, text or ".", follow=follows(follow, request.flags))

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
        raw = request.task.process.memory.read(request.arguments[index], min(length, 128))
        if len(raw) > 3 and struct.unpack_from("H", raw)[0] == _UNIX and raw[2]:
            path, base = os.fsdecode(raw[2:].split(b"\0")[0]), f"/proc/{request.task.process.pid}/cwd"
            request.located[index] = locate(self.watched, base, path, follow=False)

    def _places(self, request: Request) -> tuple[Place, ...]:
        """The places of a request's paths and files: the source before the target."""
        found = {index: self._place(located) for index, located in request.located.items()}
        found |= {index: self._file_place(file) for index, file in request.files.items()}
        args = request.call.args
        return tuple(found[index] for index in sorted(found, key=lambda each: (args[each].name == "to", each)))

    def _place(self, located: Located) -> Place:
        name = os.path.basename(located.path)
        if located.shown is None:
            return Place(located.path, 0, name, 0, kind_of(located.status))
        directory = self.identities.of(os.fstat(located.handle)) if located.handle >= 0 else 0
        inode = self.identities.of(located.status) if located.status else 0
        return Place(located.shown, directory, name, inode, kind_of(located.status))

    def _file_place(self, file: OpenFile) -> Place:
        path, status = file.path(), file.status()
        shown = self.watched.shown(path) or path
        inode = self.identities.of(status)
        return Place(shown, 0, os.path.basename(path), inode, kind_of(status), file.number)


def follows(default: bool, flags: frozenset[str]) -> bool:
    """Whether a symbolic link as the last component is followed."""
    if "AT_SYMLINK_FOLLOW" in flags:
        return True
    if flags & {"AT_SYMLINK_NOFOLLOW", "O_NOFOLLOW"} or flags >= {"O_CREAT", "O_EXCL"}:
        return False
    return default


def own_proc(path: str, pid: int, tid: int) -> str:
    """``/proc/self`` as the rank means it, not as we do."""
    for own, other in (
        ("/proc/self", f"/proc/{pid}"),
        ("/proc/thread-self", f"/proc/{pid}/task/{tid}"),
        ("/dev/fd", f"/proc/{pid}/fd"),
    ):
        if path == own or path.startswith(f"{own}/"):
            return other + path[len(own) :]
    return path
