"""The use of paths outside the watched directory, where nothing is controlled: whether ranks meet there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

_Ranks = defaultdict[str, set[int]]


def _ranks() -> _Ranks:
    return defaultdict(set)


@dataclass(slots=True)
class Outside:
    """Which ranks used a path, changed its object, made, removed or renamed it (``named``), used a name below it.

    Listings do not count: Python lists the directories from which it imports.
    """

    used: _Ranks = field(default_factory=_ranks)
    written: _Ranks = field(default_factory=_ranks)
    named: _Ranks = field(default_factory=_ranks)
    below: _Ranks = field(default_factory=_ranks)

    def meets(self, path: str, rank: int, *, writes: bool, names: bool) -> bool:
        """Note a use of a path; returns whether another rank's use of it, or of one above or below, depends on it."""
        above = [*_above(path)]
        self.used[path].add(rank)
        for each in above:
            self.below[each].add(rank)
        for is_so, known in (writes, self.written), (names, self.named):
            if is_so:
                known[path].add(rank)
        others = set().union(*(self.named[each] for each in above))
        others |= self.below[path] if names else set()
        others |= self.used[path] if self.written[path] else set()
        return bool(others - {rank})


def _above(path: str) -> Iterator[str]:
    """Yield the directories above a path, the nearest first."""
    while (path := path.rpartition("/")[0]) != "":
        yield path
