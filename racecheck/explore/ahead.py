"""A proof on several processors: workers make runs of the subtrees that are left, before their turn.

The proof itself stays where it is, and goes on in its order.  When the turn of a run comes that a worker has made, the
strategy is asked at each of its points; only if it chooses the same each time, the run is taken.  So no choice of a
subtree, and no loss of one, can change the result.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from racecheck.explore.requests import RunRequest
from racecheck.explore.runs.runs import Runs
from racecheck.explore.runs.tasks import Made, MakeSubtrees, Subtree
from racecheck.model.nouns import Outcome
from racecheck.scheduling.strategies import Strategy
from racecheck.scheduling.strategies.protocol import Prefix

_SECONDS = 0.2
"""How long a worker makes runs of subtrees before it sends them, and the rest is distributed."""
_AT_ONCE = 4
"""How many subtrees a worker gets at once: many have one run."""
_MOST = 512
"""How many runs that workers have made may wait for their turn."""


@dataclass(slots=True)
class _Reach:
    """How far a depth-first search has come back from the ends of its runs, and how far it is expected to come.

    The number of runs below a node is assumed to grow exponentially with its distance from the end: if n runs came back
    k steps, m more are expected to come back k * log(m) / log(n).
    """

    runs: int = 0
    deepest: int = 0
    shallowest: int = 0

    def note(self, prefix: Prefix) -> None:
        """Note the turn of a run."""
        self.runs += 1
        depth = len(prefix)
        if depth:  # the first run has no prefix
            self.deepest = max(self.deepest, depth)
            self.shallowest = min(self.shallowest or depth, depth)

    def includes(self, depth: int, most: int) -> bool:
        """Return whether the next ``most`` runs are expected to come back to a node ``depth`` steps from the root."""
        if not self.deepest:
            return True
        steps = self.deepest - self.shallowest + 1
        return self.deepest - depth <= steps * math.log(most + 1) / math.log(self.runs + 1)


class Ahead:
    """The subtrees that workers have, and the runs that they have made.

    ``request`` returns the request for a run of a strategy.  The numbers of these tasks are negative.
    """

    def __init__(self, runs: Runs, request: Callable[[Strategy], RunRequest]) -> None:
        self._runs, self._request = runs, request
        self._made: dict[Prefix, Made] = {}
        self._given: dict[int, Sequence[Subtree]] = {}
        self._left: dict[Prefix, Strategy] = {}
        """Subtrees that workers have met, and that nobody has begun."""
        self._reach = _Reach()
        self._numbers = itertools.count(-1, -1)
        self.taken = 0
        """How many runs of workers were taken."""

    def offer(self, strategy: Strategy, most: int) -> None:
        """Give workers the next subtrees of a proof; ``most`` is how many runs it may still have."""
        self._gather(strategy)
        if len(self._made) >= min(most, _MOST):
            return
        room = self._runs.room
        subtrees = [*itertools.islice(self._next(strategy, most), room * _AT_ONCE)]
        are_few = len(subtrees) < room * _AT_ONCE
        for _ in range(room):
            size = 1 if are_few else _AT_ONCE
            given, subtrees = subtrees[:size], subtrees[size:]
            if given:
                self._give([subtree for _, subtree in given], given[0][0], 0.0 if are_few else _SECONDS)

    def _gather(self, strategy: Strategy) -> None:
        """Take the results that are there, and forget those whose turn has passed."""
        for number in [each for each in self._given if self._runs.is_done(each)]:
            self._add(number)
        self._made = {prefix: each for prefix, each in self._made.items() if strategy.may_come(prefix)}
        self._left = {prefix: each for prefix, each in self._left.items() if strategy.may_come(prefix)}

    def _next(self, strategy: Strategy, most: int) -> Iterator[tuple[int, Subtree]]:
        """Return the subtrees that nobody has begun, those first whose turn is soon, and how soon that is.

        Subtrees whose turn is not expected within ``most`` runs are left out.
        """
        of_proof = strategy.subtrees()
        now, _ = next(of_proof, ((), strategy))  # that subtree begins here
        known = {now, *self._made, *(prefix for subtrees in self._given.values() for prefix, _ in subtrees)}
        left = sorted(self._left.items(), key=lambda each: -_common(each[0], now))
        for prefix, subtree in heapq.merge(left, of_proof, key=lambda each: -_common(each[0], now)):
            soon = _common(prefix, now)
            if not self._reach.includes(soon, most):
                return
            if prefix not in known:
                known.add(prefix)
                yield soon, (prefix, subtree)

    def _give(self, subtrees: Sequence[Subtree], soon: int, seconds: float) -> int:
        number = next(self._numbers)
        self._given[number] = subtrees
        for prefix, _ in subtrees:
            self._left.pop(prefix, None)
        self._runs.submit(number, MakeSubtrees(self._request(subtrees[0][1]), subtrees, seconds), soon)
        return number

    def take(self, strategy: Strategy, most: int) -> Outcome | None:
        """Return the run that has begun, if a worker has made it or is about to."""
        prefix = strategy.prefix
        self._reach.note(prefix)
        self._left.pop(prefix, None)
        while prefix not in self._made and (number := self._holder(prefix)) is not None:
            if self._runs.withdraw(number):
                self._left |= (each for each in self._given.pop(number) if each[0] != prefix)
            elif self._runs.is_done(number):
                self._add(number)
            else:
                self._help(strategy, most)
                self.offer(strategy, most)
        made = self._made.pop(prefix, None)
        if made is None or not strategy.takes(made.points):
            return None
        self.taken += 1
        return made.outcome

    def _holder(self, prefix: Prefix) -> int | None:
        """Return the number of a task with the subtree of a prefix."""
        for number, subtrees in self._given.items():
            if any(_starts(prefix, root) for root, _ in subtrees):
                return number
        return None

    def _help(self, strategy: Strategy, most: int) -> None:
        """Make a run of another subtree, or wait for a worker if none is known."""
        found = next(self._next(strategy, most), None)
        if found is None:
            self._runs.wait()
        else:
            soon, subtree = found
            self._add(self._give([subtree], soon, 0.0))

    def _add(self, number: int) -> None:
        """Take the runs of a task, and note the subtrees that are left."""
        made, left = self._runs.result(number)
        del self._given[number]
        self._made |= {each.prefix: each for each in made}
        self._left |= left

    def drop(self) -> None:
        """Forget all: the runs to come are of another kind."""
        self._made.clear()
        self._given.clear()
        self._left.clear()
        self._reach = _Reach()


def _common(prefix: Prefix, other: Prefix) -> int:
    """Return how many steps two prefixes have in common; the more, the sooner is the turn of one after the other."""
    return sum(1 for _ in itertools.takewhile(lambda each: each[0] == each[1], zip(prefix, other, strict=False)))


def _starts(prefix: Prefix, root: Prefix) -> bool:
    return prefix[: len(root)] == root
