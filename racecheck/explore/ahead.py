"""A proof on several processors: workers make runs of the parts that are left, before their turn.

The proof itself stays where it is, and goes on in its order.  When the turn of a run comes that a worker has made, the
strategy is asked at each of its points; only if it chooses the same each time, the run is taken.  So no choice of a
part, and no loss of one, can change the result.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence

from racecheck.explore.requests import RunRequest
from racecheck.explore.runs.runs import Runs
from racecheck.explore.runs.tasks import Made, Part, Subtrees
from racecheck.model.nouns import Outcome
from racecheck.scheduling.strategies import Strategy
from racecheck.scheduling.strategies.protocol import Path

_SECONDS = 0.2
"""How long a worker makes runs of parts before it sends them, and the rest is distributed."""
_PARTS = 4
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
        self._given: dict[int, Sequence[Part]] = {}
        self._left: dict[Path, Strategy] = {}
        """Parts that workers have met, and that nobody has begun."""
        self._numbers = itertools.count(-1, -1)
        self.taken = 0
        """How many runs of workers were taken."""

    def offer(self, strategy: Strategy, most: int) -> None:
        """Give workers the next parts of a proof; ``most`` is how many runs it may still have."""
        self._gather(strategy)
        if len(self._made) >= min(most, _MOST):
            return
        room = self._runs.room
        parts = [*itertools.islice(self._next(strategy), room * _PARTS)]
        are_few = len(parts) < room * _PARTS
        for _ in range(room):
            size = 1 if are_few else _PARTS
            given, parts = parts[:size], parts[size:]
            if given:
                self._give([part for _, part in given], given[0][0], 0.0 if are_few else _SECONDS)

    def _gather(self, strategy: Strategy) -> None:
        """Take the results that are there, and forget those whose turn has passed."""
        for number in [each for each in self._given if self._runs.is_done(each)]:
            self._add(number)
        self._made = {path: each for path, each in self._made.items() if strategy.may_come(path)}
        self._left = {path: each for path, each in self._left.items() if strategy.may_come(path)}

    def _next(self, strategy: Strategy) -> Iterator[tuple[int, Part]]:
        """Return the parts that nobody has begun, those first whose turn is soon, and how soon that is."""
        of_proof = strategy.subtrees()
        now, _ = next(of_proof, ((), strategy))  # that part begins here
        known = {now, *self._made, *(path for parts in self._given.values() for path, _ in parts)}
        left = sorted(self._left.items(), key=lambda each: -_common(each[0], now))
        for path, part in heapq.merge(left, of_proof, key=lambda each: -_common(each[0], now)):
            if path not in known:
                known.add(path)
                yield _common(path, now), (path, part)

    def _give(self, parts: Sequence[Part], soon: int, seconds: float) -> int:
        number = next(self._numbers)
        self._given[number] = parts
        for path, _ in parts:
            self._left.pop(path, None)
        self._runs.submit(number, Subtrees(self._request(parts[0][1]), parts, seconds), soon)
        return number

    def take(self, strategy: Strategy, most: int) -> Outcome | None:
        """Return the run that has begun, if a worker has made it or is about to."""
        path = strategy.path
        self._left.pop(path, None)
        while path not in self._made and (number := self._holder(path)) is not None:
            if self._runs.withdraw(number):
                self._left |= (each for each in self._given.pop(number) if each[0] != path)
            elif self._runs.is_done(number):
                self._add(number)
            else:
                self._help(strategy)
                self.offer(strategy, most)
        made = self._made.pop(path, None)
        if made is None or not strategy.takes(made.points):
            return None
        self.taken += 1
        return made.outcome

    def _holder(self, path: Path) -> int | None:
        """Return the number of a task whose parts contain a path."""
        found = (number for number, parts in self._given.items() if any(_starts(path, root) for root, _ in parts))
        return next(found, None)

    def _help(self, strategy: Strategy) -> None:
        """Make a run of another part, or wait for a worker if none is known."""
        found = next(self._next(strategy), None)
        if found is None:
            self._runs.wait()
        else:
            soon, part = found
            self._add(self._give([part], soon, 0.0))

    def _add(self, number: int) -> None:
        """Take the runs of a task, and note the parts that are left."""
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


def _starts(path: Path, root: Path) -> bool:
    return path[: len(root)] == root
