"""Ops whose order a program has learned from the times of files.

Two ops of different ranks that depend on nothing else still give their files times, and a program that looks at both
times knows which came first.  To let all such ops depend on each other would make every search too long: hardly a
program looks.  So the relation begins without them, and learns from each run which ops gave the times that were looked
at.  From then on these ops depend on each other, and on sleeps, which make times differ by much.
"""

from __future__ import annotations

import os
from bisect import bisect_right

from racecheck.model.nouns import Op, Outcome
from racecheck.model.ops.footprint import Dependence, Footprint, Location, Mode
from racecheck.scheduling.relation import Relation

_TIME = Location("time", "files")
_GIVE_TIMES = ("content", "listing", "attributes")
"""A change of these sets an object's time."""


class Timed:
    """A dependence relation in which the ops ``labels`` also depend on each other."""

    def __init__(self, relation: Dependence, labels: set[str]) -> None:
        self._relation, self._labels = relation, labels

    def visible(self, op: Op) -> bool:
        return self._relation.visible(op) or self._is_timed(op)

    def footprint(self, op: Op) -> Footprint:
        touched = self._relation.footprint(op)
        if not self._is_timed(op):
            return touched
        if op.call != "stat":
            return {_TIME: Mode.WRITE, **touched}
        return {**{Location(kind, op.places[-1].inode): Mode.READ for kind in _GIVE_TIMES}, **touched}

    def _is_timed(self, op: Op) -> bool:
        return bool(self._labels) and (op.call == "sleep" or label(op) in self._labels)

    def learn(self, outcome: Outcome) -> bool:
        """Return whether a run shows more such ops; its search then has to begin again."""
        before = len(self._labels)
        self._labels |= of_run(outcome, self._relation)
        return len(self._labels) > before


def relation_of(outcome: Outcome) -> Timed:
    """Return the footprints of the ops of a run, with the ops whose order the program has learned from times."""
    relation = Relation(outcome.world)
    return Timed(relation, of_run(outcome, relation))


def of_run(outcome: Outcome, relation: Dependence) -> set[str]:
    """Return the ops of a run that set, or asked for, the times at which the program or its recovery looked."""
    ops = sorted(outcome.ops, key=lambda op: op.time)
    looked = {*outcome.looked, *(outcome.recovery.looked if outcome.recovery is not None else ())}
    found = (bisect_right(ops, time, key=lambda op: op.time) for time in looked if time >= 0)
    makers = [ops[index] for index in found if index < len(ops)]
    asking = [op for op in ops if label(op) in outcome.lookers and op.places]
    listings = {Location("listing", op.places[-1].inode) for op in asking}
    makers += [op for op in ops if not listings.isdisjoint(_changed(relation.footprint(op)))]
    if outcome.recovery is not None:
        later = {
            op.places[-1].path for op in outcome.recovery.ops if label(op) in outcome.recovery.lookers and op.places
        }
        makers += [op for op in ops if any(os.path.dirname(place.path) in later for place in op.places)]
    among_several = len({op.thread for op in makers}) > 1
    return {label(op) for op in asking} | ({label(op) for op in makers} if among_several else set())


def _changed(footprint: Footprint) -> list[Location]:
    return [location for location, mode in footprint.items() if mode is not Mode.READ]


def label(op: Op) -> str:
    """Return an op's label, equal in all runs."""
    return f"{op.thread} {op.label}"
