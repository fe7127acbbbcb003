"""A row of the system call table: a call, its treatment, and its arguments.

Arguments are written in a small language, one word for each, in order:

    openat      dirfd path flags:open int:mode
    pwrite64    fd inbuf:2 long:length long:offset

================ ==========================================================================================
``dirfd``        descriptor (or AT_FDCWD) from which the path after it starts; if that path is empty or NULL
                 it is itself what the call acts on
``path``         path; a symbolic link as its last component is followed, unless a flag says otherwise
``link``         path; a symbolic link as its last component is not followed: a name to be made, removed or
                 renamed, or the link itself
``target``       what a new symbolic link will say
``string``       other text that ends with NUL (the name of an extended attribute)
``fd``           descriptor that the call acts on; ``fd:from`` and ``fd:to`` where there are two
``int:NAME``     signed 32-bit number; the other half of the register means nothing
``long:NAME``    signed 64-bit number
``flags:SET``    bits or a command, see `racecheck.kernel.flags`
``in:STRUCT``    pointer to a struct of fixed size that the kernel reads; it may be NULL
``out:STRUCT``   the same, that the kernel fills
``inout:STRUCT`` the same, that the kernel reads and then updates
``inbuf:N``      pointer to bytes that the kernel reads, as many as argument N says
``outbuf:N``     pointer to room that the kernel fills, as much as argument N says
``iniov:N``      pointer to as many ``struct iovec`` as argument N says, of bytes that the kernel reads
``outiov:N``     the same, of room that the kernel fills
``sockaddr:N``   pointer to a socket address of as many bytes as argument N says: AF_UNIX names a path
``how:N``        pointer to a ``struct open_how`` (u64 flags, mode, resolve) of argument N's size
``-``            nothing that racecheck needs
================ ==========================================================================================
"""

from __future__ import annotations

import enum
import errno as errors
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from racecheck.kernel.flags import FLAGS
from racecheck.model.errors import InternalError


class Role(enum.Enum):
    """The role of an argument; the value is its word in the signature language."""

    DIRFD = "dirfd"
    PATH = "path"
    LINK = "link"
    TARGET = "target"
    STRING = "string"
    FD = "fd"
    INT = "int"
    LONG = "long"
    FLAGS = "flags"
    IN = "in"
    OUT = "out"
    INOUT = "inout"
    INBUF = "inbuf"
    OUTBUF = "outbuf"
    INIOV = "iniov"
    OUTIOV = "outiov"
    SOCKADDR = "sockaddr"
    HOW = "how"
    IGNORED = "-"


_SAME = {
    "statfs": 120, "statx": 256,
    "timeval": 16, "timezone": 8, "seconds": 8,
    "timespec": 16, "timespecs": 32, "timevals": 32, "utimbuf": 16,  # the plural forms have two
    "offset": 8,
}  # fmt: skip
SIZES: Mapping[str, Mapping[str, int]] = {"x86_64": {"stat": 144, **_SAME}, "aarch64": {"stat": 128, **_SAME}}
"""Bytes of each struct as the kernel lays it out, by architecture."""

