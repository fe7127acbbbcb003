"""One POSIX file system that all ranks see at once (the kernel's own, here)."""

from __future__ import annotations

from racecheck.model import Op

_INVISIBLE = frozenset({"close", "fsync", "sync", "statfs", "reap"})


class Shared:
    """Every op takes effect at once, everywhere.

    Closing a file and writing its pages back change nothing that a peer could see: they matter for crashes only.
    (Releasing a lock does: the supervisor asks for those itself.)
    """

    per_node = False

    def visible(self, op: Op) -> bool:
        return op.call not in _INVISIBLE
