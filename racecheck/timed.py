"""Ops whose order a program has learned from the times of files.

Two ops of different ranks that depend on nothing else still give their files times, and a program that looks at both
times knows which came first.  To let all such ops depend on each other would make every search too long: hardly a
program looks.  So the relation begins without them, and learns from each run which ops gave the times that were looked
at.  From then on these ops depend on each other, and on sleeps, which make times differ by much.
"""

from __future__ import annotations

from bisect import bisect_right

from racecheck.dependence import Dependence, Footprint, Location, Mode
from racecheck.model import Op, Outcome

_TIME = Location("time", "files")


class Timed:
    """A dependence relation, and that of the ops ``labels`` with each other."""

    def __init__(self, relation: Dependence, labels: set[str]) -> None:
        self._relation, self._labels = relation, labels

    def visible(self, op: Op) -> bool:
        return self._relation.visible(op) or self._is_timed(op)

    def footprint(self, op: Op) -> Footprint:
        touched = self._relation.footprint(op)
        return {_TIME: Mode.WRITE, **touched} if self._is_timed(op) else touched

    def _is_timed(self, op: Op) -> bool:
        return bool(self._labels) and (op.call == "sleep" or _label(op) in self._labels)

    def learn(self, outcome: Outcome) -> bool:
        """Whether a run shows more such ops; its search has to begin again then."""
        before = len(self._labels)
        self._labels |= of_run(outcome)
        return len(self._labels) > before


def of_run(outcome: Outcome) -> set[str]:
    """The ops of a run that gave files the times at which the program, or its recovery, looked."""
    ops = sorted(outcome.ops, key=lambda op: op.time)
    looked = {*outcome.looked, *(outcome.recovery.looked if outcome.recovery is not None else ())}
    found = (bisect_right(ops, time, key=lambda op: op.time) for time in looked)
    makers = [ops[index] for index in found if index < len(ops)]
    return {_label(op) for op in makers} if len({op.thread for op in makers}) > 1 else set()


def _label(op: Op) -> str:
    return f"{op.thread} {op.label}"
