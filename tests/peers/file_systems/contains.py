"""Decide whether a model allows what a real crash left."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from racecheck.crash.bitsets import bits, mask_of
from racecheck.crash.changes import Changes, LastingChoice
from racecheck.crash.legal import Legal, Limits
from racecheck.crash.log import Log, Stored
from racecheck.crash.models import MODELS

Check = Callable[[str, Stored], bool]
"""Return whether the model's content of a path equals what was found there."""


def contains(log: Log, model: str, sizes: Mapping[str, int], matches: Check) -> bool:
    """Return whether a crash after all of ``log`` may leave a given disk.

    ``sizes`` maps the paths that were found to the sizes of files (-1: it is none), ``matches`` compares what is under
    one.  Names and truncations are tried in every way that the model allows, and then each file on its own: hence this
    is only for models in which no bytes have to wait for other bytes ("ext4", "btrfs", "posix-min").
    """
    return _Search(log, model, matches, sizes).any()


class _Search:
    def __init__(self, log: Log, model: str, matches: Check, sizes: Mapping[str, int]) -> None:
        self.changes = Changes(log, MODELS[model].split, MODELS[model].tails)
        self.limits = Limits(self.changes, MODELS[model])
        self.legal = self.limits.after((1 << len(log.entries)) - 1)
        self.matches = matches
        self.sizes = sizes
        self._known: dict[tuple[str, int, int], bool] = {}

    def any(self) -> bool:
        journal = self.changes.kinds["name"] | self.changes.kinds["size"]
        wanted = tuple(sorted(self.sizes))
        seen: dict[int, bool] = {}
        for lasts in self.legal.sets(journal):
            names = lasts & self.changes.kinds["name"]
            if names not in seen:
                seen[names] = tuple(path for path, _ in self.changes.tree(names)) == wanted
            if seen[names] and all(self._fits(path, each, lasts) for path, each in self.changes.tree(names)):
                return True
        return False

    def _fits(self, path: str, inode: int, journal: int) -> bool:
        """Return whether a file may have these bytes if just these names and sizes last."""
        own = self.changes.of_inode.get(inode, 0)
        key = (path, inode, journal & own)
        if key not in self._known:
            self._known[key] = self._try(path, inode, journal & own, own & self.changes.kinds["data"])
        return self._known[key]

    def _try(self, path: str, inode: int, journal: int, data: int) -> bool:
        legal, size = self.legal, self.sizes[path]
        if size >= 0 and size not in self.limits.sizes(inode, legal, journal | data):
            return False
        lost = self.changes.of_inode.get(inode, 0) & ~data & ~journal
        possible = mask_of(each for each in bits(data) if legal.must >> each & 1 or not legal.requires[each] & lost)
        must = legal.must & possible
        for number in bits(journal):
            must |= legal.requires[number] & data
        sizes = ((inode, size),) if size >= 0 else ()
        return any(
            self.matches(path, self.changes.stored(inode, LastingChoice(lasts | journal, sizes)))
            for lasts in Legal(possible, must & possible, possible, legal.requires).sets(possible)
        )
