"""Follow an order of ops as closely as possible, also if some of them have changed or do not come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

from racecheck.model.nouns import Event, Op, Point
from racecheck.scheduling.strategies.protocol import Strategy

Turn = tuple[str, int]
"""A thread, and the number (from 1) of its op whose turn it is."""


class Guided(Strategy):
    """The first thread whose turn is next, of those that can go; when no turns are left, the default."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = turns

    def begin(self, rng: Random) -> bool:
        del rng
        self._done: Counter[str] = Counter()
        self._seen = self._first = 0
        return True

    def choose(self, point: Point) -> int:
        self._done.update(event.thread for event in point.trace[self._seen :] if isinstance(event, Op))
        self._seen = len(point.trace)
        while self._first < len(self._turns) and not self._is_to_come(self._turns[self._first]):
            self._first += 1
        able = [option.thread for option in point.options]
        for turn in self._turns[self._first :]:
            if turn[0] in able and self._is_to_come(turn):
                return able.index(turn[0])
        return 0

    def _is_to_come(self, turn: Turn) -> bool:
        return turn[1] > self._done[turn[0]]


def turns(trace: Iterable[Event]) -> list[Turn]:
    """Return the order in which the ops of a run went."""
    counts: Counter[str] = Counter()
    found: list[Turn] = []
    for event in trace:
        if isinstance(event, Op):
            counts[event.thread] += 1
            found.append((event.thread, counts[event.thread]))
    return found
