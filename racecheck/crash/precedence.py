"""The order of a run's events that holds in every order of its independent ops.

Two ops that do not depend on each other may go in either order, and of these orders the search runs one.  To a disk
they are not the same: a journal has them in the order in which they went.  So a crash is judged by the happens-before
order, which is the same in all of them (Mazurkiewicz, "Trace Theory", 1987).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from racecheck.crash.bitsets import bits, mask_of
from racecheck.crash.log import Entry, Log, Moment


def before_entries(log: Log) -> list[int]:
    """For each entry of a log the set of those (a bit for each) that come before it in every order.

    Without moments there is one order.  Entries of a thread are in the order of the log: a repair may have moved them,
    and what it puts in comes right behind the entry of its rank that it follows.
    """
    if not log.moments:
        return [(1 << index) - 1 for index in range(len(log.entries))]
    events = before_events(log.moments)
    places = list(_places(log.entries))
    found: list[int] = []
    for index, place in enumerate(places):
        own = next((each for each in range(index)[::-1] if _is_same_thread(log.moments, places[each], place)), index)
        others = [each for each, other in enumerate(places) if each != index and events[place] >> other & 1]
        found.append(mask_of([own, *others]) & ~(1 << index) if place >= 0 else (1 << index) - 1)
    return _transitive(found)


def _places(entries: Sequence[Entry]) -> list[int]:
    """Return the event of each entry; for an entry of a repair, that of the previous entry of the same rank."""
    latest: dict[int, int] = {}
    found = []
    for entry in entries:
        if entry.event >= 0:
            latest[entry.rank] = entry.event
        found.append(latest.get(entry.rank, -1))
    return found


def _is_same_thread(moments: Sequence[Moment], one: int, other: int) -> bool:
    return min(one, other) >= 0 and (one == other or moments[one].thread == moments[other].thread)


def before_events(moments: Sequence[Moment]) -> list[int]:
    """Return, for each event, the set of events that happen before it.  A repair may make one wait for a later one."""
    return _transitive([mask_of(near) for near in _just_before(moments)])


def _transitive(near: Sequence[int]) -> list[int]:
    """Turn the sets of direct predecessors into the sets of all predecessors."""
    found = list(near)
    is_complete = False
    while not is_complete:
        is_complete = True
        for index, before in enumerate(found):
            whole = before
            for other in bits(near[index]):
                whole |= found[other]
            is_complete &= whole == before
            found[index] = whole
    return found


def _just_before(moments: Sequence[Moment]) -> list[list[int]]:
    """Return, for each event, its direct predecessors: one of each thread that it knows of."""
    threads: dict[str, list[int]] = {}
    found: list[list[int]] = []
    for index, moment in enumerate(moments):
        near = list(moment.after)
        for thread, count in moment.clock.items():
            own = (other for other in reversed(threads.get(thread, ())) if moments[other].clock.get(thread, 0) <= count)
            near.extend(islice(own, 1))
        found.append(near)
        if moment.thread:
            threads.setdefault(moment.thread, []).append(index)
    return found
