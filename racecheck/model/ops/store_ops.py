"""Keys of the store, as ops show them: which were present at any time, in this order of a run or in another one.

An op on the store has a place for each of its keys, whose ``inode`` is 1 if the key was there just before the op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from racecheck.model.nouns import Op

AWAIT_KEYS = frozenset({"get", "multi_get", "wait"})
"""Operations that wait until their keys are present."""
_LOOKS = frozenset({"check", "count", "keys", *AWAIT_KEYS})


def awaits(op: Op) -> bool:
    """Return whether an op waits until its keys are present."""
    return op.call == "store" and op.syscall in AWAIT_KEYS


def could_go(op: Op, ops: Sequence[Op], later: Callable[[int], bool]) -> bool:
    """Return whether an op that waits for keys could go without those of the ``ops`` before it that are ``later``."""
    return all(_is_there(place.name, [*ops, op], later) for place in op.places)


def _is_there(key: str, ops: Sequence[Op], later: Callable[[int], bool]) -> bool:
    """Return the value that the last op on the key left, as the next one that touches it found it."""
    touching = [(index, op) for index, op in enumerate(ops) if op.call == "store" and _found(op, key) is not None]
    state = _found(touching[0][1], key)
    for (index, op), (_, following) in pairwise(touching):
        if op.syscall not in _LOOKS and not later(index):
            state = _found(following, key)
    return bool(state)


def _found(op: Op, key: str) -> bool | None:
    """Return whether a key was present before an op; None if the op is not about that key."""
    return next((bool(place.inode) for place in op.places if place.name == key), None)
