"""Where a run can be cut: how far each rank had come when the crash came.

These are all prefixes of the trace, and between two collectives of all ranks the places where some ranks had not come
so far as others: as far as nothing that had happened depended on what had not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import prod

from racecheck.crash.changes import bits, mask_of
from racecheck.crash.log import SYNCS, Log, Moment
from racecheck.happens_before import Order, is_step
from racecheck.model import Collective, Outcome
from racecheck.relation import Relation

MOST, TRIED = 256, 10_000
"""The most cuts between two collectives, and of how many it is tried whether they are possible."""
_PUBLISHES = frozenset({"create", "link", "symlink", "unlink", "rmdir", "rename", "truncate"})


@dataclass(frozen=True, slots=True)
class Cut:
    """A place to cut a run: which ``entries`` of the log and which ``events`` of the trace had happened, as sets (a
    bit for each), and how many of the acknowledgements had been ``reached``.

    ``last`` are the entries behind which the same rank had done nothing more.
    """

    entries: int
    events: int
    reached: int
    last: int
    apart: bool = False


def moments(outcome: Outcome) -> tuple[Moment, ...]:
    """The events of a run as what decides which cuts of it are possible."""
    relation = Relation(outcome.world)
    order = Order(relation)
    places: dict[str, list[int]] = {}
    found: list[Moment] = []
    for index, event in enumerate(outcome.trace):
        if isinstance(event, Collective):
            found.append(Moment(event.ranks, "", event.clock))
            continue
        after: tuple[int, ...] = ()
        if is_step(event, relation):
            step = order.add(event)
            seen = ((places.get(thread, []), count) for thread, count in step.clock.items() if thread != event.thread)
            after = tuple(sorted(own[count - 1] for own, count in seen if 0 < count <= len(own)))
            places.setdefault(event.thread, []).append(index)
        found.append(Moment((event.rank,), event.thread, event.clock, after))
    return tuple(found)


def cuts(log: Log, acks: Sequence[int] = ()) -> tuple[list[Cut], str]:
    """All places to cut a run, the end first; and what was left out, "" for nothing."""
    plan = _Plan(log, acks)
    found: dict[tuple[int, int], Cut] = {}
    for cut in plan.prefixes():
        found.setdefault((cut.entries, cut.reached), cut)
    left_out = ""
    for cut in plan.apart():
        found.setdefault((cut.entries, cut.reached), cut)
    if plan.skipped:
        left_out = f"not all the ways in which ranks could be apart when the crash comes ({plan.skipped} more at most)"
    return list(found.values()), left_out


class _Plan:
    """What is known of a log that is to be cut."""

    def __init__(self, log: Log, acks: Sequence[int]) -> None:
        self.log = log
        self.acks = sorted(acks)
        self.moments = log.moments or _alone(log)
        self.keys: list[int] = []
        self.skipped = 0
        latest = -1
        last: dict[int, int] = {}
        self.own: list[int] = []
        for entry in log.entries:  # a repair puts an entry where it belongs, whatever its event
            latest = max(latest, entry.event)
            self.keys.append(latest)
            last[entry.rank] = max(last.get(entry.rank, -1), entry.event)
            self.own.append(last[entry.rank])

    def prefixes(self) -> Iterator[Cut]:
        """After every entry, and before and after every acknowledgement, from the end."""
        count, places = len(self.log.entries), sorted({0, len(self.moments), *self._around_acks()})
        found: set[tuple[int, int]] = {(count, len(self.moments)), (0, 0)}
        for index, key in enumerate(self.keys):
            found |= {(index + 1, key + 1), (index, max(key, self.keys[index - 1] + 1 if index else 0))}
        for place in places:
            found.add((sum(key < place for key in self.keys), place))
        for entries, place in sorted(found, reverse=True):
            done = (1 << entries) - 1
            events = (1 << place) - 1 & ~self._under_way(entries)
            yield Cut(done, events, self._reached(events), self._last(done, {}))

    def _under_way(self, entries: int) -> int:
        """The event that the next entry belongs to as well, or behind which a repair has put it, if a rank says right
        after it that a save has returned: that waits for the entry.
        """
        if not entries or entries == len(self.keys) or self.keys[entries] != self.keys[entries - 1]:
            return 0
        return 1 << self.keys[entries] if self.keys[entries] in self.acks else 0

    def _around_acks(self) -> Iterator[int]:
        for event in self.acks:
            if 0 <= event < len(self.moments):
                yield from (event, event + 1)

    def apart(self) -> Iterator[Cut]:
        """Between two collectives of all ranks, every rank on its own: where it began, around what it published, where
        it ended.
        """
        ranks = sorted({rank for moment in self.moments for rank in moment.ranks})
        if not self.log.moments or len(ranks) < 2:
            return
        needs = _Needs(self.moments, ranks)
        together = [index for index, each in enumerate(self.moments) if len(each.ranks) == len(ranks)]
        for begin, end in zip([0, *(index + 1 for index in together)], [*together, len(self.moments)], strict=True):
            options = [self._stops(rank, begin, end) for rank in ranks]
            ways = prod(map(len, options))
            possible = ((stops, needs.happened(stops)) for stops in islice(_tamest_first(options), TRIED))
            taken = list(islice((each for each in possible if each[1] is not None), MOST))
            if len(taken) == MOST or ways > TRIED:
                self.skipped += ways - len(taken)
            for stops, happened in taken:
                yield self._apart(dict(zip(ranks, stops, strict=True)), happened or 0)

    def _apart(self, at: dict[int, int], happened: int) -> Cut:
        entries = mask_of(i for i, each in enumerate(self.log.entries) if self.own[i] < at.get(each.rank, 0))
        return Cut(entries, happened, self._reached(happened), self._last(entries, at), apart=True)

    def _stops(self, rank: int, begin: int, end: int) -> list[int]:
        """Where a rank may stand, the end first."""
        found = {begin, end}
        written: dict[int, int] = {}
        for index, entry in enumerate(self.log.entries):
            place = self.own[index]
            if entry.rank != rank or not begin <= place < end:
                continue
            if entry.kind in _PUBLISHES or entry.kind in SYNCS:
                found |= {place, place + 1}
            elif entry.kind == "write":
                written[entry.inode] = place + 1
        return sorted(found | set(written.values()), reverse=True)

    def _reached(self, events: int) -> int:
        return sum(event < 0 or bool(events >> event & 1) for event in self.acks)

    def _last(self, done: int, at: dict[int, int]) -> int:
        """The last entry of each rank, if its event is the last that the rank did.  Of a prefix: the very last one."""
        if not at:
            return 1 << (done.bit_length() - 1) if done else 0
        found: dict[int, int] = {}
        for index in bits(done):
            found[self.log.entries[index].rank] = index
        return mask_of(found.values())


class _Needs:
    """Which events have to have happened if a rank has come to some place."""

    def __init__(self, moments: Sequence[Moment], ranks: Sequence[int]) -> None:
        before = _before(moments)
        self.done: list[list[int]] = []
        self.needs: list[list[int]] = []
        for rank in ranks:
            done, needs = [0], [0]
            for index, moment in enumerate(moments):
                mine = rank in moment.ranks
                done.append(done[-1] | (1 << index if mine else 0))
                needs.append(needs[-1] | (before[index] if mine else 0))
            self.done.append(done)
            self.needs.append(needs)

    def happened(self, stops: Sequence[int]) -> int | None:
        """The events that have happened if the ranks stand there; None if they cannot."""
        happened = needed = 0
        for done, needs, stop in zip(self.done, self.needs, stops, strict=True):
            happened |= done[stop]
            needed |= needs[stop]
        return happened if not needed & ~happened else None


def _before(moments: Sequence[Moment]) -> list[int]:
    """For each event the set of those that happen before it.  (A repair may have one wait for what came later.)"""
    near = _just_before(moments)
    found = [0] * len(moments)
    is_complete = False
    while not is_complete:
        is_complete = True
        for index, others in enumerate(near):
            before = found[index]
            for other in others:
                before |= found[other] | 1 << other
            is_complete &= before == found[index]
            found[index] = before
    return found


def _just_before(moments: Sequence[Moment]) -> list[list[int]]:
    """For each event those that come right before it, of each thread that it knows of."""
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


def _tamest_first(options: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """All ways to take one of each: first those in which one is apart from the others, which are at an end."""
    seen: set[tuple[int, ...]] = set()
    for apart, own in enumerate(options):
        for end in (0, -1):
            for stop in own:
                stops = tuple(stop if index == apart else each[end] for index, each in enumerate(options))
                if stops not in seen:
                    seen.add(stops)
                    yield stops
    for stops in product(*options):
        if stops not in seen:
            yield stops


def _alone(log: Log) -> tuple[Moment, ...]:
    """Events for a log that has none: as many as it takes."""
    count = max((entry.event for entry in log.entries), default=-1) + 1
    return tuple(Moment((0,)) for _ in range(count))
