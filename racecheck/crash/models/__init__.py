"""Models of crashes: one small file each.

The idea, and the weakest of the models, are from Pillai et al., "All File Systems Are Not Created Equal" (OSDI 2014).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from racecheck.crash.changes import Changes
from racecheck.crash.models.btrfs import Btrfs
from racecheck.crash.models.common import ModelRules
from racecheck.crash.models.ext4 import Ext4, Xfs
from racecheck.crash.models.kill import Kill
from racecheck.crash.models.nfs import NfsClients, NfsServer
from racecheck.crash.models.ordered import Ordered
from racecheck.crash.models.posix_min import PosixMin

__all__ = ["MODELS", "Model", "ModelRules"]


class Model(Protocol):
    """Which changes of a log may last without which.

    ``split`` and ``tails`` are as in `Changes`, ``page`` says in which units the bytes of a write come to the disk, and
    ``sizes`` whether the size of a file comes there apart from its bytes.  With ``keeps_all`` nothing is lost that was
    done.
    """

    split: bool
    tails: bool
    page: int
    sizes: bool
    keeps_all: bool

    def rules(self, changes: Changes) -> ModelRules:
        """Return the model's rules for the changes of one log."""
        ...


MODELS: Mapping[str, Model] = {
    "kill": Kill(),
    "ext4": Ext4(),
    "xfs": Xfs(),
    "btrfs": Btrfs(),
    "posix-min": PosixMin(),
    "ordered": Ordered(),
    "nfs": NfsClients(),
    "nfs-server": NfsServer(),
    "object": Kill(),
}
"""By name; "ext4" stands for ext4 with data=ordered, and what "xfs" can lose is among what it can lose; "nfs" is what
its clients can lose.

For "object" the log has only published objects (`racecheck.supervisor.finish.recorder`): all of it lasts.
"""
