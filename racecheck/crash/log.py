"""A run's effects on its disk, and the disk that a crash leaves: plain data.

Objects are known by number, never by path: a name may lead to another object later, an object may have many names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

ROOT = 1
"""The number of the watched directory, unless a `Tree` says otherwise."""

ObjectKind = Literal["directory", "file", "symlink"]
EntryKind = Literal[
    "write", "truncate", "create", "mkdir", "link", "symlink", "unlink", "rmdir", "rename", "fsync", "sync"
]  # fmt: skip
SYNCS = frozenset({"fsync", "sync"})
"""Entries that change nothing and promise that changes last."""


@dataclass(frozen=True, slots=True)
class Data:
    """A span of recorded bytes: ``length`` bytes at ``offset`` of the blob ``digest``."""

    digest: str
    offset: int
    length: int


Extent = tuple[int, int, Data | None]
"""Where in a file, how many bytes, and which; None: zeros."""


@dataclass(frozen=True, slots=True)
class Inode:
    """An object of a file system; ``extents`` and ``size`` are of a file, ``target`` of a symbolic link."""

    kind: ObjectKind
    extents: tuple[Extent, ...] = ()
    size: int = 0
    target: str = ""


@dataclass(frozen=True, slots=True)
class Tree:
    """A disk all of which is durable: its objects by number, and the numbers by (directory, name).

    ``root`` is the number of the directory whose contents are of interest; it has no name and is never lost.
    """

    inodes: Mapping[int, Inode] = field(default_factory=lambda: {ROOT: Inode("directory")})
    names: Mapping[tuple[int, str], int] = field(default_factory=dict)
    root: int = ROOT


@dataclass(frozen=True, slots=True)
class Entry:
    """A change of the disk that a call made, or a promise that changes last.

    ``event`` is the index of the call in the trace, -1 for entries of a repair.  The fields, by ``kind``:

    write                   ``inode``, ``offset``, ``length`` and ``data`` (None: zeros)
    truncate                ``inode``, and the new size as ``length`` (also where that is more than before)
    create, mkdir, link     ``inode`` under the ``name`` in ``directory``
    symlink                 likewise, and where it leads as ``target``
    unlink, rmdir           ``inode``, which had the ``name`` in ``directory``
    rename                  ``inode`` from ``name`` in ``directory`` to ``to_name`` in ``to_directory``, where
                            ``replaced`` was before (0: nothing)
    fsync                   of ``inode``, a file or a directory, when the call had returned; with a ``length`` it is
                            about these bytes alone (a write with O_SYNC or O_DSYNC), and with ``datasync`` it need not
                            write what it does not take to find the bytes again (fdatasync, O_DSYNC)
    sync                    of everything
    """

    event: int
    kind: EntryKind
    inode: int = 0
    directory: int = 0
    name: str = ""
    to_directory: int = 0
    to_name: str = ""
    replaced: int = 0
    offset: int = 0
    length: int = 0
    data: Data | None = None
    target: str = ""
    datasync: bool = False
    rank: int = 0
    node: int = 0
    clock: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moment:
    """An event of the trace, as far as it decides which cuts of the run are possible.

    ``ranks`` are those that took part: one for an op, all of its parties for a collective, whose ``thread`` is "".
    ``clock`` is the event's vector clock; ``after`` are the trace indices of events that came before it for another
    reason than program order and collectives: because it saw or changed the same objects.
    """

    ranks: tuple[int, ...]
    thread: str = ""
    clock: Mapping[str, int] = field(default_factory=dict)
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Log:
    """A run's effects on its disk: ``start``, then ``entries``, in the order of the trace.

    Only calls that succeeded, and of these only such as changed or promised something.  ``moments`` are all events of
    the trace, in order (`racecheck.crash.cuts.moments`); without them the ranks are only ever cut in the order of the
    trace.  ``per_node``: the entries of each node are about a disk of its own, which is a directory below the root.
    ``acks`` are for each rank the events right after which it said that a save had returned.
    """

    start: Tree
    entries: tuple[Entry, ...]
    moments: tuple[Moment, ...] = ()
    per_node: bool = False
    acks: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def split(self, disk: Disk) -> tuple[tuple[str, Disk], ...]:
        """Return the trees below the root as disks, each with the prefix of its paths in an outcome.

        That is one disk, or one per node.
        """
        if not self.per_node:
            return (("", disk),)
        nodes = sorted(name for directory, name in self.start.names if directory == self.start.root)
        return tuple((f"{node}/", disk.below(f"{node}/")) for node in nodes)


@dataclass(frozen=True, slots=True)
class Stored:
    """The object that a disk has under one path.  The ``extents`` of a file cover 0 to its ``size``, merged."""

    kind: ObjectKind
    extents: tuple[Extent, ...] = ()
    size: int = 0
    target: str = ""


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk that a crash left: (path, object), sorted by path, below the watched directory.

    Disks that hold the same spans of the same blobs are equal, whatever made them.
    """

    paths: tuple[tuple[str, Stored], ...] = ()

    def __getitem__(self, path: str) -> Stored:
        return dict(self.paths)[path]

    def below(self, prefix: str) -> Disk:
        """Return the part whose paths begin with this prefix, without the prefix."""
        return Disk(tuple((path[len(prefix) :], each) for path, each in self.paths if path.startswith(prefix)))


def merged(extents: Iterable[Extent], size: int) -> tuple[Extent, ...]:
    """Return extents in order of their offsets, without overlaps, in normal form: no gaps, no neighbours to join."""
    found: list[Extent] = []
    end = 0
    for offset, length, data in extents:
        if offset > end:
            _append(found, (end, offset - end, None))
        _append(found, (offset, length, data))
        end = offset + length
    if size > end:
        _append(found, (end, size - end, None))
    return tuple(found)


def _append(found: list[Extent], extent: Extent) -> None:
    """Add an extent that begins where the last one ends."""
    offset, length, data = extent
    if length == 0:
        return
    if found:
        start, before, last = found[-1]
        if data is None and last is None:
            found[-1] = (start, before + length, None)
            return
        if data is not None and last is not None and (data.digest, data.offset) == (last.digest, last.offset + before):
            found[-1] = (start, before + length, Data(data.digest, last.offset, before + length))
            return
    found.append((offset, length, data))


def overwritten(extents: tuple[Extent, ...], offset: int, length: int, data: Data | None) -> tuple[Extent, ...]:
    """Return the extents after a write of ``length`` bytes at ``offset``; in order, without overlaps."""
    end = offset + length
    before = [_part(each, each[0], offset) for each in extents if each[0] < offset]
    after = [_part(each, end, each[0] + each[1]) for each in extents if each[0] + each[1] > end]
    return (*before, (offset, length, data), *after)


def shortened(extents: tuple[Extent, ...], size: int) -> tuple[Extent, ...]:
    """Return the extents without everything from ``size`` on."""
    return tuple(_part(each, each[0], size) for each in extents if each[0] < size)


def _part(extent: Extent, start: int, end: int) -> Extent:
    """Return the part of an extent between two offsets."""
    offset, length, data = extent
    start, end = max(start, offset), min(end, offset + length)
    part = None if data is None else Data(data.digest, data.offset + start - offset, end - start)
    return start, end - start, part
