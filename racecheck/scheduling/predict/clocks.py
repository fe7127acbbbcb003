"""The clocks that the ops of a run would have if some of its collectives ordered nothing.

What a thread knew at an op and did not know at its last one, it learnt from the collectives that it left in between, or
else (a thread that another one has started or woken up, a key of the store) from a thread whose state at that time says
it all.  So both kinds of edges can be followed again, and some of them left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from racecheck.model.nouns import Collective, Event, Op
from racecheck.model.vector_clock import Clock, before, join


class _CollectivePart(NamedTuple):
    """A thread's part in a collective.

    It issues its part at ``event`` of the trace with its own event ``tick``, or leaves the collective after that.
    """

    tick: int
    leaves: bool
    event: int


@dataclass(frozen=True, slots=True)
class _Remains:
    """A thread at some time: its clock, and its remaining part."""

    clock: Mapping[str, int]
    left: Mapping[str, int]


class _ClocksWithout:
    def __init__(self, trace: Sequence[Event], without: AbstractSet[int]) -> None:
        self._without = without
        self._collectives = {index: event for index, event in enumerate(trace) if isinstance(event, Collective)}
        self._parts: dict[str, list[_CollectivePart]] = defaultdict(list)
        self._states: dict[str, list[_Remains]] = defaultdict(list)
        self._issued: dict[tuple[str, int], _Remains] = {}
        for index, each in self._collectives.items():
            for leaves, ticks in enumerate((each.issued, each.left)):
                for thread, tick in ticks.items():
                    self._parts[thread].append(_CollectivePart(tick, bool(leaves), index))
        for parts in self._parts.values():
            parts.sort(reverse=True)

    def add(self, op: Op) -> Mapping[str, int]:
        """Handle the next op of the trace; returns the remaining part of its clock."""
        tick = op.clock[op.thread]
        self._advance(op.thread, (tick, False), op.clock)
        last = self._last(op.thread)
        left: Clock = {**last.left, op.thread: tick}
        if {**last.clock, op.thread: tick} != op.clock:
            join(left, *(source.left for source in self._others(op, last.clock)))
        self._states[op.thread].append(_Remains(op.clock, left))
        return left

    def _advance(self, thread: str, until: tuple[int, bool], within: Mapping[str, int] | None = None) -> None:
        """Take part, for a thread, in all before ``until`` that the clock ``within`` knew of."""
        parts = self._parts[thread]
        while parts and parts[-1][:2] < until:
            last, part = self._last(thread), parts[-1]
            clock, left = dict(last.clock), dict(last.left)
            if part.leaves:
                sources = self._sources(part.event, thread)
                if within is not None and not _is_within(sources, within):
                    return
                for each, tick in sources.items():
                    state = self._issuing(each, tick)
                    join(clock, state.clock)
                    if part.event not in self._without:
                        join(left, state.left)
            else:
                clock[thread] = left[thread] = part.tick
            parts.pop()
            self._states[thread].append(_Remains(clock, left))
            if not part.leaves:
                self._issued[thread, part.tick] = self._states[thread][-1]

    def _sources(self, event: int, thread: str) -> dict[str, int]:
        """Return which parts must have been issued before a thread may leave a collective, and when."""
        collective = self._collectives[event]
        ranks = before(collective.kind, collective.ranks, collective.root, _rank(thread))
        return {each: tick for each, tick in collective.issued.items() if _rank(each) in ranks}

    def _issuing(self, thread: str, tick: int) -> _Remains:
        """Return a thread as it issued its part."""
        if (thread, tick) not in self._issued:
            self._advance(thread, (tick, True))
        return self._issued[thread, tick]

    def _others(self, op: Op, known: Mapping[str, int]) -> Iterator[_Remains]:
        """Return the states of threads that are directly before an op, other than by ops of its own thread."""
        clock = dict(known)
        found = []
        for thread, tick in op.clock.items():
            if thread != op.thread and tick > clock.get(thread, 0):
                self._advance(thread, (tick + 1, False), op.clock)
                found.append(self._last(thread, op.clock))
        for state in sorted(found, key=lambda state: -sum(state.clock.values())):
            if not _is_within(state.clock, clock):
                join(clock, state.clock)
                yield state

    def _last(self, thread: str, within: Mapping[str, int] | None = None) -> _Remains:
        """Return the last state of a thread, or the last that the clock ``within`` knew of."""
        known = (each for each in reversed(self._states[thread]) if within is None or _is_within(each.clock, within))
        return next(known, _Remains({}, {}))


def clocks(trace: Sequence[Event], without: AbstractSet[int] = frozenset()) -> dict[int, Mapping[str, int]]:
    """Return, for each op of a trace, by index, its clock if the collectives at these indices ordered nothing."""
    again = _ClocksWithout(trace, without)
    return {index: again.add(event) for index, event in enumerate(trace) if isinstance(event, Op)}


def _is_within(clock: Mapping[str, int], other: Mapping[str, int]) -> bool:
    return all(other.get(thread, 0) >= tick for thread, tick in clock.items())


def _rank(thread: str) -> int:
    return int(thread.partition(".")[0])
