"""A journal of names and sizes, bytes when they are written back: ext4 with data=ordered, and XFS.

Names and truncations share one journal and last in its order.  The bytes of a file have no place in that order because
blocks are allocated late: a name may last without them, and so may the size (delayed allocation, in the kernel's
documentation of ext4; Mohan et al., "CrashMonkey and ACE", OSDI 2018, on what fsync promises).
"""

from __future__ import annotations

from racecheck.crash.bitsets import bits
from racecheck.crash.changes import PAGE, Changes
from racecheck.crash.models.common import ModelRules, about, bytes_after_truncation, lates, per_sync, written_by


class Ext4:
    """Names and truncations last in order; bytes as soon as, or later than, the truncations of their file.

    That is the order of the run, but for ops that could have gone in another one: what lasts of the journal is closed
    under what comes before in every order, and has, closed likewise, what each fsync is about.  That is exact.  Let L
    be a set like that: the order that does L first, with all that comes before it, is one of the run's orders; L is
    then what its journal begins with, and no fsync forces more than that beginning.  (Where an fsync is about what
    may come before or after it, see `racecheck.crash.possible`.)

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

    def rules(self, changes: Changes) -> ModelRules:
        journal = changes.kinds["name"] | changes.kinds["size"]

        def asks(index: int, before: int) -> int:
            own = about(changes, index, before, passes_names=self.passes_names)
            return own | _longer(changes, written_by(changes, index, before))

        def promise(index: int, before: int) -> int:
            return written_by(changes, index, before) | changes.closed(asks(index, before)) & journal

        late = lates(changes, lambda index, before: asks(index, before) | written_by(changes, index, before))

        requires = bytes_after_truncation(changes)
        for number in bits(journal):
            own = changes.of_entry[changes.every[number].entry]
            requires[number] = (journal | own) & changes.earlier[number]
        return ModelRules(requires, per_sync(changes, promise), late=late, journals=(journal,))


class Xfs(Ext4):
    """The same, but an fdatasync of a file keeps a new name of it: whatever changes a file logs all of its inode.

    (Only times do not count: ``xfs_fsync_seq`` in the kernel's fs/xfs.)
    """

    passes_names = False


def _longer(changes: Changes, mask: int) -> int:
    """Return the last surviving change of a file that made it longer by a write; 0 if there is none."""
    found: list[tuple[int, int]] = []
    for number in bits(mask):
        change = changes.every[number]
        entry = changes.log.entries[change.entry]
        if change.extends:
            found.append((number, entry.offset))
        elif change.shrinks:
            found = [(each, offset) for each, offset in found if offset < entry.length]
    return 1 << found[-1][0] if found else 0
