"""One POSIX file system that all ranks see at once (the kernel's own, here)."""

from __future__ import annotations

from racecheck.dependence import Footprint
from racecheck.model import Op, World
from racecheck.storage.footprints import footprint

_INVISIBLE = frozenset({"close", "fsync", "sync", "statfs", "reap"})


class Shared:
    """Every op takes effect at once, everywhere.

    Closing a file and writing its pages back change nothing that a peer could see: they matter for crashes only.
    (Releasing a lock does: the supervisor asks for those itself.)
    """

    per_node = False
    has_views = False
    mirrored = False

    def __init__(self, world: World) -> None:
        self.world = world

    def visible(self, op: Op) -> bool:
        return op.call not in _INVISIBLE

    def footprint(self, op: Op) -> Footprint:
        return footprint(op)
