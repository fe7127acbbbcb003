"""The default schedule."""

from __future__ import annotations

from random import Random

from racecheck.model.nouns import Outcome, Point
from racecheck.scheduling.fairness import TURN
from racecheck.scheduling.strategies.protocol import Strategy


class Default(Strategy):
    """A thread continues as long as it can, but for `TURN` ops in a row at most: it may poll, and write as it does."""

    def __init__(self) -> None:
        self._last, self._streak = "", 0

    def begin(self, rng: Random) -> bool:
        del rng
        self._last, self._streak = "", 0
        return True

    def choose(self, point: Point) -> int:
        if point.kind != "next":
            return 0
        chosen = len(point.options) - 1 if self._streak >= TURN else 0
        thread = point.options[chosen].thread
        self._last, self._streak = thread, self._streak + 1 if thread == self._last else 1
        return chosen

    def end(self, outcome: Outcome) -> None:
        pass
