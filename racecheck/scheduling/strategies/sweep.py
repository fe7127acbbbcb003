"""Try each single failure once, at one place after the other; then in other schedules too.

Points other than "next" (does this op fail, does this node see the old or the new?) are what is swept.  The first runs
take the default schedule: nothing goes wrong; then the last such point takes its second option, then its third; then
the one before.  The last ones are the most telling, for by then there is something to lose.  (What comes before a point
does not depend on it: so the first run says how many there are.)  SQLite's tests visit every failure of an allocation
so (sqlite.org/testing.html, "Anomaly Testing").  When all have been tried, another strategy chooses the schedules of
the runs that follow, one point of each being drawn.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from racecheck.model.nouns import Outcome, Point, Tried
from racecheck.scheduling.claims import Claim
from racecheck.scheduling.strategies.protocol import Strategy

_NOUNS = {"fault": "fault", "view": "stale read"}


class Sweep(Strategy):
    """``inner`` answers the points of kind "next" once every single failure of the default schedule has been tried.

    ``remark`` is what the claim says beside that.
    """

    def __init__(self, inner: Strategy, remark: str = "") -> None:
        self._inner, self._remark = inner, remark
        self._place, self._option = -1, 0
        self._is_first = True
        self._points = self._hunted = self._met = self._options = 0
        self._due: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._kind = ""
        self._draw = 0.0
        self.is_swept = False

    def begin(self, rng: Random) -> bool:
        self._met, self._options, self._kind = 0, 0, ""
        if not self.is_swept:
            return True
        self._place, self._draw = rng.randrange(max(1, self._points)), rng.random()
        self._hunted += 1
        return self._inner.begin(rng)

    def choose(self, point: Point) -> int:
        if point.kind == "next":
            return self._inner.choose(point) if self.is_swept else 0
        place, self._met = self._met, self._met + 1
        if self._is_first:
            self._due[point.kind] += len(point.options) - 1
        if place != self._place:
            return 0
        self._options, self._kind = len(point.options), point.kind
        return 1 + int(self._draw * (self._options - 1)) if self.is_swept else self._option

    def end(self, outcome: Outcome) -> None:
        if self.is_swept:
            self._inner.end(outcome)
            return
        self._points = max(self._points, self._met)
        if self._is_first:
            self._is_first, self._place = False, self._met
        elif self._kind:
            self._done[self._kind] += 1
        if self._option + 1 < self._options:
            self._option += 1
        else:
            self._place, self._option = self._place - 1, 1
        self.is_swept = self._place < 0

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
