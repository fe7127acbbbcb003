"""The same path on every node, and behind it another disk: what ``/tmp`` or a local NVMe drive is on a cluster."""

from __future__ import annotations

from racecheck.model.nouns import Op
from racecheck.model.ops.footprint import Footprint, Location
from racecheck.storage.shared import Shared

_ELSEWHERE = ("/", "TMPDIR/")
"""How paths begin that are not on a node's disk."""


class NodeLocal(Shared):
    """On its node a disk is like any file system; no other node sees anything of it."""

    per_node = True

    def footprint(self, op: Op) -> Footprint:
        """Names are the node's; identities are of one disk anyway, and what is about no file is everybody's."""
        node = self.world.node(op.rank)
        return {_on(node, location): mode for location, mode in super().footprint(op).items()}


def _on(node: int, location: Location) -> Location:
    """A name as that of the node's disk."""
    is_own = location.kind == "entry" and not str(location.key).startswith(_ELSEWHERE)
    return Location("entry", (node, location.key)) if is_own else location
