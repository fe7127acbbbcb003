"""A journal of names and sizes, bytes when they are written back: ext4 with data=ordered, and XFS.

Names and truncations share one journal and last in its order.  The bytes of a file have no place in that order because
blocks are allocated late: a name may last without them, and so may the size (delayed allocation, in the kernel's
documentation of ext4; Mohan et al., "CrashMonkey and ACE", OSDI 2018, on what fsync promises).
"""

from __future__ import annotations

from racecheck.crash.changes import PAGE, Changes, bits
from racecheck.crash.models.common import (
    Rules,
    bytes_after_truncation,
    contents_of,
    names_in,
    names_of,
    per_sync,
    up_to,
)


class Ext4:
    """Names and truncations last in order; bytes as soon as, or later than, the truncations of their file.

    An fsync writes the bytes and forces the journal as far as it is about the file: through the last change of its
    names or its size, and through whatever came before a write that made it longer, since the new size is in the
    journal behind that.  An fsync of a file about which the journal has nothing forces nothing.
    """

    split = False
    page = PAGE
    sizes = True
    tails = True
    keeps_all = False

    def rules(self, changes: Changes) -> Rules:
        journal = changes.kinds["name"] | changes.kinds["size"]
        written: dict[int, int] = {}

        def promise(index: int, before: int) -> int:
            inode = changes.log.entries[index].inode
            contents = contents_of(changes, inode, before)
            fresh = contents & ~written.get(inode, 0)
            written[inode] = contents
            about = names_of(changes, inode, before) | names_in(changes, inode, before) | contents & journal
            return contents | up_to(about | _longer(changes, fresh)) & journal & before

        requires = bytes_after_truncation(changes)
        for number in bits(journal):
            own = changes.of_entry[changes.every[number].entry]
            requires[number] = (journal | own) & ((1 << number) - 1)
        return Rules(requires, per_sync(changes, promise))


def _longer(changes: Changes, mask: int) -> int:
    """The last of some changes that made its file longer by writing to it; none: 0."""
    found = 0
    for number in bits(mask):
        if changes.every[number].extends:
            found = 1 << number
    return found
