"""Sets of small numbers, as integers with one bit per number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers in a set, in ascending order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def mask_of(numbers: Iterable[int]) -> int:
    """Return the set of these numbers."""
    found = 0
    for number in numbers:
        found |= 1 << number
    return found
