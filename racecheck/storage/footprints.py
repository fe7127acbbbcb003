"""The footprint of an op on a POSIX file system that all ranks see at once.

Locations, by kind:

    entry        a name, by its path with the links resolved: is it there, and of which kind?  Every op reads the names
                 that lead to where it acts, the links among them too: so an op that renames or removes one conflicts
    listing      the names in a directory, by its identity; ops that add and remove different ones commute
    directory    whether a directory still exists, for a process that holds it open
    attributes   mode, owner and extended attributes of an object, by its identity (as are the next three)
    links        how many names a file has
    content      the bytes and the size of a file, and the modification time that a call sets
    lock, record its locks of flock(2), and those of fcntl(2)
    waits        which processes have begun to wait for record locks of others
    offset       where the next read or write through an open file begins
    issue, store the collectives that the threads of one rank issue to a group; a key of the store

An op that is done says more than one that is pending: one that failed has only read (but a close, and a write that
failed after some of its bytes), and an op whose file was there has not made it.  A pending op has the largest footprint
that it can have, as far as its places are as they were when it stopped.

Left out on purpose, because nearly everything would depend on nearly everything, are facts that hardly a program looks
at: times (but those that utimensat(2) sets), the size and the number of links of a directory, inode numbers, and how
much room is left (ENOSPC, EDQUOT, EMLINK).  A claim to have covered everything is a claim without these.  The threads
of a rank share more than files: see `racecheck.scheduling.relation`.  Effects without an op, such as a read through a
mapping, are named by `racecheck.supervisor.run.unseen`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from racecheck.model.nouns import Op, Place, Result
from racecheck.model.ops import op_kinds
from racecheck.model.ops.footprint import Footprint, Location, Mode
from racecheck.model.ops.lock_ops import ASKING, begins_to_wait, has_begun_to_wait, kind_of, waits

READ, ADD, WRITE = Mode.READ, Mode.ADD, Mode.WRITE

_OWN_OFFSET = frozenset({
    "read", "readv", "write", "writev", "lseek", "getdents", "getdents64", "sendfile", "copy_file_range", "splice",
})  # fmt: skip
"""Calls that begin where the last one through the same open file ended (or may do so)."""
_OFFSET_OR_OWN = frozenset({"preadv2", "pwritev2"})
_ASKING_ALL = frozenset({"count", "keys"})
_ASKING_STORE = frozenset({"get", "multi_get", "wait", "check", *_ASKING_ALL})
_FROM_POSITION, _FROM_END = 1, 2
"""Where the bytes of a record lock are counted from (``whence`` of fcntl(2))."""


class _Modes(dict[Location, Mode]):
    """A footprint in the making: of two modes for one location the one with more conflicts stays."""

    def __call__(self, kind: str, key: Hashable, mode: Mode) -> None:
        """Add a location; ``key`` is an identity or a name, and an empty one adds nothing."""
        if key:
            location = Location(kind, key)
            known = self.get(location, mode)
            self[location] = mode if known is mode else WRITE


def footprint(op: Op) -> Footprint:
    """Return the footprint of an op; of a pending one, the largest that it can have."""
    touched = _Modes()
    if not op.places:
        return touched
    for place in op.places:
        _way(touched, place)
    family = FAMILIES.get(op.call, _UNKNOWN)
    family.looks(touched, op)
    has_acted = op.result is None or _has_acted(op, op.result)
    if has_acted:
        family.does(touched, op)
    if op.syscall in _OWN_OFFSET or (op.syscall in _OFFSET_OR_OWN and op.args.get("offset") == -1):
        for place in op.places:
            touched("offset", place.open_file, WRITE if has_acted else READ)
    return touched


def _has_acted(op: Op, result: Result) -> bool:
    """Return whether an op has changed something, perhaps despite an errno: bytes moved, or it is a close (close(2)).

    Some file systems make a file and then refuse to open it with O_DIRECT, or as a directory (open(2)).
    """
    if not result.errno or result.size or op.call == "close":
        return True
    return "O_CREAT" in op.flags and not {"O_DIRECT", "O_DIRECTORY"}.isdisjoint(op.flags)


def _has_failed(op: Op) -> bool:
    return op.result is not None and op.result.errno != ""


def _way(touched: _Modes, place: Place) -> None:
    """Add the names that lead to where an op acts, its own included; through a descriptor there are none."""
    if not place.open_file:
        for path in (place.path, *place.through):
            for name in names(path):
                touched("entry", name, READ)


@lru_cache(maxsize=4096)
def names(path: str) -> tuple[str, ...]:
    """Yield a path and those of the directories above it, the watched one included."""
    parts = path.split("/")
    return (*("/".join(parts[: count + 1]) for count in range(len(parts)) if parts[count] not in {"", "."}), ".")


# Reads, also of an op that fails.

_AddsModes = Callable[[_Modes, Op], None]


def _nothing(touched: _Modes, op: Op) -> None:
    pass


def _reads(*kinds: str) -> _AddsModes:
    """Return a part that reads such locations of all places of an op."""

    def part(touched: _Modes, op: Op) -> None:
        for place in op.places:
            for kind in kinds:
                touched(kind, place.inode, READ)

    return part


def _look(touched: _Modes, op: Op) -> None:
    """Add the reads of stat: of directories neither size nor number of links."""
    for place in op.places:
        touched("attributes", place.inode, READ)
        if place.kind == "file":
            touched("links", place.inode, READ)
            touched("content", place.inode, READ)


def _opens(touched: _Modes, op: Op) -> None:
    if "O_PATH" not in op.flags:
        _reads("attributes")(touched, op)
    if op_kinds.truncates(op):
        _reads("content")(touched, op)


def _lists(touched: _Modes, op: Op) -> None:
    """Add a listing.  At its end no more names come, so the answer that none are left is no read."""
    at_end = op.result is not None and op.result.known and not op.result.errno and not op.result.value
    for place in op.places:
        touched("directory", place.inode, READ)
        if not at_end:
            touched("listing", place.inode, READ)


def _is_empty(touched: _Modes, op: Op) -> None:
    """Add whether anything is in a directory that is to be removed."""
    if op.places[-1].kind == "directory":
        touched("listing", op.places[-1].inode, READ)


def _links(touched: _Modes, op: Op) -> None:
    """Add whether an object still has a name: a descriptor, or a link of /proc to one, may refer to a removed file."""
    source = op.places[0]
    touched("attributes", source.inode, READ)
    if source.open_file or "AT_SYMLINK_FOLLOW" in op.flags:
        touched("links", source.inode, READ)


# Changes of an op that succeeds.


def _open(touched: _Modes, op: Op) -> None:
    place = op.places[-1]
    if "RESOLVE_IN_ROOT" in op.flags:  # only the kernel knows where that leads
        _anything(touched, op)
    if op_kinds.creates(op):
        _make(touched, op)
    elif op_kinds.truncates(op) and place.size:
        touched("content", place.inode, WRITE)


def _make(touched: _Modes, op: Op) -> None:
    place = op.places[-1]
    touched("entry", place.path, WRITE)
    touched("listing", place.directory, ADD)


def _link(touched: _Modes, op: Op) -> None:
    _make(touched, op)
    touched("links", op.places[0].inode, ADD)


def _unlink(touched: _Modes, op: Op) -> None:
    _lose(touched, op.places[-1])


def _lose(touched: _Modes, place: Place) -> None:
    """Add the loss of a name."""
    touched("entry", place.path, WRITE)
    touched("listing", place.directory, ADD)
    if place.kind == "directory":
        touched("listing", place.inode, WRITE)
        touched("directory", place.inode, WRITE)
    else:
        touched("links", place.inode, ADD)


def _rename(touched: _Modes, op: Op) -> None:
    """Add a rename.  Two names of one file both stay (rename(2))."""
    source, target = op.places[0], op.places[-1]
    if source.inode and source.inode == target.inode:
        return
    touched("entry", source.path, WRITE)
    touched("listing", source.directory, ADD)
    if "RENAME_EXCHANGE" in op.flags:
        _make(touched, op)
    else:
        _lose(touched, target)


def _write(touched: _Modes, op: Op) -> None:
    touched("content", op.places[-1].inode, WRITE)


def _truncate(touched: _Modes, op: Op) -> None:
    if op.args.get("length") != op.places[-1].size:
        _write(touched, op)


def _set_attributes(touched: _Modes, op: Op) -> None:
    """Add attributes.  Those of a directory decide which users may pass through."""
    for place in op.places:
        touched("attributes", place.inode, WRITE)
        if place.kind == "directory" and op.call != "utime":
            touched("entry", place.path, WRITE)
        if place.kind == "file" and op.call == "utime":
            touched("content", place.inode, WRITE)


def _lock(touched: _Modes, op: Op) -> None:
    """Add a lock.  Shared locks of flock(2) are taken and released in any order: their owners do not matter."""
    kind = "lock" if kind_of(op) == "flock" else "record"
    for place in op.places:
        touched(kind, place.inode, _lock_mode(op))
        if op.args.get("whence") == _FROM_POSITION:
            touched("offset", place.open_file, READ)
        elif op.args.get("whence") == _FROM_END:
            touched("content", place.inode, READ)
    if kind_of(op) == "posix" and ASKING.isdisjoint(op.flags):
        _wait(touched, op)


def _lock_mode(op: Op) -> Mode:
    """Add a failed request, or one that begins to wait: it loses the lock of flock(2) that it was to convert."""
    if not ASKING.isdisjoint(op.flags):
        return READ
    if begins_to_wait(op):
        return WRITE if kind_of(op) == "flock" else READ
    if _has_failed(op):
        return WRITE if op.args.get("lost") else READ
    return ADD if op.args.get("shared") and kind_of(op) == "flock" else WRITE


def _wait(touched: _Modes, op: Op) -> None:
    """Add waits: EDEADLK depends on which processes wait, and on the locks that they hold."""
    is_pending = op.result is None and waits(op)
    if is_pending or begins_to_wait(op) or has_begun_to_wait(op) or (op.result and op.result.errno == "EDEADLK"):
        touched("waits", "record", WRITE)
    elif not _has_failed(op):
        touched("waits", "record", ADD)


def _close(touched: _Modes, op: Op) -> None:
    """Add a close, which releases its locks also if it fails (close(2))."""
    if "LOCK_UN" not in op.flags:
        return
    for place in op.places:
        if op.args.get("flock", 1):
            touched("lock", place.inode, ADD if op.args.get("shared") else WRITE)
        if op.args.get("record", 1):
            touched("record", place.inode, WRITE)
    if op.args.get("record", 1):
        touched("waits", "record", ADD)


def _use_key(touched: _Modes, op: Op) -> None:
    """Add a location that is no file: the group that a rank issues a collective to, or a key of the store."""
    rank = op.rank if op.call == "issue" else -1
    for place in op.places:
        touched(op.call, (rank, place.name), READ if op.syscall in _ASKING_STORE else WRITE)
    if op.syscall in _ASKING_ALL or (op.call == "store" and op.syscall not in _ASKING_STORE):
        touched("keys", "store", READ if op.syscall in _ASKING_ALL else ADD)


def _anything(touched: _Modes, op: Op) -> None:
    """Add an op that is not modelled, with all that it could do to its places: a reason for doubt in any run."""
    for place in op.places:
        touched("entry", place.path, WRITE)
        touched("listing", place.directory, WRITE)
        for kind in ("listing", "directory", "attributes", "links", "content", "lock", "record"):
            touched(kind, place.inode, WRITE)


class _Family(NamedTuple):
    looks: _AddsModes = _nothing
    does: _AddsModes = _nothing


_UNKNOWN = _Family(does=_anything)
_NOBODY = _Family()
_GETS = _Family(_reads("attributes"))
_SETS = _Family(_reads("attributes"), _set_attributes)
_USES_CONTENT = _Family(_reads("content"))
_MAKES = _Family(does=_make)
_CLOSES = _Family(_close)
_LOCKS = _Family(_lock)
_KEYS = _Family(does=_use_key)


def _each(families: Iterable[str], family: _Family) -> dict[str, _Family]:
    return dict.fromkeys(families, family)


FAMILIES: Mapping[str, _Family] = {
    "open": _Family(_opens, _open),
    "stat": _Family(_look),
    "list": _Family(_lists),
    "write": _Family(does=_write),
    "allocate": _Family(does=_write),
    "truncate": _Family(_reads("attributes", "content"), _truncate),
    "copy": _Family(_reads("content"), _write),
    "exec": _Family(_reads("attributes", "content")),
    "link": _Family(_links, _link),
    "unlink": _Family(does=_unlink),
    "rmdir": _Family(_is_empty, _unlink),
    "rename": _Family(_is_empty, _rename),
    **_each(op_kinds.MAKES | {"bind"}, _MAKES),
    **_each(("read", "mmap", "seek"), _USES_CONTENT),
    **_each(("access", "getxattr", "listxattr", "chdir"), _GETS),
    **_each(op_kinds.SETS, _SETS),
    **_each(op_kinds.LOCKS, _LOCKS),
    **_each(op_kinds.CLOSES | {"exit"}, _CLOSES),
    **_each(("issue", "store"), _KEYS),
    **_each(("readlink", "walk", "fsync", "sync", "statfs", "advise", "sleep", "reap", "test"), _NOBODY),
    **_each(("begin", "end", "start", "poll", "leave", "tell", "shutdown", "finalise", "kill"), _NOBODY),
    **_each(
        ("clone", "clock", "timer", "random", "ioctl", "wait", "connect", "select", "getcwd", "channel", "credentials"),
        _NOBODY,
    ),
    **_each(("watch", "handle", "submit", "mount", "landlock", "admin"), _UNKNOWN),
}
"""By family; what the table of system calls has, and that of hypercalls."""
