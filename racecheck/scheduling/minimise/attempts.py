"""How minimisation runs a world, and how that ends."""

from __future__ import annotations

import time
from collections.abc import Callable

from racecheck.model.errors import is_interrupt
from racecheck.model.nouns import Outcome, World
from racecheck.scheduling.strategies import Strategy

Attempt = Callable[[World, Strategy], Outcome]
"""Runs a world once under a strategy, which has begun already, and calls its ``end``; or raises `Spent`."""


class Spent(BaseException):
    """The budget is spent, or Ctrl-C came: there are no more runs, and the results so far count."""


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


class TimedAttempt:
    """An attempt with a deadline: it raises `Spent` instead of a run that would begin at ``end`` or later.

    ``end`` is a time of ``clock``, in seconds, and ``is_late`` says that it has passed.  Ctrl-C in a run ends all:
    ``is_interrupted`` then, and each further run raises `Spent`.
    """

    def __init__(self, attempt: Attempt, end: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._attempt, self.end, self._clock = attempt, end, clock
        self.is_interrupted = self.is_late = False

    def __call__(self, world: World, strategy: Strategy) -> Outcome:
        is_late = self._clock() >= self.end
        self.is_late |= is_late
        if self.is_interrupted or is_late:
            raise Spent
        try:
            return self._attempt(world, strategy)
        except BaseException as error:
            if not is_interrupt(error):
                raise
            self.is_interrupted = True
            raise Spent from None
