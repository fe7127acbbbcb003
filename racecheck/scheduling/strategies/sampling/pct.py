"""Strictly by priority, with a few changes of priority: probabilistic concurrency testing.

Burckhardt, Kothari, Musuvathi, Nagarakatte: "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs",
ASPLOS 2010.  Threads begin with random priorities.  At depth - 1 random places the thread that has just been chosen
falls below all that have not fallen, to a level that belongs to the place.  A bug has depth d if d orderings of two ops
are enough to bring it about; with n threads and k places each run does so with probability 1/(n * k^(d-1)) at least.

The paper counts every step of every thread as a place.  Here the places are the points of the run, and for each thread
the moment at which it is first seen: a thread that continues because no other can would do so with any priority, so to
fall after its last choice is as good.  Of two things the bound does not speak: orderings of ops inside of sections that
one lock guards (a thread that has fallen in there may continue, because the others wait for the lock), and polls (a
thread that polls falls below all others each time, so that they continue).
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from racecheck.model.errors import UsageError
from racecheck.model.nouns import Op, Outcome, Point
from racecheck.scheduling.claims import Claim
from racecheck.scheduling.happens_before import yields
from racecheck.scheduling.strategies.sampling.rounds import Learner


class PCT(Learner[int]):
    """Hits bugs that need one thread far behind the others; raises `UsageError` for a depth below 1.

    How many threads and places there are is learnt from the runs, in rounds; the first one has no changes of priority.
    """

    def __init__(self, depth: int) -> None:
        if depth < 1:
            raise UsageError(f"depth must be at least 1, not {depth}")
        super().__init__()
        self._depth = depth
        self._places = self._runs = 0
        self._met = (0, 0)
        """The most threads and places that a run has had; ``_places`` is the number that a run draws from."""
        self._going = False
        self._aside: set[str] = set()

    def begin(self, rng: Random) -> bool:
        self._rng, self._going = rng, True
        self._priorities: dict[str, float] = {}
        self._yielding: set[str] = set()
        self._place = self._lowest = 0
        self._levels: dict[int, int] = {}
        for level in range(self._depth - 1, 0, -1):
            if self._places:
                self._levels[rng.randrange(self._places)] = level
        return True

    def choose(self, point: Point) -> int:
        for option in point.options:
            self._meet(option)
        threads = [option.thread for option in point.options]
        chosen = max(threads, key=lambda each: self._priorities[each])
        self._pass(chosen)
        self._yielding.discard(chosen)
        return threads.index(chosen)

    def _meet(self, option: Op) -> None:
        thread = option.thread
        if thread not in self._priorities:
            self._priorities[thread] = self._depth + self._rng.random()
            self._pass(thread)
        if yields(option) and thread not in self._yielding:
            self._yielding.add(thread)
            self._lowest -= 1
            self._priorities[thread] = self._lowest

    def _pass(self, thread: str) -> None:
        """Add a place at which this thread may have to fall."""
        level = self._levels.get(self._place)
        if level is not None:
            self._priorities[thread] = min(level, self._priorities[thread])
        self._place += 1

    def end(self, outcome: Outcome) -> None:
        """Learn from a run, which may be another strategy's.

        What was drawn from fewer places than there are had not the probability that is claimed: it does not count.
        """
        ops = (*outcome.ops, *outcome.pending)
        self._aside |= {"polls" if yields(op) else "locks" for op in ops if yields(op) or op.call == "flock"}
        threads = len({op.thread for op in ops})
        places = len(outcome.schedule) + threads
        if threads > self._met[0] or places > self._met[1]:
            self._met = max(threads, self._met[0]), max(places, self._met[1])
            self._runs = 0
        elif self._going and self._places == self._met[1]:
            self._runs += 1
        self._going = False
        self.learn(self.rounds.add(places))

    def learn(self, lessons: Iterable[int]) -> None:
        self._places = max((self._places, *lessons))

    def claim(self) -> Claim:
        return Claim(remarks=(self._odds(),) if self._runs and self._met[0] else ())

    def _odds(self) -> str:
        """Return the probability that a bug of the depth is hit."""
        (n, k), changes = self._met, self._depth - 1
        formula = {0: "1/n", 1: "1/(n*k)"}.get(changes, f"1/(n*k^{changes})")
        numbers = formula.replace("n", str(n)).replace("k", str(k))
        hit = 1 / (n * k**changes)
        aside = f" (except for {' and '.join(sorted(self._aside))})" if self._aside else ""
        return (
            f"a bug of depth {self._depth}{aside} is hit with probability at least {formula} = {numbers} = {hit:.2g} "
            f"in each run, and {1 - (1 - hit) ** self._runs:.2g} in {self._runs} runs"
        )
