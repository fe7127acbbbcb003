"""Everything reaches the disk in the order in which it was done, bytes included: ext4 with data=journal, about ZFS.

No file system does less harm.  What is lost here is lost everywhere.
"""

from __future__ import annotations

from racecheck.crash.changes import PAGE, Changes
from racecheck.crash.models.common import Rules, contents_of, names_in, names_of, per_sync, up_to


class Ordered:
    """The state is that after some change; fsync promises everything up to the last change of the file."""

    split = False
    page = PAGE
    sizes = False
    tails = False
    keeps_all = False

    def rules(self, changes: Changes) -> Rules:
        def promise(index: int, before: int) -> int:
            inode = changes.log.entries[index].inode
            own = contents_of(changes, inode, before) | names_of(changes, inode, before)
            return up_to(own | names_in(changes, inode, before)) & before

        requires = [(1 << number) - 1 for number in range(len(changes.every))]
        return Rules(requires, per_sync(changes, promise))
