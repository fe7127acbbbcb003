"""The same path on every node, and behind it another disk: what ``/tmp`` or a local NVMe drive is on a cluster."""

from __future__ import annotations

from racecheck.storage.shared import Shared


class NodeLocal(Shared):
    """On its node a disk is like any file system; no other node sees anything of it."""

    per_node = True
