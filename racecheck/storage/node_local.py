"""The same path on every node, and behind it another disk: what ``/tmp`` or a local NVMe drive is on a cluster."""

from __future__ import annotations

from racecheck.dependence import Footprint, Location
from racecheck.model import Op
from racecheck.storage.shared import Shared


class NodeLocal(Shared):
    """On its node a disk is like any file system; no other node sees anything of it."""

    per_node = True

    def footprint(self, op: Op) -> Footprint:
        """Names are the node's; identities are of one disk anyway, and what is about no file is everybody's."""
        node = self.world.node(op.rank)
        return {
            Location(where.kind, (node, where.key)) if where.kind == "entry" else where: mode
            for where, mode in super().footprint(op).items()
        }
