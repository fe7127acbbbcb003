"""Choices from a list of numbers.  Any change of the list is again a list that can be run."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from racecheck.model.nouns import Point
from racecheck.scheduling.strategies.protocol import Strategy


class Tape(Strategy):
    """The n-th choice is the tape's n-th index; where that option does not exist, and after the end, the default."""

    def __init__(self, indices: Sequence[int]) -> None:
        self._indices = indices
        self._at = 0

    def begin(self, rng: Random) -> bool:
        del rng
        self._at = 0
        return True

    def choose(self, point: Point) -> int:
        index = self._indices[self._at] if self._at < len(self._indices) else 0
        self._at += 1
        return index if index < len(point.options) else 0
