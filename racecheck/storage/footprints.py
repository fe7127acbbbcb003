"""What an op touches on a POSIX file system that everybody sees at once.

Names are keyed by path, with the links on the way resolved, and every op reads the names of the directories above it:
so whoever renames or removes one of those is in conflict with it.  What has no name any more (an open file, a removed
directory) is keyed by identity.  An op that is done says more than one that is pending: one that failed has only read,
and one that found its file has not made it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping

from racecheck.dependence import Footprint, Location, Mode
from racecheck.model import Op, Place

READ, ADD, WRITE = Mode.READ, Mode.ADD, Mode.WRITE

_ATTRIBUTES = frozenset({"chmod", "chown", "utime", "setxattr", "removexattr"})
_LOOKS = frozenset({"stat", "access", "getxattr", "listxattr", "readlink", "chdir", "watch"})
_OWN_OFFSET = frozenset({"read", "readv", "write", "writev", "lseek", "getdents", "getdents64", "sendfile"})
"""Calls that begin where the last one through the same open file ended."""


class _Touched(dict[Location, Mode]):
    """A footprint in the making: of several modes for one location the strongest stays."""

    def __call__(self, kind: str, key: Hashable, mode: Mode) -> None:
        location = Location(kind, key)
        known = self.get(location, mode)
        self[location] = known if known is mode else WRITE if WRITE in (known, mode) or READ in (known, mode) else mode


def footprint(op: Op) -> Footprint:
    """The footprint of an op; of a pending one, what it might touch at most."""
    touched = _Touched()
    for place in op.places:
        _way(touched, place)
    if op.result is not None and op.result.errno:
        _failed(touched, op)
    elif op.call in _DONE:
        _DONE[op.call](touched, op)
    elif op.call in _ATTRIBUTES:
        for place in op.places:
            touched("attributes", place.inode, WRITE)
    elif op.call not in _FREE:
        for place in op.places:
            _change(touched, place)
    if op.syscall in _OWN_OFFSET:
        for place in op.places:
            touched("offset", place.open_file, WRITE)
    return touched


def _way(touched: _Touched, place: Place) -> None:
    """Every op reads the names that lead to where it acts, its own included; through a descriptor there are none."""
    if place.open_file:
        return
    for path in (place.path, *place.through):
        for name in _names(path):
            touched("entry", name, READ)
    touched("directory", place.directory, READ)


def _names(path: str) -> Iterator[str]:
    while path not in {"", ".", "/"}:
        yield path
        path = os.path.dirname(path)


def _failed(touched: _Touched, op: Op) -> None:
    """It has changed nothing; but what it found in its way may have been anything about its places."""
    for place in op.places:
        if op.call in {"flock", "close"}:
            touched("lock", place.inode, READ)
        elif place.inode:
            touched("attributes", place.inode, READ)
            touched("listing", place.inode, READ)


def _open(touched: _Touched, op: Op) -> None:
    place = op.places[-1]
    if op.call == "open" and not place.inode and (op.result is not None or "O_CREAT" in op.flags):
        _make(touched, place)
        return
    touched("attributes", place.inode, READ)
    if ("O_TRUNC" in op.flags or op.syscall == "creat") and place.size:
        _change(touched, place)


def _make(touched: _Touched, place: Place) -> None:
    """A name comes to be: if it is not there, as far as is known."""
    if place.inode:
        touched("entry", place.path, READ)
        return
    touched("entry", place.path, WRITE)
    touched("listing", place.directory, ADD)


def _remove(touched: _Touched, place: Place) -> None:
    touched("entry", place.path, WRITE)
    touched("listing", place.directory, ADD)
    touched("attributes", place.inode, WRITE)


def _change(touched: _Touched, place: Place) -> None:
    touched("content", place.inode, WRITE)
    touched("attributes", place.inode, WRITE)


def _remove_directory(touched: _Touched, op: Op) -> None:
    place = op.places[-1]
    _remove(touched, place)
    touched("listing", place.inode, WRITE)
    touched("directory", place.inode, WRITE)


def _rename(touched: _Touched, op: Op) -> None:
    source, target = op.places[0], op.places[-1]
    _remove(touched, source)
    _remove(touched, target)
    if target.kind == "directory":
        touched("listing", target.inode, WRITE)
        touched("directory", target.inode, WRITE)


def _link(touched: _Touched, op: Op) -> None:
    touched("attributes", op.places[0].inode, WRITE)
    _make(touched, op.places[-1])


def _look(touched: _Touched, op: Op) -> None:
    for place in op.places:
        touched("attributes", place.inode, READ)


def _read(touched: _Touched, op: Op) -> None:
    for place in op.places:
        touched("content", place.inode, READ)


def _list(touched: _Touched, op: Op) -> None:
    touched("listing", op.places[-1].inode, READ)


def _seek(touched: _Touched, op: Op) -> None:
    touched("attributes", op.places[-1].inode, READ)


def _copy(touched: _Touched, op: Op) -> None:
    touched("content", op.places[0].inode, READ)
    _change(touched, op.places[-1])


def _lock(touched: _Touched, op: Op) -> None:
    for place in op.places:
        touched("lock", place.inode, WRITE)


def _of_a_key(touched: _Touched, op: Op) -> None:
    """What is about no file: the group that a collective is issued to by one rank, or a key of the store."""
    rank = op.rank if op.call == "issue" else -1
    for place in op.places:
        touched(op.call, (rank, place.path), WRITE)


_DONE: Mapping[str, Callable[[_Touched, Op], None]] = {
    "open": _open,
    "mkdir": lambda touched, op: _make(touched, op.places[-1]),
    "mknod": lambda touched, op: _make(touched, op.places[-1]),
    "symlink": lambda touched, op: _make(touched, op.places[-1]),
    "bind": lambda touched, op: _make(touched, op.places[-1]),
    "link": _link,
    "unlink": lambda touched, op: _remove(touched, op.places[-1]),
    "rmdir": _remove_directory,
    "rename": _rename,
    "read": _read,
    "mmap": _read,
    "exec": _read,
    "list": _list,
    "seek": _seek,
    "copy": _copy,
    "flock": _lock,
    "close": _lock,
    "issue": _of_a_key,
    "store": _of_a_key,
    "test": _of_a_key,
    **dict.fromkeys(_LOOKS, _look),
}
"""By family: what an op does that has not failed."""

_FREE = frozenset({"sleep", "sync", "reap", "fsync", "statfs"})
"""Families that nobody else could notice."""
