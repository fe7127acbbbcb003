"""A journal of names and sizes, bytes when they are written back: ext4 with data=ordered, and XFS.

Names and truncations share one journal and last in its order.  The bytes of a file have no place in that order because
blocks are allocated late: a name may last without them, and so may the size (delayed allocation, in the kernel's
documentation of ext4; Mohan et al., "CrashMonkey and ACE", OSDI 2018, on what fsync promises).
"""

from __future__ import annotations

from racecheck.crash.changes import PAGE, Changes, bits
from racecheck.crash.models.common import Rules, about, bytes_after_truncation, per_sync, up_to, written_by


class Ext4:
    """Names and truncations last in order; bytes as soon as, or later than, the truncations of their file.

    An fsync writes the bytes and forces the journal as far as it is about the file: through the last change of its
    names or its size, and through whatever came before a write that made it longer, since the new size is in the
    journal behind that.  An fsync of a file about which the journal has nothing forces nothing.

    An fdatasync of a file passes over a new name of it (``i_datasync_tid`` in the kernel's fs/ext4: a rename or a link
    does not set it).  Of a directory it forces what an fsync forces (since Linux 5.10).
    """

    split = False
    page = PAGE
    sizes = True
    tails = True
    keeps_all = False
    passes_names = True
    """Whether an fdatasync passes over a new name."""

    def rules(self, changes: Changes) -> Rules:
        journal = changes.kinds["name"] | changes.kinds["size"]
        written: dict[int, int] = {}

        def promise(index: int, before: int) -> int:
            inode = changes.log.entries[index].inode
            contents = written_by(changes, index, before)
            fresh = contents & ~written.get(inode, 0)
            written[inode] = written.get(inode, 0) | contents
            forced = about(changes, index, before, passes_names=self.passes_names) | _longer(changes, fresh)
            return contents | up_to(forced) & journal & before

        requires = bytes_after_truncation(changes)
        for number in bits(journal):
            own = changes.of_entry[changes.every[number].entry]
            requires[number] = (journal | own) & ((1 << number) - 1)
        return Rules(requires, per_sync(changes, promise))


class Xfs(Ext4):
    """The same, but an fdatasync of a file keeps a new name of it: whatever changes a file logs all of its inode.

    (Only times do not count: ``xfs_fsync_seq`` in the kernel's fs/xfs.)
    """

    passes_names = False


def _longer(changes: Changes, mask: int) -> int:
    """The last of some changes of a file that made it longer by writing to it, and that is still there; none: 0."""
    found: list[tuple[int, int]] = []
    for number in bits(mask):
        change = changes.every[number]
        entry = changes.log.entries[change.entry]
        if change.extends:
            found.append((number, entry.offset))
        elif change.shrinks:
            found = [(each, offset) for each, offset in found if offset < entry.length]
    return 1 << found[-1][0] if found else 0
