"""Ranks take turns, op by op: the one schedule in which everybody is always at the same place."""

from __future__ import annotations

from random import Random

from racecheck.model.nouns import Point
from racecheck.scheduling.strategies.protocol import Strategy


class RoundRobin(Strategy):
    """One run, and then it is exhausted; the schedule that puts check-then-act side by side."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}
        self._done = False

    def begin(self, rng: Random) -> bool:
        del rng
        again, self._done, self._turns = not self._done, True, {}
        return again

    def choose(self, point: Point) -> int:
        index = min(
            range(len(point.options)),
            key=lambda each: (self._turns.get(point.options[each].thread, 0), point.options[each].thread),
        )
        thread = point.options[index].thread
        self._turns[thread] = self._turns.get(thread, 0) + 1
        return index
