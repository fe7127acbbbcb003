"""A thread that polls lets others go first: so the default schedule is fair, and what polls comes to an end.

A loop that polls without a pause, or with one of no length, waits for something that another thread has to do first.
In the default schedule a thread goes on as long as it can, which here would be for ever.
"""

from __future__ import annotations

from collections import Counter

from racecheck.model.nouns import Event, Op

_IN_VAIN = 10
"""As many times the same answer, and nothing changed in between."""

_PAUSE = 1_000_000
"""Nanoseconds of a sleep that makes time pass for the others too."""

_ASKING = frozenset({
    "stat", "access", "read", "readlink", "list", "statfs", "getxattr", "listxattr", "seek", "reap", "test",
    "store", "close",
})  # fmt: skip
_MAKING = frozenset({"O_CREAT", "O_TRUNC"})


class Fairness:
    """Notes the ops of a run.  The order of options depends on it, and nothing that may happen."""

    def __init__(self) -> None:
        self._asked: Counter[tuple[object, ...]] = Counter()
        self._vain: set[tuple[str, ...]] = set()

    def note(self, event: Event) -> None:
        """An op has been performed, or a collective issued."""
        if not isinstance(event, Op) or event.result is None or not _asks(event):
            self._asked.clear()
            self._vain.clear()
            return
        answer = (*_question(event), event.result.errno, event.result.value, event.result.digest)
        self._asked[answer] += 1
        if self._asked[answer] >= _IN_VAIN:
            self._vain.add(_question(event))

    def is_vain(self, op: Op) -> bool:
        """Whether a pending op asks what its thread has asked often enough since something has changed."""
        return _question(op) in self._vain


def _question(op: Op) -> tuple[str, ...]:
    return op.thread, op.label, op.syscall


def _asks(op: Op) -> bool:
    """Whether an op changes nothing."""
    if op.call == "sleep":
        return op.args.get("nanoseconds", 0) < _PAUSE
    failed = op.result is not None and bool(op.result.errno)
    return failed or op.call in _ASKING or (op.call == "open" and _MAKING.isdisjoint(op.flags))
