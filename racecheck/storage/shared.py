"""One POSIX file system that all ranks see at once (the kernel's own, here)."""

from __future__ import annotations

from racecheck.dependence import Footprint
from racecheck.model import Op, World
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
    crashes: tuple[str, ...] = ("kill", "ext4", "btrfs", "posix-min", "ordered")
    usual_crashes: tuple[str, ...] = ("kill", "ext4", "btrfs")

    def __init__(self, world: World) -> None:
        self.world = world

    def visible(self, op: Op) -> bool:
        return op.call not in _INVISIBLE

    def syncs(self, op: Op) -> bool:
        """Whether what was written to the file lasts once the op has returned."""
        return op.syscall in _SYNCS

    def footprint(self, op: Op) -> Footprint:
        return footprint(op)
