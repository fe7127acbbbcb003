"""Random choices, except for a few ops whose order is given: the known orderings of a failure, and nothing more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from racecheck.model.nouns import Constraint, Event, Op, OpName, Outcome, Point
from racecheck.model.ops.op_names import Naming
from racecheck.scheduling.happens_before import yields
from racecheck.scheduling.strategies.protocol import Strategy

_PATIENCE = 100
"""How often others may sleep while a thread is held back: they may wait for that thread."""


class Constrained(Strategy):
    """An op that has to come after one that has not happened yet is held back as long as anything else can go.

    ``unmet`` says which constraints did not hold in the last run, and why: one of the ops never happened, or there was
    nothing but to let the later one go first.
    """

    def __init__(self, constraints: Iterable[Constraint]) -> None:
        self._constraints = tuple(constraints)
        self._awaited: dict[OpName, list[OpName]] = defaultdict(list)
        for each in self._constraints:
            self._awaited[each.after].append(each.before)
        self._unmet: dict[Constraint, str] = {}

    def begin(self, rng: Random) -> bool:
        self._rng = rng
        self._naming, self._done, self._seen, self._patience = Naming(), dict[OpName, int](), 0, _PATIENCE
        self._unmet = {}
        return True

    def choose(self, point: Point) -> int:
        self._follow(point.trace)
        options = range(len(point.options))
        free = [index for index in options if not self._is_held(point.options[index])]
        if len(free) == len(options):
            self._patience = _PATIENCE
        chosen = self._rng.choice(free if free and self._patience else options)
        if self._patience and yields(point.options[chosen]):
            self._patience -= 1
        return chosen

    def end(self, outcome: Outcome) -> None:
        self._follow(outcome.trace)
        pending = {self._naming.peek(op) for op in outcome.pending}
        for each in self._constraints:
            missing = [name for name in (each.before, each.after) if name not in self._done]
            if missing and (missing[0] == each.before or missing[0] not in pending):
                self._unmet[each] = f"{missing[0]} never happens"
            elif not missing and self._done[each.after] < self._done[each.before]:
                self._unmet[each] = f"{each.after} could not be delayed until {each.before}"

    @property
    def unmet(self) -> Mapping[Constraint, str]:
        return self._unmet

    def _is_held(self, op: Op) -> bool:
        return any(name not in self._done for name in self._awaited.get(self._naming.peek(op), ()))

    def _follow(self, trace: Sequence[Event]) -> None:
        for index, event in enumerate(trace[self._seen :], self._seen):
            if isinstance(event, Op):
                self._done[self._naming.take(event)] = index
        self._seen = len(trace)
