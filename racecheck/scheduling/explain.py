"""What a failing run comes down to.

The smallest world and the fewest switches with which it fails, the two ops that decide, and what makes every run fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from racecheck.model.nouns import Invariant, Outcome, Violation, World
from racecheck.scheduling import strategies
from racecheck.scheduling.minimise import (
    Attempt,
    Critical,
    CriticalPair,
    Fails,
    Failure,
    Orderings,
    Search,
    Timed,
    critical_pair,
    fewest_orderings,
    same_failure,
    shrink,
    smaller_world,
)

_PER_WORLD = 20
"""How many runs of each smaller world are tried, at most."""
MOST = 400
"""How many runs each other step makes, at most."""
_COMPLETIONS = 20
INTERRUPTED = "interrupted"

_WORLD, _SWITCHES = "a smaller world", "fewer switches"
_PAIR, _ORDERINGS = "the pair that decides", "what makes every run fail"
_ENDS = {_WORLD: 0.25, _SWITCHES: 0.6, _PAIR: 0.8, _ORDERINGS: 1.0}
"""The steps in their order, and when each has to end, as a part of the time for all: the first must not take it all."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """``outcome`` is the least run that fails as ``found`` does.

    ``runs`` is how many it took to find all this, those of other worlds left out.  ``left_out`` are the steps that were
    not finished, and ``why`` says what ended them.  ``pair`` and ``orderings`` are None if there are none, or if they
    were left out.
    """

    found: Outcome
    outcome: Outcome
    violation: Violation
    pair: CriticalPair | None
    orderings: Orderings | None
    runs: int
    left_out: tuple[str, ...] = ()
    why: str = ""


def explain(
    outcome: Outcome,
    violation: Violation,
    invariants: Sequence[Invariant],
    attempt: Attempt,
    *,
    seconds: float,
    seed: str,
    most: int = MOST,
    tell: Callable[[str], None] = lambda _: None,
) -> Explanation:
    """Minimise a failing run, and say what it owes its failure to.

    No run begins after so many ``seconds``, and none after Ctrl-C: what was found until then counts.  Each step makes
    ``most`` runs at most.  ``tell`` hears what is being done.

    Raises `CannotRun` if the run does not fail a second time.
    """
    steps = _Steps(outcome, violation, invariants, attempt, seconds, seed, most, tell)
    try:
        steps.take()
    except KeyboardInterrupt:  # between two runs
        steps.attempt.is_interrupted = True
    return steps.explanation(f"{seconds:.3g} seconds were up")


class _Steps:
    """An explanation in the making."""

    def __init__(
        self,
        outcome: Outcome,
        violation: Violation,
        invariants: Sequence[Invariant],
        attempt: Attempt,
        seconds: float,
        seed: str,
        most: int,
        tell: Callable[[str], None],
    ) -> None:
        self._found, self._invariants, self._seed, self._tell = outcome, invariants, seed, tell
        self._begun, self._seconds, self._most = time.perf_counter(), seconds, most
        self.attempt = Timed(attempt, self._begun)
        self._least, self._violation = outcome, violation
        self._critical = Critical(None, 0, cut=True)
        self._orderings: Orderings | None = None
        self._shrinking = 0
        self._done: set[str] = set()

    def take(self) -> None:
        """One step after the other."""
        fails = same_failure(self._found, self._violation, self._invariants)
        self._begin(_WORLD)
        smaller = smaller_world(self._found, self._look(fails), fails, budget=min(_PER_WORLD, self._most // 3))
        self._end(_WORLD, cut=smaller.cut)
        self._begin(_SWITCHES)
        least = shrink(smaller.outcome or self._found, self.attempt, fails, budget=self._most)
        self._least, self._violation, self._shrinking = least.outcome, least.violation, least.runs
        self._end(_SWITCHES, cut=least.cut)
        again = same_failure(self._least, self._violation, self._invariants)
        self._begin(_PAIR)
        self._critical = critical_pair(self._least, self.attempt, again, budget=self._most)
        self._end(_PAIR, cut=self._critical.cut)
        self._begin(_ORDERINGS)
        self._orderings = self._fewest(again)
        self._end(_ORDERINGS, cut=self._orderings.cut)

    def explanation(self, out_of_time: str) -> Explanation:
        """What has been found so far."""
        left_out = tuple(each for each in _ENDS if each not in self._done)
        is_late = time.perf_counter() - self._begun >= self._seconds
        why = out_of_time if is_late else f"{self._most} runs are the most"
        return Explanation(
            self._found,
            self._least,
            self._violation,
            self._critical.pair,
            self._orderings,
            self._shrinking + self._critical.runs + (self._orderings.runs if self._orderings is not None else 0),
            left_out,
            (INTERRUPTED if self.attempt.is_interrupted else why) if left_out else "",
        )

    def _begin(self, step: str) -> None:
        self._tell(f"looking for {step}")
        self.attempt.end = self._begun + _ENDS[step] * self._seconds

    def _end(self, step: str, *, cut: bool) -> None:
        if not cut:
            self._done.add(step)

    def _look(self, fails: Fails) -> Search:
        """Look for a failing run of a world."""

        def look(world: World, budget: int) -> Outcome | None:
            strategy = strategies.make(strategies.DEFAULT, world)
            for number in range(budget):
                if strategy.begin(Random(f"{self._seed}:{number}")):
                    outcome = self.attempt(world, strategy)
                    if fails(outcome) is not None:
                        return outcome
            return None

        return look

    def _fewest(self, fails: Failure) -> Orderings:
        return fewest_orderings(
            self._least, self.attempt, fails, pair=self._critical.pair, seed=self._seed, completions=_COMPLETIONS,
            budget=self._most,
        )  # fmt: skip
