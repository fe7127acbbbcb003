"""The default run, except for a few places at which a rank yields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

from racecheck.model.nouns import Op, Point
from racecheck.scheduling.strategies.protocol import Strategy

Switch = tuple[int, int]
"""A rank, and after how many of its ops."""


class Switches(Strategy):
    """``Switches([(0, 3)])``: rank 0 yields after three of its ops, and continues when no other rank can.

    Of several that have yielded, the first continues; a rank that is yielded to twice in one place is passed
    over twice.  With enough switches every schedule can be written so.  Counted by each rank for itself, switches mean
    the same whatever the others do: leaving one out leaves the others as they are.
    """

    def __init__(self, switches: Iterable[Switch] = ()) -> None:
        self.switches = tuple(sorted(switches))
        self._met: set[Switch] = set()

    def begin(self, rng: Random) -> bool:
        del rng
        self._left, self._met = Counter(self.switches), set()
        self._ops: Counter[int] = Counter()
        self._seen = self._gave = 0
        self._aside: dict[str, int] = {}
        return True

    def choose(self, point: Point) -> int:
        if point.kind != "next":
            return 0
        for event in point.trace[self._seen :]:
            if isinstance(event, Op):
                self._ops[event.rank] += 1
                self._aside.pop(event.thread, None)
        self._seen = len(point.trace)
        while True:
            index = min(range(len(point.options)), key=lambda each: self._aside.get(point.options[each].thread, 0))
            option = point.options[index]
            if not self._gives_way(option.rank):
                return index
            self._gave += 1
            self._aside[option.thread] = self._gave

    def _gives_way(self, rank: int) -> bool:
        place = rank, self._ops[rank]
        self._met.add(place)
        self._left[place] -= 1
        return self._left[place] >= 0

    def is_same_run(self, other: Switches) -> bool:
        """Return whether another one would have led to the same run."""
        return self._counting() == other._counting(self._met)

    def _counting(self, places: set[Switch] | None = None) -> list[Switch]:
        """Return the switches at places that a run (default: the last one) has passed."""
        met = self._met if places is None else places
        return [each for each in self.switches if each in met]

    def within(self, ranks: int) -> Switches:
        """Return the same for a number of ranks; turns of ranks beyond it go to those below it, one after the other."""
        found: Counter[Switch] = Counter()
        for (rank, after), times in Counter(self.switches).items():
            found[rank % ranks, after] = max(found[rank % ranks, after], times)
        return Switches(found.elements())

    def __repr__(self) -> str:
        return f"Switches({[*self.switches]})"
