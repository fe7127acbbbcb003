"""Smallest hitting sets: as few items as possible so that each of some sets has one."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import TypeVar

_Member = TypeVar("_Member", bound=Hashable)


def smallest_hitting_set(
    sets: Collection[frozenset[_Member]], items: Sequence[_Member], most: int
) -> frozenset[_Member] | None:
    """Return one of the smallest, preferring earlier items; None if it would take more than ``most``."""
    least = sorted({each for each in sets if not any(other < each for other in sets)}, key=len)
    for size in range(most + 1):
        found = _hit(least, items, size)
        if found is not None:
            return found
    return None


def _hit(sets: Sequence[frozenset[_Member]], items: Sequence[_Member], size: int) -> frozenset[_Member] | None:
    """Return ``most`` items, or fewer: one of the first set, and items that hit the sets that it does not hit."""
    if not sets:
        return frozenset()
    if not size:
        return None
    for item in items:
        if item in sets[0]:
            rest = _hit([each for each in sets if item not in each], items, size - 1)
            if rest is not None:
                return rest | {item}
    return None
