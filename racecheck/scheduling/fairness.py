"""A thread that polls lets others go first, so that the default schedule is fair and a poll loop ends.

A loop that polls without a pause, or with one of no length, waits for something that another thread has to do first.
In the default schedule a thread continues as long as it can, which here would be forever.
"""

from __future__ import annotations

from collections import Counter

from racecheck.model.nouns import Event, Op
from racecheck.model.ops import op_kinds

_IN_VAIN = 10
"""The number of equal answers, with no change in between, after which a thread counts as polling."""

TURN = 300
"""After this many ops in a row another thread goes: this one may wait for it, although it changes something."""

_PAUSE = 1_000_000
"""Nanoseconds of a sleep that lets time pass for the others too."""

_ASKING = op_kinds.ASKS | {"reap", "test", "store", "close"}
_MAKING = frozenset({"O_CREAT", "O_TRUNC"})


class Fairness:
    """Notes the ops of a run.  They decide the order of options, and never the options."""

    def __init__(self) -> None:
        self._asked: Counter[tuple[object, ...]] = Counter()
        self._vain: set[tuple[str, ...]] = set()

    def note(self, event: Event) -> None:
        """Note that an op has been performed, or a collective issued."""
        if not isinstance(event, Op) or event.result is None or not asks(event):
            self._asked.clear()
            self._vain.clear()
            return
        answer = (*_question(event), event.result.errno, event.result.value, event.result.digest)
        self._asked[answer] += 1
        if self._asked[answer] >= _IN_VAIN:
            self._vain.add(_question(event))

    def is_vain(self, op: Op) -> bool:
        """Return whether a thread has asked a pending op's question often enough since the last change."""
        return _question(op) in self._vain


def _question(op: Op) -> tuple[str, ...]:
    return op.thread, op.label, op.syscall


def asks(op: Op) -> bool:
    """Return whether an op changes nothing."""
    if op.call == "sleep":
        return op.args.get("nanoseconds", 0) < _PAUSE
    failed = op.result is not None and bool(op.result.errno)
    return failed or op.call in _ASKING or (op.call == "open" and _MAKING.isdisjoint(op.flags))
