"""Calls in two parts: which of them is a first or second part, and whom it keeps waiting in between."""

from __future__ import annotations

from racecheck.model.nouns import Op
from racecheck.model.ops.footprint import Footprint, Mode

FIRST, SECOND = 1, 2


def with_part(op: Op, part: int, *, locks: bool) -> dict[str, int]:
    """Return the arguments of an op that is this part of a call; it ``locks`` the file that it changes to its end."""
    return {**op.args, "part": part, "locks": int(locks)}


def part_of(op: Op) -> int:
    """Return which part of a call an op is; 0 for a whole one."""
    return op.args.get("part", 0)


def keeps_waiting(half: Op, own: Footprint, other: Footprint) -> bool:
    """Return whether an op cannot go between the two parts of a call, one of which is ``half``.

    A write holds the lock of its file, so other changes of the bytes wait, and a call that uses the offset of an open
    file holds the lock of that.
    """
    for where, mode in own.items():
        if where.kind == "offset" and where in other:
            return True
        if where.kind == "content" and half.args.get("locks") and mode is other.get(where) is Mode.WRITE:
            return True
    return False
