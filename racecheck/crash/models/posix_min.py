"""The least that POSIX promises.  Code that is correct here is correct on every file system, network ones included.

After Pillai et al., "All File Systems Are Not Created Equal" (OSDI 2014).
"""

from __future__ import annotations

from racecheck.crash.changes import Changes, Name
from racecheck.crash.models.common import ModelRules, bytes_after_truncation, lates, names_in, per_sync, written_by


class PosixMin:
    """Names last in any order, each on its own, so a rename can be half done.  Bytes tear anywhere.

    An fsync of a file promises no name, one of a directory the names in it; an fdatasync promises no names at all, and
    a write with O_SYNC or O_DSYNC its own bytes.  (A file that is longer than its bytes ends
    in zeros here; POSIX would have anything there.)
    """

    split = True
    page = 1
    sizes = True
    tails = False
    keeps_all = False

    def rules(self, changes: Changes) -> ModelRules:
        def promise(index: int, before: int) -> int:
            entry = changes.log.entries[index]
            names = 0 if entry.datasync else names_in(changes, entry.inode, before)
            return written_by(changes, index, before, self.page) | names

        requires = bytes_after_truncation(changes)
        seen: dict[Name, int] = {}
        for number, change in enumerate(changes.every):
            for name in change.names:  # what a name leads to is decided by the last change of it that lasts
                requires[number] |= seen.get(name, 0)
                seen[name] = seen.get(name, 0) | 1 << number
        return ModelRules(requires, per_sync(changes, promise), late=lates(changes, promise))
