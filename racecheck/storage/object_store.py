"""A bucket of objects, mounted on every node: ``object(mountpoint-s3)`` and ``object(gcsfuse)``.

They have in common: a file that is written is an upload; it becomes an object, for others to see, when it is
closed, and all at once.  Directories are prefixes of keys; there are no hard links; locks are the node's own.

From mountpoint-s3's doc/SEMANTICS.md and its errors (fs/error.rs), and gcsfuse's docs/semantics.md and fs.go:

=====================  ==========================================  ===================================================
                       mountpoint-s3                               gcsfuse
=====================  ==========================================  ===================================================
open to write          EACCES if the object is there, unless       may change anything: the object is staged on the
                       ``allow-overwrite`` and O_TRUNC; EBUSY      node
                       if it is being written
write                  in order only, else EINVAL                  anywhere
open to read           EBUSY while this node writes it             what the node itself has written
close                  the last upload to complete wins            the first wins; earlier opens of it get ESTALE
fsync                  completes the upload, then EIO              completes nothing (streaming writes)
rename                 EOPNOTSUPP; of directories EPERM            of a file as one step; of a directory that is not
                                                                   empty EMFILE, unless the bucket is ``hns``
unlink                 EPERM unless ``allow-delete``; EBUSY while  at once
                       it is being written
mkdir                  the node's own, until an object is below    an object, for all to see
rmdir                  EPERM unless it is the node's own           as usual
symlink                EPERM                                       as usual
chmod, chown, utime    EPERM                                       done, and forgotten
stat                   1 s old at most, but never denies a new     60 s old at most; denies for 5 s at most
                       object
=====================  ==========================================  ===================================================

``ttl`` and ``negative-ttl`` change the last row.  What others had open when an object was replaced or removed may fail
with ESTALE, or still be what it was.

Left out: mountpoint-s3 on directory buckets, which can rename; close by another process than the one that opened;
uploads end with the last descriptor of a file, not with the first; locks of files that both nodes have open to read
exclude each other, as they would not there.

When machines lose power what has been uploaded is there, whole; of an upload that was under way nothing is.  (What a
process leaves open is uploaded when it ends, and counts with the next op of anybody.)

A claim to have covered everything means: every order of the ops, each seeing what is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from racecheck.model.nouns import Event, Op, World
from racecheck.model.ops import op_kinds
from racecheck.model.ops.footprint import Footprint, Location, Mode
from racecheck.storage import options
from racecheck.storage.options import Option
from racecheck.storage.shared import Shared
from racecheck.storage.views import FRESH, SECOND, Seen, Truth, ago, is_watched

FORGOTTEN = frozenset({"chmod", "chown", "utime"})
"""Families that succeed and change nothing."""
_BY_IDENTITY = frozenset({"attributes", "content", "directory", "links", "listing", "lock", "record"})
"""Kinds of locations that are found by path here: every node's copy of an object has its own identity."""


@dataclass(frozen=True, slots=True)
class ObjectSettings:
    """How a storage behaves.

    ``renames``: files can be renamed; ``local_directories``: a new directory is its node's own; ``first_wins``: an
    upload fails where the object has changed since; ``sequential``: files are written from the start, in order.
    """

    profile: str
    renames: bool
    local_directories: bool
    first_wins: bool
    sequential: bool
    ttl: float
    negative_ttl: float
    allow_overwrite: bool = False
    allow_delete: bool = False
    hns: bool = False


PROFILES = {
    "gcsfuse": ObjectSettings("gcsfuse", True, False, True, False, 60.0, 5.0, allow_overwrite=True, allow_delete=True),
    "mountpoint-s3": ObjectSettings("mountpoint-s3", False, True, False, True, 1.0, 0.0),
}
OPTIONS: Mapping[str, Option] = {
    **{name: Option(("profile",), name) for name in PROFILES},
    "allow-overwrite": Option(("allow_overwrite",)),
    "allow-delete": Option(("allow_delete",)),
    "hns": Option(("hns",)),
    "ttl": options.seconds("ttl"),
    "negative-ttl": options.seconds("negative_ttl"),
}


class Objects(Shared):
    """The bucket is one disk, of which every node has a mirror (`racecheck.supervisor.act.object_mirrors`)."""

    has_views = True
    mirrored = True
    crashes: tuple[str, ...] = ("object",)
    usual_crashes = crashes

    def __init__(self, world: World, given: tuple[str, ...] = ()) -> None:
        super().__init__(world)
        read = options.read("object", given, OPTIONS)
        self.settings = replace(PROFILES[read.pop("profile", "gcsfuse")], **read)

    def sent(self, trace: Sequence[Event]) -> Mapping[int, Sequence[int]]:
        """Return nothing: a published object lasts without an fsync."""
        del trace
        return {}

    def visible(self, op: Op) -> bool:
        return "FLUSH" in op.flags or super().visible(op)

    def footprint(self, op: Op) -> Footprint:
        """Return the footprint on one shared file system, by path; and the end of an upload makes the object."""
        found: dict[Location, Mode] = {}
        for location, mode in super().footprint(op).items():
            here = _by_path(op, location)
            known = found.get(here, mode)
            found[here] = mode if known is mode else Mode.WRITE
        if "FLUSH" in op.flags:
            for place in op.places:
                found[Location("entry", place.path)] = found[Location("content", place.path)] = Mode.WRITE
                found[Location("listing", _above(place.path))] = Mode.ADD
        return found

    def view(self) -> ObjectView:
        return ObjectView(self.world, self.settings)


