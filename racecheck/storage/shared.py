"""One POSIX file system that all ranks see at once (the kernel's own, here)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from racecheck.model.nouns import Event, Op, World
from racecheck.model.ops import op_kinds
from racecheck.model.ops.footprint import Footprint
from racecheck.storage.footprints import footprint

_SYNCS = frozenset({"fsync", "fdatasync"})
_INVISIBLE = frozenset({"close", "fsync", "sync", "statfs", "reap"})


class Shared:
    """Every op takes effect at once, everywhere.

    Closing a file and writing its pages back change nothing that a peer could see: they matter for crashes only.
    (Releasing a lock does: the supervisor asks for those itself.)
    """

    per_node = False
    has_views = False
    mirrored = False
    by_page = False
    crashes: tuple[str, ...] = ("kill", "ext4", "xfs", "btrfs", "posix-min", "ordered")
    usual_crashes: tuple[str, ...] = ("kill", "ext4", "btrfs")

    def __init__(self, world: World) -> None:
        self.world = world

    def visible(self, op: Op) -> bool:
        return op.call not in _INVISIBLE

    def sent(self, trace: Sequence[Event]) -> Mapping[int, Sequence[int]]:
        """Return, by event, the files that it has synced, by identity.

        An fsync after one of the same file that failed, nothing having been written since, does nothing: when the first
        one fails, the kernel has marked the pages clean all the same (Rebello et al., "Can Applications Recover from
        fsync Failures?", ATC '20).  The next one finds nothing to write, and says that all is well.
        """
        found, failed = {}, set[int]()
        for event, op in enumerate(trace):
            if not isinstance(op, Op) or op.result is None or not op.places:
                continue
            inode = op.places[-1].inode
            if op.syscall not in _SYNCS:
                failed -= {inode} if op.call in op_kinds.RESIZES else set()
            elif op.result.errno:
                failed.add(inode)
            elif inode not in failed:
                found[event] = [inode]
        return found

    def footprint(self, op: Op) -> Footprint:
        return footprint(op)
