"""A proof on several processors: workers make runs of the parts that are left, before their turn.

The proof itself stays where it is, and goes on in its order.  When the turn of a run comes that a worker has made, the
strategy is asked at each of its points; only if it chooses the same each time, the run is taken.  So no choice of a
part, and no loss of one, can change the result.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator

from racecheck.explore.requests import RunRequest
from racecheck.explore.runs.runs import Runs
from racecheck.explore.runs.tasks import Made, Part, Subtrees
from racecheck.model.nouns import Outcome
from racecheck.scheduling.strategies import Strategy
from racecheck.scheduling.strategies.protocol import Path

_SECONDS = 0.5
"""How long a worker makes runs of parts before it sends them, and the rest is distributed."""
_PARTS = 2
"""How many parts a worker gets at once: many have one run."""
_MOST = 512
"""How many runs that workers have made may wait for their turn."""


class Ahead:
    """The parts that workers have, and the runs that they have made.

    ``request`` returns the request for a run of a strategy.  The numbers of these tasks are negative.
    """

    def __init__(self, runs: Runs, request: Callable[[Strategy], RunRequest]) -> None:
        self._runs, self._request = runs, request
        self._made: dict[Path, Made] = {}
        self._given: dict[int, list[Path]] = {}
        self._left: dict[Path, Strategy] = {}
        """Parts of parts, that workers have not begun."""
        self._numbers = itertools.count(-1, -1)
        self.taken = 0
        """How many runs of workers were taken."""

    def offer(self, strategy: Strategy, most: int) -> None:
        """Give workers the next parts of a proof; ``most`` is how many runs it may still have."""
        for number in [each for each in self._given if self._runs.is_done(each)]:
            self._add(number)
        room = self._runs.room if len(self._made) < min(most, _MOST) else 0
        now = strategy.path
        parts = self._next(strategy, now)
        for _ in range(room):
            given = [*itertools.islice(parts, _PARTS)]
            if given:
                self._give(given, _common(given[0][0], now))

    def _give(self, parts: list[Part], cost: int) -> None:
        number = next(self._numbers)
        self._given[number] = [path for path, _ in parts]
        for path, _ in parts:
            self._left.pop(path, None)
        self._runs.submit(number, Subtrees(self._request(parts[0][1]), parts, _SECONDS), cost)

    def _next(self, strategy: Strategy, now: Path) -> Iterator[Part]:
        """Return the parts that nobody has begun, those first whose turn is soon."""
        known = {*itertools.chain(*self._given.values()), *self._made}
        left = sorted(self._left.items(), key=lambda each: -_common(each[0], now))
        of_proof = itertools.islice(strategy.subtrees(), 1, None)  # the first one begins here now
        for path, part in heapq.merge(left, of_proof, key=lambda each: -_common(each[0], now)):
            if path not in known:
                known.add(path)
                yield path, part

    def take(self, strategy: Strategy) -> Outcome | None:
        """Return the run that has begun, if a worker has made it or is about to."""
        path = strategy.path
        self._left.pop(path, None)
        for number in [each for each, roots in self._given.items() if any(path[: len(r)] == r for r in roots)]:
            if path not in self._made and self._runs.withdraw(number):
                del self._given[number]
            elif path not in self._made:
                self._add(number)
        made = self._made.pop(path, None)
        if made is None or not strategy.takes(made.points):
            return None
        self.taken += 1
        return made.outcome

    def _add(self, number: int) -> None:
        """Take a worker's runs, and note the parts that it has left."""
        made, left = self._runs.result(number)
        del self._given[number]
        self._made |= {each.path: each for each in made}
        self._left |= left

    def drop(self) -> None:
        """Forget all: the runs to come are of another kind."""
        self._made.clear()
        self._given.clear()
        self._left.clear()


def _common(path: Path, other: Path) -> int:
    """Return how many steps two paths have in common; the more, the sooner is the turn of one after the other."""
    return sum(1 for _ in itertools.takewhile(lambda each: each[0] == each[1], zip(path, other, strict=False)))
