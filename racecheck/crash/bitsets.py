"""Sets of small numbers as integers with a bit for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def bits(mask: int) -> Iterator[int]:
    """The numbers in a set, from the lowest."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def mask_of(numbers: Iterable[int]) -> int:
    """A set of these numbers."""
    found = 0
    for number in numbers:
        found |= 1 << number
    return found
