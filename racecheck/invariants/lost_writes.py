"""The invariant of files that several ranks write: no rank destroys bytes that another one has written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import permutations

from racecheck.invariants.events import changed
from racecheck.invariants.open_files import TracedFile, by_inode, mixes, mixture
from racecheck.model.nouns import Collective, Event, Op, Outcome, Violation

_OpsKnown = dict[str, int]
"""Of each thread the number of its ops that a rank can know of."""


def no_lost_writes(outcome: Outcome, shared: Sequence[str] = ()) -> Iterator[Violation]:
    """No two ranks write other bytes to one file at once, and none empties a file that another one has just written.

    With two writers the file holds bytes of both, or those of the last one alone: the events of one rank are gone from
    a log, a part of the shards from an index.  The same holds for two threads of one rank that write at once.

    No harm is seen in writers of the same bytes, in writers that both append, that hold one lock, or that name the
    places they write to and keep apart; and in a rank that empties a file after a collective, or after it has found
    in the directory that the other one was done.  ``shared`` are shell patterns of paths that several ranks may
    write anyhow.
    """
    known = _Knowledge(outcome)
    for files in by_inode(outcome):
        if any(fnmatchcase(files[0].path, each) for each in shared):
            continue
        for one, other in permutations([each for each in files if each.changes or each.begins_empty], 2):
            if one.thread == other.thread or _bytes(one) == _bytes(other):
                continue
            if one.first < other.first and mixes(one, other):
                yield Violation("no-lost-writes", *mixture(one, other))
            elif one.rank != other.rank and _empties(outcome, one, other, known):
                text = f"rank {other.rank} empties {one.path}, which rank {one.rank} has written"
                ranks = tuple(sorted((one.rank, other.rank)))
                yield Violation("no-lost-writes", text, ranks, (one.changes[-1].index, other.first))


def _bytes(file: TracedFile) -> list[tuple[int, int, str]]:
    return [(each.offset, each.size, each.digest) for each in file.changes]


def _empties(outcome: Outcome, one: TracedFile, other: TracedFile, known: _Knowledge) -> bool:
    """Return whether a rank empties a file when it cannot know whether the other has written it."""
    if not (one.changes and other.begins_empty and one.changes[-1].index < other.first):
        return False
    if other.changes and other.changes[0].locks & one.changes[-1].locks:
        return False
    last = outcome.trace[one.changes[-1].index]
    return isinstance(last, Op) and not known.includes(other.first, last)


class _Knowledge:
    """The ops of other ranks that a rank can know of at each of its ops: by collectives, or by files that it found."""

    def __init__(self, outcome: Outcome) -> None:
        self._before: dict[int, _OpsKnown] = {}
        ranks: dict[int, _OpsKnown] = {rank: {} for rank in range(outcome.world.ranks)}
        changes: dict[str, _OpsKnown] = {}
        for index, event in enumerate(outcome.trace):
            self._take(index, event, ranks, changes)

    def includes(self, index: int, op: Op) -> bool:
        """Return whether the op at an index comes after another, as far as its rank can know before it is done."""
        return self._before[index].get(op.thread, 0) >= op.clock.get(op.thread, 1)

    def _take(self, index: int, event: Event, ranks: dict[int, _OpsKnown], changes: dict[str, _OpsKnown]) -> None:
        if isinstance(event, Collective):
            together: _OpsKnown = {}
            for rank in event.ranks:
                _join(together, ranks[rank])
            _join(together, event.clock)
            for rank in event.ranks:
                ranks[rank] = {**together}
            return
        own = ranks.setdefault(event.rank, {})
        _join(own, event.clock)
        self._before[index] = {**own}
        for place in event.places:
            _join(own, changes.get(place.path, {}))
        for path in changed(event) if event.result is not None and not event.result.errno else ():
            _join(changes.setdefault(path, {}), own)


def _join(known: _OpsKnown, other: Mapping[str, int]) -> None:
    for thread, count in other.items():
        known[thread] = max(known.get(thread, 0), count)