def _by_path(op: Op, location: Location) -> Location:
    if location.kind in _BY_IDENTITY:
        for place in op.places:
            if location.key == place.inode:
                return Location(location.kind, place.path)
            if location.key == place.directory:
                return Location(location.kind, _above(place.path))
    return location


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "."


@dataclass(frozen=True, slots=True)
class _CachedStat:
    """The entry of a name in a node's cache: the object (0: none), since when, and its attributes."""

    inode: int
    since: int
    shown: object


class ObjectView:
    """The memory of each node's mount, and its refusals; the files themselves are in the mirrors.

    ``writing`` are the uploads under way, each the path of a node.
    """

    def __init__(self, world: World, settings: ObjectSettings) -> None:
        self._world, self.settings = world, settings
        self.writing: set[tuple[int, str]] = set()
        self._known: dict[tuple[int, str], _CachedStat] = {}
        self._gone: dict[int, int] = {}

    def before(self, op: Op, now: int, truth: Truth) -> Sequence[Seen]:
        del truth
        if not op.places or not is_watched(op.path):
            return (FRESH,)
        errno = self._refused(op)
        if errno:
            return (Seen(errno=errno),)
        stale = self._stale(op, now)
        return (FRESH,) if stale is None else (FRESH, stale)

    def after(self, op: Op, seen: Seen, now: int, truth: Truth) -> None:
        if not op.places or not is_watched(op.path) or seen.fault or seen.errno:
            return
        assert op.result is not None
        node, place = self._node(op), op.places[-1]
        if place.open_file:
            return
        if op.call in op_kinds.LOOKS and op.result.errno in {"", "ENOENT"}:
            if (node, place.path) not in self.writing:
                self._known[node, place.path] = _CachedStat(place.inode, now, truth.attributes())
            return
        if not op.result.errno or op.result.errno == "EEXIST":
            for each in op.places:
                self._known.pop((node, each.path), None)

    def flushes(self, op: Op) -> bool:
        """Return the mirrors know."""
        del op
        return False

    def ended(self, rank: int) -> None:
        """Note that a process has ended: the mirrors complete its open uploads."""

    def lost(self, inode: int, node: int) -> None:
        """Note that ``node`` removed or replaced an object: open files of others are of the old one."""
        self._gone[inode] = node

    def _node(self, op: Op) -> int:
        return self._world.node(op.rank)

    # Calls that the storage does not support.

    def _refused(self, op: Op) -> str:
        settings, place = self.settings, op.places[-1]
        if op.call in {"link", "mknod"} or (op.call == "symlink" and not settings.renames):
            return "EPERM"
        if op.call in {"allocate", "setxattr", "getxattr", "listxattr", "removexattr"}:
            return "EOPNOTSUPP"
        if op.call in FORGOTTEN and not settings.renames:
            return "EPERM"
        if op.call == "rename":
            return self._rename(op)
        if op.call == "unlink" and place.inode and not settings.renames:
            if (self._node(op), place.path) in self.writing:
                return "EBUSY"
            return "" if settings.allow_delete else "EPERM"
        return self._open(op) if op.call == "open" and place.kind == "file" else ""

    def _rename(self, op: Op) -> str:
        source = op.places[0]
        if not source.inode:
            return ""
        if not self.settings.renames:
            return "EPERM" if source.kind == "directory" else "EOPNOTSUPP"
        if op.flags:
            return "EINVAL"
        return ""

    def _open(self, op: Op) -> str:
        """Of an object that is there."""
        if self.settings.renames:
            return ""
        is_upload = (self._node(op), op.path) in self.writing
        if not writes(op):
            return "EBUSY" if is_upload else ""
        if is_upload:
            return "EBUSY"
        return "" if self.settings.allow_overwrite and op_kinds.truncates(op) else "EACCES"

    # Stale reads.

    def _stale(self, op: Op, now: int) -> Seen | None:
        place, node = op.places[-1], self._node(op)
        if place.open_file:
            gone = self._gone.get(place.inode, node) != node and op.call in op_kinds.READS | {"stat"}
            return Seen("stale: ESTALE", errno="ESTALE") if gone else None
        known = self._known.get((node, place.path))
        if known is None or known.inode == place.inode or (node, place.path) in self.writing:
            return None
        if not known.inode:
            opens = op.call == "open" and not op_kinds.may_create(op)
            denies = op.call in op_kinds.LOOKS or (opens and self.settings.renames)
            if denies and now < known.since + round(self.settings.negative_ttl * SECOND):
                return Seen(f"stale: no entry (cached {ago(now, known.since)})", errno="ENOENT")
        elif op.call in op_kinds.LOOKS and now < known.since + round(self.settings.ttl * SECOND):
            return Seen(f"stale: as it was {ago(now, known.since)}", shown=known.shown)
        return None


def writes(op: Op) -> bool:
    """Return whether an open begins an upload."""
    return not {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"}.isdisjoint(op.flags)
