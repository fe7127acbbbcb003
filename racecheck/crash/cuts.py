"""Where a run can be cut: how far each rank had come when the crash came.

These are all prefixes of the trace, and between two collectives of all ranks the places where some ranks had not come
so far as others: as far as nothing that had happened depended on what had not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import prod

from racecheck.crash.bitsets import bits, mask_of
from racecheck.crash.log import Log, Moment
from racecheck.crash.precedence import before_events
from racecheck.model.nouns import Collective, Outcome
from racecheck.scheduling.happens_before import Order, is_step
from racecheck.scheduling.relation import Relation

MOST, LOSSY, FEW, TRIED = 1024, 256, 64, 10_000
"""The most cuts between two collectives: where nothing is lost, where something may be, and where other cuts cover the
difference; and how many candidates are tried for one."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A place to cut a run.

    ``entries`` of the log and ``events`` of the trace had happened, and these acknowledgements had been ``reached``:
    sets, with a bit for each.  ``last`` are the entries after which the same rank had done nothing more.
    """

    entries: int
    events: int
    reached: int
    last: int
    apart: bool = False


def moments(outcome: Outcome) -> tuple[Moment, ...]:
    """Return the part of a run that decides which cuts of it are possible."""
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


def cuts(log: Log, acks: Sequence[int] = (), promises: int | None = None) -> tuple[list[Cut], str]:
    """Return all places to cut a run, the end first; and the omissions, "" for none.

    ``promises``: what has come may be lost, but for what these entries (a bit for each) promise.  Then the largest cuts
    are enough, behind which there is a promise or an acknowledgement: what a crash may leave at another one it may
    leave at one of these.
    """
    plan = _CutFacts(log, acks)
    found: dict[tuple[int, int], Cut] = {}
    for cut in [*plan.prefixes(), *(() if promises is None else plan.watersheds(promises))]:
        found.setdefault((cut.entries, cut.reached), cut)
    skipped = plan.skipped
    for cut in plan.everywhere(MOST if promises is None else FEW):
        found.setdefault((cut.entries, cut.reached), cut)
    skipped = plan.skipped if promises is None else skipped
    left_out = "not all consistent cuts"
    return list(found.values()), f"{left_out} ({skipped} more at most)" * bool(skipped)


class _CutFacts:
    """The facts about a log that is to be cut."""

    def __init__(self, log: Log, acks: Sequence[int]) -> None:
        self.log = log
        self.acks = sorted(acks)
        self.moments = log.moments or _alone(log)
        self.keys: list[int] = []
        self.skipped = 0
        self.ranks = sorted({rank for moment in self.moments for rank in moment.ranks})
        self.needs = _Needs(self.moments, self.ranks)
        latest = -1
        last: dict[int, int] = {}
        self.own: list[int] = []
        for entry in log.entries:  # a repair puts an entry where it belongs, whatever its event
            latest = max(latest, entry.event)
            self.keys.append(latest)
            last[entry.rank] = max(last.get(entry.rank, -1), entry.event)
            self.own.append(last[entry.rank])

    def prefixes(self) -> Iterator[Cut]:
        """Return the cuts after every entry, and before and after every acknowledgement, starting at the end."""
        count, places = len(self.log.entries), sorted({0, len(self.moments), *self._around_acks()})
        found: set[tuple[int, int]] = {(count, len(self.moments)), (0, 0)}
        for index, key in enumerate(self.keys):
            found |= {(index + 1, key + 1), (index, max(key, self.keys[index - 1] + 1 if index else 0))}
        for place in places:
            found.add((sum(key < place for key in self.keys), place))
        for entries, place in sorted(found, reverse=True):
            done = (1 << entries) - 1
            events = (1 << place) - 1 & ~self._under_way(entries)
            yield Cut(done, events, self._reached(events), self._last(done, apart=False))

    def _under_way(self, entries: int) -> int:
        """Return the event that the next entry waits for.

        The entry belongs to that event too, or a repair has put it behind the event, and a rank declares right after
        the event that a save has returned.
        """
        if not entries or entries == len(self.keys) or self.keys[entries] != self.keys[entries - 1]:
            return 0
        return 1 << self.keys[entries] if self.keys[entries] in self.acks else 0

    def _around_acks(self) -> Iterator[int]:
        for event in self.acks:
            if 0 <= event < len(self.moments):
                yield from (event, event + 1)

    def everywhere(self, most: int) -> Iterator[Cut]:
        """Return the stops of every rank: before or after all its disk changes, and its acknowledgements."""
        places = {rank: set(self._events(rank)) for rank in self.ranks}
        stops = {rank: {*own, *(event + 1 for event in own)} for rank, own in places.items()}
        for happened in self._apart(stops, most):
            yield self._cut(happened, self._entries(happened))

    def watersheds(self, promises: int) -> Iterator[Cut]:
        """Return the stops of every rank: before the promises that it gets, and its acknowledgements.

        Of a call that is under way everything may have come but its promise.
        """
        stops = {rank: set(self._events(rank, promises)) for rank in self.ranks}
        for happened in self._apart(stops, LOSSY):
            said = mask_of(each for each in self.acks if each >= 0)
            begun = self._entries(self.needs.under_way(happened) & ~said) & ~promises & ~self._entries(happened)
            yield self._cut(happened | mask_of(self.own[each] for each in bits(begun)), self._entries(happened) | begun)

    def _apart(self, stops: Mapping[int, set[int]], most: int) -> Iterator[int]:
        """Yield the ways in which each rank is at one of its stops between two collectives of all ranks.

        A way is a set of events.
        """
        if not self.log.moments or len(self.ranks) < 2:
            return
        together = [index for index, each in enumerate(self.moments) if len(each.ranks) == len(self.ranks)]
        for begin, end in zip([0, *(index + 1 for index in together)], [*together, len(self.moments)], strict=True):
            inside = [{each for each in stops[rank] if begin <= each < end} for rank in self.ranks]
            options = [sorted({begin, end} | own, reverse=True) for own in inside]
            ways = prod(map(len, options))
            possible = (self.needs.happened(each) for each in islice(_defaults_first(options), TRIED))
            taken = list(islice(dict.fromkeys(possible), most))
            if len(taken) == most or ways > TRIED:
                self.skipped += ways - len(taken)
            yield from taken

    def _entries(self, events: int) -> int:
        return mask_of(index for index, event in enumerate(self.own) if event < 0 or events >> event & 1)

    def _cut(self, happened: int, entries: int) -> Cut:
        return Cut(entries, happened, self._reached(happened), self._last(entries, apart=True), apart=True)

    def _events(self, rank: int, entries: int = -1) -> Iterator[int]:
        """Return the events of a rank that these entries come from, and those after which it acknowledges something."""
        for index, entry in enumerate(self.log.entries):
            if entry.rank == rank and entries >> index & 1:
                yield self.own[index]
        yield from (each for each in self.acks if 0 <= each < len(self.moments) and rank in self.moments[each].ranks)

    def _reached(self, events: int) -> int:
        return mask_of(number for number, event in enumerate(self.acks) if event < 0 or events >> event & 1)

    def _last(self, done: int, *, apart: bool) -> int:
        """Return the last entry of each rank; of a prefix, the very last one."""
        if not apart:
            return 1 << (done.bit_length() - 1) if done else 0
        found: dict[int, int] = {}
        for index in bits(done):
            found[self.log.entries[index].rank] = index
        return mask_of(found.values())


class _Needs:
    """Return how far a run can have come if no rank is beyond a given place."""

    def __init__(self, moments: Sequence[Moment], ranks: Sequence[int]) -> None:
        self.before = before_events(moments)
        self.done: list[list[int]] = []
        for rank in ranks:
            done = [0]
            for index, moment in enumerate(moments):
                done.append(done[-1] | (1 << index if rank in moment.ranks else 0))
            self.done.append(done)

    def happened(self, stops: Sequence[int]) -> int:
        """Return all events that can have happened if each rank is at its place or before."""
        reached = 0
        for done, stop in zip(self.done, stops, strict=True):
            reached |= done[stop]
        return mask_of(event for event in bits(reached) if not self.before[event] & ~reached)

    def under_way(self, happened: int) -> int:
        """Return the events that can be next."""
        every = range(len(self.before))
        return mask_of(each for each in every if not (happened >> each & 1 or self.before[each] & ~happened))


def _defaults_first(options: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Yield all ways to take one of each: first those in which one differs from the others, which are at an end."""
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
    """Return events for a log that has none: as many as it takes."""
    count = max((entry.event for entry in log.entries), default=-1) + 1
    return tuple(Moment((0,)) for _ in range(count))