_NAME, _INDEX = ":[a-z_]+", ":[0-5]"
_STRUCT = f":({'|'.join(SIZES['x86_64'])})"
_DETAILS = {
    Role.FD: "(:from|:to)?",
    Role.INT: _NAME,
    Role.LONG: _NAME,
    Role.FLAGS: f":({'|'.join(FLAGS)})",
    **dict.fromkeys((Role.IN, Role.OUT, Role.INOUT), _STRUCT),
    **dict.fromkeys((Role.INBUF, Role.OUTBUF, Role.INIOV, Role.OUTIOV, Role.SOCKADDR, Role.HOW), _INDEX),
}
_PATHS, _NUMBERS = frozenset({Role.PATH, Role.LINK}), frozenset({Role.INT, Role.LONG})
_ROLES = {role.value: role for role in Role}


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument of a system call.

    ``name``: of the number, of the flag set, of the struct; or "from" and "to".  ``length``: which
    argument says how long the buffer is.
    """

    role: Role
    name: str = ""
    length: int | None = None

    def size(self, arch: str) -> int:
        """Return the size in bytes of the struct that this argument (``in``, ``out`` or ``inout``) points to."""
        return SIZES[arch][self.name]


def parse(signature: str) -> tuple[Arg, ...]:
    """Return the arguments that a signature describes; raises `InternalError` for an invalid one."""
    args = tuple(_parse_word(word) for word in signature.split())
    for mistake in _mistakes(args):
        raise InternalError(f"signature {signature!r}: {mistake}")
    return args


def _parse_word(word: str) -> Arg:
    name, _, detail = word.partition(":")
    role = _ROLES.get(name)
    if role is None or not re.fullmatch(_DETAILS.get(role, ""), word[len(name) :]):
        raise InternalError(f"{word!r} is no word of the signature language")
    return Arg(role, length=int(detail)) if detail.isdigit() else Arg(role, name=detail)


def _mistakes(args: Sequence[Arg]) -> Iterator[str]:
    if len(args) > 6:
        yield "the kernel takes at most six arguments"
    roles = [arg.role for arg in args]
    for index, arg in enumerate(args):
        if arg.role is Role.DIRFD and _PATHS.isdisjoint(roles[index + 1 : index + 2]):
            yield "dirfd without the path that starts from it"
        if arg.length is not None and _NUMBERS.isdisjoint(roles[arg.length : arg.length + 1]):
            yield f"{arg.role.value}:{arg.length}, but argument {arg.length} is no number"
    names = [arg.name for arg in args if arg.role in _NUMBERS]
    if len(set(names)) < len(names):
        yield "two numbers of one name"


class Treatment(enum.Enum):
    """The performer of a call whose turn has come: the supervisor or the kernel."""

    PERFORM = "the supervisor, if the call touches the watched directory, and else the kernel"
    CONTINUE = "the kernel"
    REFUSE = "nobody: it ends with the row's errno, wherever it points, and the coverage names it"


class Notify(enum.Enum):
    """Which calls stop."""

    ALWAYS = "every one"
    DESCRIPTOR = (
        "one of whose `fd` arguments is in the range that the supervisor hands out, or 0 to 2, where a"
        " shell's redirection may have put a watched file; a negative one (mmap of no file) is none"
    )
    LOCK = "the same, and one of fcntl(2) that is about a lock, on any descriptor"
    MESSAGE = "one of sendmsg(2), but not the one by which a rank hands its listener over"
    CLOCK = "one of a clock that tells the time of day"
    NAMED = "one whose `pid` is not 0, the caller itself"
    WAIT = "one of futex(2) that may wait; those for the GIL aside where that is not known"
    LIMITED = "one with a time limit; not gloo's loop, which waits for 10 ms at a time"


_STAY = frozenset({"O_NOFOLLOW", "AT_SYMLINK_NOFOLLOW"})
_STAY_TOGETHER = frozenset({"O_CREAT", "O_EXCL"})


@dataclass(frozen=True, slots=True)
class Call:
    """One row of the table.  A refused call fails with ``errno``."""

    name: str
    family: str
    treatment: Treatment
    notify: Notify
    args: tuple[Arg, ...]
    errno: str = ""

    def __post_init__(self) -> None:
        if (self.treatment is Treatment.REFUSE) != hasattr(errors, self.errno or "-"):
            raise InternalError(f"{self.name}: a refused call, and no other, has an errno")
        if self.notify is Notify.DESCRIPTOR and all(arg.role is not Role.FD for arg in self.args):
            raise InternalError(f"{self.name}: without a descriptor it would never stop")

    def family_with(self, flags: Collection[str]) -> str:
        """Return the family of this call with these flags: unlinkat is two calls in one."""
        return "rmdir" if "AT_REMOVEDIR" in flags else self.family

    def follows(self, index: int, flags: Collection[str]) -> bool:
        """Return whether, with these flags, a symbolic link at the end of the path in argument ``index`` is followed.

        Of two paths (linkat) the flags mean the first.
        """
        if self.args[index].role is Role.PATH:
            return _STAY.isdisjoint(flags) and not _STAY_TOGETHER.issubset(flags)
        links = [i for i, arg in enumerate(self.args) if arg.role is Role.LINK]
        return index in links[:1] and "AT_SYMLINK_FOLLOW" in flags
