"""Try each single failure once, at one place after the other; then in other schedules too.

Points other than "next" (does this op fail, does this node see the old or the new?) are what is swept.  The first runs
take the default schedule.  In the first of them nothing goes wrong: it says which such points there are, because what
comes before a point does not depend on it.  Each run after it takes one more option of one point.  Of the ops of one
line of code the last one comes first: by then there is something to lose.  Only when each line has had its turn do
earlier ops of the same lines follow, so that a few runs tell much.  SQLite's tests visit every failure of an allocation
so (sqlite.org/testing.html, "Anomaly Testing").  When all have been tried, another strategy chooses the schedules of
the runs that follow, one point of each being drawn.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable
from random import Random

from racecheck.model.nouns import Op, Outcome, Point, Tried
from racecheck.scheduling.claims import Claim
from racecheck.scheduling.strategies.protocol import Strategy

_NOUNS = {"fault": "fault", "view": "stale read"}
_NUMBER = re.compile(r"\d+")


class Sweep(Strategy):
    """``inner`` answers the points of kind "next" once the single failures of the default schedule have been tried.

    ``remark`` is added to the claim.  ``most`` is how many are tried: the first ones, in their order.
    """

    def __init__(self, inner: Strategy, remark: str = "", most: int | None = None) -> None:
        self._inner, self._remark, self._most = inner, remark, most
        self._points: list[Point] = []
        """Of the first run."""
        self._is_first = True
        self._order: list[tuple[int, int]] = []
        """The places of points and their options that are still to be tried, the next one last."""
        self._run = _Run(None, -1, 0)
        self._hunted = 0
        self._due: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self.swept = 0
        """How many runs have tried a single failure."""
        self.tries: tuple[int, Op] | None = None
        """The place of the point whose failure the last run has tried, and the op as it then is."""

    @property
    def is_swept(self) -> bool:
        """Whether all single failures have been tried, or as many as were asked for."""
        return not self._is_first and not self._order

    @property
    def wants_stacks(self) -> bool:
        """Only the first run's tell which ops are of one line of code."""
        return self._is_first

    def begin(self, rng: Random) -> bool:
        self.tries = None
        if not self.is_swept:
            self._run = _Run(None, *(self._order[-1] if self._order else (-1, 0)))
            return True
        self._run = _Run(self._inner, *self._drawn(rng))
        self._hunted += 1
        return self._inner.begin(rng)

    def ahead(self, runs: int, rng: Random) -> Strategy | None:
        if self._order:
            return _Run(None, *self._order[-1 - runs]) if runs < len(self._order) else None
        if self._is_first:
            return None
        place = self._drawn(rng)
        inner = self._inner.ahead(runs, rng)
        return _Run(inner, *place) if inner is not None else None

    def _drawn(self, rng: Random) -> tuple[int, float]:
        """Draw the point at which a run has another option than the first, and where in these."""
        return rng.randrange(max(1, len(self._points))), rng.random()

    def choose(self, point: Point) -> int:
        if self._is_first and point.kind != "next":
            self._points.append(Point(point.kind, point.options))
        return self._run.choose(point)

    def end(self, outcome: Outcome) -> None:
        if self._is_first:
            self._is_first = False
            self._due.update({each.kind: 0 for each in self._points})
            for each in self._points:
                self._due[each.kind] += len(each.options) - 1
            self._order = _order(self._points)[: self._most][::-1]
        elif self.is_swept:
            self._inner.end(outcome)
        else:
            place, option = self._order.pop()
            self.swept += 1
            met = [each.kind for each in outcome.schedule if each.kind != "next"]
            if place < len(met):
                self._done[met[place]] += 1
                self.tries = place, self._points[place].options[option]

    @property
    def due(self) -> int:
        """How many single failures are still to be tried."""
        return len(self._order)

    @property
    def tried(self) -> tuple[Tried, ...]:
        """How far the first runs got."""
        return tuple(Tried(_NOUNS.get(kind, kind), self._done[kind], due) for kind, due in self._due.items())

    def abandon(self) -> None:
        self._inner.abandon()

    def claim(self) -> Claim:
        return Claim(remarks=(self._extent(), *filter(None, [self._remark])))

    def _extent(self) -> str:
        """Return how many of the single faults and stale reads were tried."""
        more = f"; {self._hunted} more schedules drawn" if self._hunted else ""
        done, due = self._done.total(), self._due.total()
        if self.is_swept and not due:
            others = f"; {self._hunted} more schedules drawn" if self._hunted else ""
            return f"the default schedule has no possible fault or stale read{others}"
        is_all = self.is_swept and self._done == self._due  # of each kind; a run may not have reached its place again
        if is_all:
            return f"every single fault and stale read of the default schedule was tried ({done}){more}"
        return f"{done} of {due} single faults and stale reads of the default schedule were tried{more}"


class _Run(Strategy):
    """The default schedule, or one by ``inner``, in which the point at a place has an option other than the first.

    ``option`` is its index, or with an ``inner``, where among these it is, from 0 to 1.
    """

    def __init__(self, inner: Strategy | None, place: int, option: float) -> None:
        self._inner, self._place, self._option = inner, place, option
        self._met = 0

    def begin(self, rng: Random) -> bool:
        del rng
        self._met = 0
        return True

    def choose(self, point: Point) -> int:
        if point.kind == "next":
            return self._inner.choose(point) if self._inner is not None else 0
        place, self._met = self._met, self._met + 1
        if place != self._place:
            return 0
        last = len(point.options) - 1
        return min(int(self._option), last) if self._inner is None else 1 + int(self._option * last)


def _order(points: list[Point]) -> list[tuple[int, int]]:
    """Return the place of each point with each option but the first, those to be tried first at the beginning.

    The last op of each line of code comes first, the last of these lines before all.  Then come the ops before these.
    """
    later: Counter[Hashable] = Counter()
    found = []
    for place, point in reversed([*enumerate(points)]):
        line = _line(point.options[0])
        found += [(later[line], -place, option) for option in range(1, len(point.options))]
        later[line] += 1
    return [(-place, option) for _, place, option in sorted(found)]


def _line(op: Op) -> Hashable:
    """Return the key of the ops of one line of code: their stack, else the names that they are about."""
    if op.stack:
        return op.call, tuple((frame.file, frame.line) for frame in op.stack)
    return op.call, tuple(_NUMBER.sub("#", place.path) for place in op.places)
