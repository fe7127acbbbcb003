"""Which events of a long trace a reader needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from racecheck.model.nouns import Collective, Event, Op
from racecheck.report.changes import above, adds, changes

_SHORT = 40
_MANY = 60


def kept(trace: Sequence[Event], marked: set[int]) -> list[int]:
    """Return the indices of the events to show, in order, given those that violations name.

    Of a long trace: the marked events with the context switches around them, the ops on the same places or on
    a directory above (only those that changed it, if they are very many), what filled a directory that a
    marked rmdir found full, and all collectives.  With nothing marked, the last op of each rank stands in.
    One event alone is never left out: saying so takes as much room.
    """
    if len(trace) <= _SHORT:
        return list(range(len(trace)))
    focus = marked or _last_of_each_rank(trace)
    found = focus | _switches(trace, focus) | _related(trace, marked)
    found |= {index for index, event in enumerate(trace) if isinstance(event, Collective)}
    return _close_gaps(sorted(found), len(trace))


def _last_of_each_rank(trace: Sequence[Event]) -> set[int]:
    return set({event.rank: index for index, event in enumerate(trace) if isinstance(event, Op)}.values())


def _switches(trace: Sequence[Event], focus: set[int]) -> set[int]:
    """Return the two ops of the last switch between ranks before each event, and of the first one after it."""
    ops = [(index, event.rank) for index, event in enumerate(trace) if isinstance(event, Op)]
    switches = [(before, after) for (before, one), (after, other) in pairwise(ops) if one != other]
    found: set[int] = set()
    for index in focus:
        found.update(*[switch for switch in switches if switch[1] <= index][-1:])
        found.update(*[switch for switch in switches if switch[1] > index][:1])
    return found


def _related(trace: Sequence[Event], marked: set[int]) -> set[int]:
    ops = {index: event for index, event in enumerate(trace) if isinstance(event, Op)}
    about = [ops[index] for index in sorted(marked & ops.keys())]
    places = [place for op in about for place in op.places]
    paths = {above for place in places for above in _and_above(place.path)}
    objects = {place.inode for place in places} - {0}
    found = {index for index, op in ops.items() if _is_at(op, paths, objects)}
    if len(found) > _MANY:
        found = {index for index in found if changes(ops[index])}
    full = {op.path for op in about if op.result is not None and op.result.errno == "ENOTEMPTY"}
    return found | {index for index, op in ops.items() if _fills(op, full)}


def _is_at(op: Op, paths: set[str], objects: set[int]) -> bool:
    return any(place.path in paths or place.inode in objects for place in op.places)


def _fills(op: Op, directories: set[str]) -> bool:
    return above(op.path) in directories and adds(op)


def _and_above(path: str) -> Iterator[str]:
    """Yield the path itself and every directory above it, up to the watched one."""
    while path not in {"", ".", "/"}:
        yield path
        path = above(path)
    yield "."


def _close_gaps(found: Sequence[int], count: int) -> list[int]:
    """Return ``found`` with every single missing index."""
    single = [before + 1 for before, after in pairwise([-1, *found, count]) if after - before == 2]
    return sorted([*found, *single])
