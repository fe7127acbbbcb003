"""Rounds: samplers learn from runs with a delay, so that a run can be drawn before the ones before it have ended.

The first run counts at once.  After it come rounds: the lessons of a round count from the end of the round
after it.  So the runs of two rounds follow from nothing but what is known when the first of them begins, and several
processes can make them (`Strategy.ahead`); with one process they are the same.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable
from random import Random
from typing import Generic, TypeVar

from racecheck.scheduling.strategies.protocol import Strategy

T = TypeVar("T")

ROUND = 16
"""Runs in a round."""


class Rounds(Generic[T]):
    """The lessons of the runs of two rounds, which do not count yet."""

    def __init__(self) -> None:
        self._runs = 0
        self._due: list[T] = []
        self._later: list[T] = []

    def add(self, lesson: T) -> list[T]:
        """Take the lesson of one more run; return the lessons that count from now on."""
        self._runs += 1
        if self._runs == 1:
            return [lesson]
        self._later.append(lesson)
        return [] if (self._runs - 1) % ROUND else self.end()

    def end(self) -> list[T]:
        """End the round; return the lessons that count from now on."""
        due, self._due, self._later = self._due, self._later, []
        return due

    def until(self, runs: int) -> int | None:
        """Return how many rounds end before the run that comes ``runs`` runs from now.

        None: that run depends on runs that have not ended.
        """
        if not self._runs:
            return 0 if runs == 0 else None
        ends = ((self._runs - 1) % ROUND + runs) // ROUND
        return ends if ends <= 1 else None


class Learner(Strategy, Generic[T]):
    """A sampler that learns in rounds: its ``end`` adds a lesson to ``rounds``, and learns those that are due."""

    def __init__(self) -> None:
        self.rounds: Rounds[T] = Rounds()

    @abstractmethod
    def learn(self, lessons: Iterable[T]) -> None:
        """Let lessons count."""

    def ahead(self, runs: int, rng: Random) -> Strategy | None:
        ends = self.rounds.until(runs)
        if ends is None:
            return None
        run = copy.deepcopy(self)
        for _ in range(ends):
            run.learn(run.rounds.end())
        run.begin(rng)
        return run
