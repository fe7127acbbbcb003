"""What ops on the store say of its keys: which were there at any time, in this order of a run or in another one.

An op on the store has a place for each of its keys, whose ``inode`` is 1 if the key was there just before the op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from racecheck.model.nouns import Op

AWAIT_KEYS = frozenset({"get", "multi_get", "wait"})
"""Operations that wait until their keys are there."""
_LOOKS = frozenset({"check", "count", "keys", *AWAIT_KEYS})


def awaits(op: Op) -> bool:
    """Whether an op waits until its keys are there."""
    return op.call == "store" and op.syscall in AWAIT_KEYS


def could_go(op: Op, ops: Sequence[Op], later: Callable[[int], bool]) -> bool:
    """Whether an op that waits for keys can go when of the ``ops`` before it those have not gone that are ``later``."""
    return all(_is_there(place.name, [*ops, op], later) for place in op.places)


def _is_there(key: str, ops: Sequence[Op], later: Callable[[int], bool]) -> bool:
    """What the last op that has changed the key has left, as the next one that touches it found it."""
    touching = [(index, op) for index, op in enumerate(ops) if op.call == "store" and _found(op, key) is not None]
    state = _found(touching[0][1], key)
    for (index, op), (_, following) in pairwise(touching):
        if op.syscall not in _LOOKS and not later(index):
            state = _found(following, key)
    return bool(state)


def _found(op: Op, key: str) -> bool | None:
    """Whether a key was there before an op; None if it is not about that key."""
    return next((bool(place.inode) for place in op.places if place.name == key), None)
