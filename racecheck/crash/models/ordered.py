"""Everything reaches the disk in the order of the calls, bytes included: ext4 with data=journal, about ZFS.

No file system does less harm.  What is lost here is lost everywhere; but an fdatasync passes over a new name of a file,
as it does on ext4, also with data=journal, and not on XFS and btrfs.
"""

from __future__ import annotations

from racecheck.crash.changes import PAGE, Changes
from racecheck.crash.models.common import ModelRules, about, lates, per_sync, written_by


class Ordered:
    """The state is that after some change; fsync promises everything up to the last change of the file."""

    split = False
    page = PAGE
    sizes = False
    tails = False
    keeps_all = False

    def rules(self, changes: Changes) -> ModelRules:
        def asks(index: int, before: int) -> int:
            return written_by(changes, index, before) | about(changes, index, before, passes_names=True)

        promises = per_sync(changes, lambda index, before: changes.closed(asks(index, before)))
        everything = (1 << len(changes.every)) - 1
        return ModelRules(changes.earlier, promises, late=lates(changes, asks), journals=(everything,))
