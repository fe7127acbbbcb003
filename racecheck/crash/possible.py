"""Decide whether one order of a run exists in which a crash leaves just these changes.

What lasts of a journal is what one order of the run begins with, and an fsync that may come before or after a change
that it is about comes before it, if that is lost.  Each of these can be had by itself.  All of them together cannot
where they go round in a circle: two ranks that each make a name and then fsync the directory of the other's name.
"""

from __future__ import annotations

from racecheck.crash.bitsets import bits, mask_of
from racecheck.crash.changes import Changes
from racecheck.crash.models import ModelRules


class Possible:
    """The orders of a log under the rules of a model."""

    def __init__(self, changes: Changes, rules: ModelRules) -> None:
        self._changes, self._rules = changes, rules
        self._asking = mask_of(index for index, asked in rules.late.items() if asked)

    def allows(self, entries: int, lasts: int) -> bool:
        """Return whether there is an order in which, of what these entries have done, just this lasts."""
        lost = self._changes.of_entries(entries) & ~lasts if entries & self._asking else 0
        before = {index: self._entries(self._rules.late[index] & lost) for index in bits(entries & self._asking)}
        before = {index: later for index, later in before.items() if later}
        return not before or not _has_circle(self._follows(before, lasts, lost))

    def _entries(self, changes: int) -> int:
        return mask_of(self._changes.entries_of(changes))

    def _follows(self, before: dict[int, int], lasts: int, lost: int) -> dict[int, set[int]]:
        """Return the required predecessors of each entry: entries, and the ends of the journals as negative numbers."""
        nodes = mask_of(before)
        for later in before.values():
            nodes |= later
        found = {node: {*bits(before.get(node, 0)), *self._behind(node, nodes)} for node in bits(nodes)}
        for number, journal in enumerate(self._rules.journals):
            end = -1 - number
            kept, missing = self._entries(lasts & journal), self._entries(lost & journal)
            found[end] = {node for node in bits(nodes) if missing & (self._changes.order[node] | 1 << node)}
            for node in bits(nodes):
                if kept >> node & 1 or any(self._changes.is_before(node, each) for each in bits(kept)):
                    found[node].add(end)
        return found

    def _behind(self, node: int, nodes: int) -> set[int]:
        return {other for other in bits(nodes) if self._changes.is_before(node, other)}


def _has_circle(follows: dict[int, set[int]]) -> bool:
    """Return whether something has to come after itself."""
    left = {node: set(later) for node, later in follows.items()}
    while left:
        last = [node for node, later in left.items() if not later & left.keys()]
        if not last:
            return True
        for node in last:
            del left[node]
    return False
