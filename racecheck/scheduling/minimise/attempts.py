"""How those who minimise run a world, and how that ends."""

from __future__ import annotations

from collections.abc import Callable

from racecheck.model.nouns import Outcome, World
from racecheck.scheduling.strategies import Strategy

Attempt = Callable[[World, Strategy], Outcome]
"""Runs a world once under a strategy, which has begun already, and calls its ``end``; or raises `Spent`."""


class Spent(BaseException):
    """Time is up, or somebody has had enough: there are no more runs, and what has been found so far counts."""


class Counted:
    """An attempt that counts its ``runs``, and raises `Spent` instead of making more than ``budget``."""

    def __init__(self, attempt: Attempt, budget: int) -> None:
        self._attempt, self._budget = attempt, budget
        self.runs = 0

    def __call__(self, world: World, strategy: Strategy) -> Outcome:
        if self.runs >= self._budget:
            raise Spent
        self.runs += 1
        return self._attempt(world, strategy)
