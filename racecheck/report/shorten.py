"""Which events of a long trace a reader needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from racecheck.model import Collective, Event, Op, Place
from racecheck.report import words

_SHORT = 40
_MANY = 60
_CHANGES_NAMES = frozenset({"mkdir", "mknod", "rmdir", "unlink", "rename", "link", "symlink", "truncate"})


def kept(trace: Sequence[Event], marked: set[int]) -> list[int]:
    """The indices of the events to show, in order, given those that violations name.

    Of a long trace: the marked events with the context switches around them, the ops on the same places or on a
    directory above (only those that changed it, if they are very many), and all collectives.  With nothing
    marked, the last op of each rank stands in.  One event alone is never left out: saying so takes as much room.
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
    """The two ops of the last switch between ranks before each event, and of the first one after it."""
    ops = [(index, event.rank) for index, event in enumerate(trace) if isinstance(event, Op)]
    switches = [(before, after) for (before, one), (after, other) in pairwise(ops) if one != other]
    found: set[int] = set()
    for index in focus:
        found.update(*[switch for switch in switches if switch[1] <= index][-1:])
        found.update(*[switch for switch in switches if switch[1] > index][:1])
    return found


def _related(trace: Sequence[Event], marked: set[int]) -> set[int]:
    """The ops on what the marked ones are about, or on a directory above it."""
    about = [place for index in marked for place in _places(trace[index])]
    paths = {above for place in about for above in _ancestors(place.path)}
    objects = {place.inode for place in about} - {0}
    found = {
        index: event
        for index, event in enumerate(trace)
        if isinstance(event, Op) and any(each.path in paths or each.inode in objects for each in event.places)
    }
    many = len(found) > _MANY
    return {index for index, op in found.items() if not many or _changes_names(op)}


def _places(event: Event) -> tuple[Place, ...]:
    return event.places if isinstance(event, Op) else ()


def _ancestors(path: str) -> Iterator[str]:
    """The path itself and every directory above it, up to the watched one."""
    yield from (path, ".")
    while "/" in path.strip("/"):
        path = path.rpartition("/")[0]
        yield path


def _changes_names(op: Op) -> bool:
    succeeded = op.result is not None and not op.result.errno
    return succeeded and (op.call in _CHANGES_NAMES or words.makes(op) or "O_TRUNC" in op.flags)


def _close_gaps(found: Sequence[int], count: int) -> list[int]:
    """``found`` with every index that is missing alone."""
    single = [before + 1 for before, after in pairwise([-1, *found, count]) if after - before == 2]
    return sorted([*found, *single])
