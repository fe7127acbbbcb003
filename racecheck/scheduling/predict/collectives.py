"""The purpose of collectives: which ops on files would race with each other without them.

Only orders that hold in every run count; in which order dependent ops happened to go in this one does not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

from racecheck.model.nouns import Collective, Event, Op
from racecheck.model.ops.footprint import Dependence, Footprint, Location, Mode
from racecheck.model.ops.lock_ops import releases, waits
from racecheck.scheduling.happens_before import is_step
from racecheck.scheduling.predict.clocks import clocks
from racecheck.scheduling.predict.pairs import Pair, pairs_of

Ticks = Mapping[str, int]

_MANY = 40
"""With more collectives than this, stand-ins are not searched for."""


@dataclass(frozen=True, slots=True)
class Need:
    """A collective, and the ``pairs`` of ops that nothing else keeps in order: of two threads, those closest together.

    With ``stand_ins`` it is not needed as long as these are there, and the pairs are those that it would keep in order
    alone, with nothing but the collectives that are needed.
    """

    collective: Collective
    pairs: tuple[Pair, ...] = ()
    stand_ins: tuple[Collective, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether ops would race with each other if this collective alone were missing."""
        return bool(self.pairs) and not self.stand_ins


def needed_collectives(trace: Sequence[Event], relation: Dependence) -> list[Need]:
    """Return the pairs for which each collective of a run is needed."""
    every = {index: event for index, event in enumerate(trace) if isinstance(event, Collective)}
    ops = _Ops(trace, relation, every.keys())
    kept = {index: [*ops.kept(index)] for index in every}
    idle = {index for index in every if not kept[index]}
    kept |= {index: [*ops.kept(index, idle - {index})] for index in idle}
    instead = {index: ops.stand_ins(index, idle - {index}) for index in idle if kept[index]}
    instead |= {index: [each] for each, found in [*instead.items()] for index in found if index not in instead}
    return [
        Need(event, tuple(pairs_of(trace, kept[index])), tuple(every[each] for each in instead.get(index, ())))
        for index, event in every.items()
    ]


@dataclass(slots=True)
class _Uses:
    """The uses of a location in one mode by a thread: indices in the trace, and their ticks of the thread's clock."""

    ops: list[int] = field(default_factory=list)
    ticks: list[int] = field(default_factory=list)


class _Ops:
    """The ops of a run, their footprints, and their order."""

    def __init__(self, trace: Sequence[Event], relation: Dependence, collectives: Iterable[int]) -> None:
        self._ops = {each: op for each, op in enumerate(trace) if isinstance(op, Op) and is_step(op, relation)}
        self._clocks = lru_cache(maxsize=2)(partial(clocks, trace))
        self._footprints: dict[int, Footprint] = {}
        self._uses: dict[tuple[Location, Mode], dict[str, _Uses]] = defaultdict(dict)
        for index, op in self._ops.items():
            self._footprints[index] = relation.footprint(op)
            for touched in self._footprints[index].items():
                uses = self._uses[touched].setdefault(op.thread, _Uses())
                uses.ops.append(index)
                uses.ticks.append(op.clock[op.thread])
        ordered, loose = self._clocks(frozenset()), self._clocks(frozenset(collectives))
        self._later = [each for each in self._ops if [*self._loosened(each, ordered[each], loose[each])]]

    def kept(self, collective: int, absent: Iterable[int] = ()) -> Iterator[tuple[int, int]]:
        """Return the pairs of dependent ops that only this collective keeps in order, with some others absent.

        Of two threads, only pairs between whose ops there is no other such pair.
        """
        if not self._later:
            return
        ordered, loose = self._clocks(frozenset(absent)), self._clocks(frozenset([collective, *absent]))
        closest: dict[tuple[str, str], int] = defaultdict(int)
        for index in self._later:
            for first in self._loosened(index, ordered[index], loose[index]):
                threads, tick = (self._ops[first].thread, self._ops[index].thread), self._tick(first)
                if tick > closest[threads]:
                    closest[threads] = tick
                    yield first, index

    def stand_ins(self, collective: int, idle: Iterable[int]) -> list[int]:
        """Return, of other collectives that could be absent except for each other, the nearest few that replace one."""
        others = sorted(idle, key=lambda each: abs(each - collective))
        if len(others) > _MANY:
            return others
        enough = bisect_left(range(len(others)), True, key=lambda end: not self._matters(collective, others[end:]))
        absent = others[enough:]
        for each in reversed(others[: enough - 1]):
            if not self._matters(collective, [*absent, each]):
                absent.append(each)
        return [each for each in others if each not in absent]

    def _matters(self, collective: int, absent: Iterable[int]) -> bool:
        return any(self.kept(collective, absent))

    def _loosened(self, index: int, ordered: Ticks, loose: Ticks) -> Iterator[int]:
        """Yield the last op of each other thread on which an op depends, if only one of two clocks has it before."""
        for thread, tick in ordered.items():
            if thread != self._ops[index].thread and loose.get(thread, 0) < tick:
                first = max(self._before(index, thread, tick), default=-1)
                if first >= 0 and loose.get(thread, 0) < self._tick(first):
                    yield first

    def _tick(self, index: int) -> int:
        op = self._ops[index]
        return op.clock[op.thread]

    def _before(self, index: int, thread: str, tick: int) -> Iterator[int]:
        """Return the last ops of a thread up to its event ``tick`` on which an op depends, one for each location.

        A thread that waits for a lock cannot come before the one that releases it, nor the
        other way round: these are no races.
        """
        op = self._ops[index]
        for location, mode in self._footprints[index].items():
            for other in Mode:
                uses = self._uses.get((location, other), {}).get(thread)
                if uses is None or (mode is not Mode.WRITE and other is mode):
                    continue
                last = bisect_right(uses.ticks, tick) - 1
                while last >= 0 and (waits(op) or releases(op)) and releases(self._ops[uses.ops[last]]):
                    last -= 1
                if last >= 0:
                    yield uses.ops[last]
