"""The same path on every node, with a different disk behind it, as ``/tmp`` or a local NVMe drive is on a cluster."""

from __future__ import annotations

from racecheck.model.nouns import Op
from racecheck.model.ops.footprint import Footprint, Location
from racecheck.storage.shared import Shared

_ELSEWHERE = ("/", "TMPDIR/")
"""The prefixes of paths that are not on a node's disk."""


class NodeLocal(Shared):
    """A disk is like any file system on its node; no other node sees it."""

    per_node = True

    def footprint(self, op: Op) -> Footprint:
        """Names are the node's, identities are of one disk anyway, and other locations are common to all."""
        node = self.world.node(op.rank)
        return {_on(node, location): mode for location, mode in super().footprint(op).items()}


def _on(node: int, location: Location) -> Location:
    """Return a name as that of the node's disk."""
    is_own = location.kind == "entry" and not str(location.key).startswith(_ELSEWHERE)
    return Location("entry", (node, location.key)) if is_own else location
