"""Explain a failing run.

The smallest world and the fewest switches with which it fails, the two ops that decide, and the orderings that make
every run fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from racecheck.invariants import judge
from racecheck.model.nouns import Invariant, Outcome, Violation, World
from racecheck.scheduling import strategies
from racecheck.scheduling.minimise import (
    Attempt,
    Critical,
    CriticalPair,
    FindRun,
    Flip,
    Orderings,
    Spent,
    TimedAttempt,
    critical_pair,
    fewest_orderings,
    same_failure,
    shrink,
    smaller_world,
)

_PER_WORLD = 20
"""The most runs of each smaller world."""
MOST = 400
"""The most runs of each other step."""
_COMPLETIONS = 20
_EVERY = 100
"""The most runs for a proof that orderings make every interleaving fail."""
INTERRUPTED = "interrupted"

WORLD, SWITCHES = "a smaller world", "fewer switches"
PAIR, _ORDERINGS = "the critical pair", "the fewest orderings"
_ENDS = {WORLD: 0.25, SWITCHES: 0.6, PAIR: 0.8, _ORDERINGS: 1.0}
"""The steps in their order, and when each has to end, as a part of the whole time: the first must not take all."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """``outcome`` is the least run that fails as ``found`` does.

    ``runs`` is how many it took to find all this, those of other worlds left out.  ``left_out`` are the steps that were
    not finished, and ``why`` says why they ended.  ``pair`` and ``orderings`` are None if there are none, or if they
    were left out; ``others`` are the runs of the pairs that were tried in vain, and ``is_killed`` says that none was.
    ``agreeing`` is how many runs with clocks that agree were made, none of which fails like this.
    """

    found: Outcome
    outcome: Outcome
    violation: Violation
    pair: CriticalPair | None
    orderings: Orderings | None
    runs: int
    left_out: tuple[str, ...] = ()
    why: str = ""
    others: tuple[Flip, ...] = ()
    is_killed: bool = False
    agreeing: int = 0


def explain(
    outcome: Outcome,
    violation: Violation,
    invariants: Sequence[Invariant],
    attempt: Attempt,
    *,
    seconds: float,
    seed: str,
    passed: Sequence[Outcome] = (),
    most: int = MOST,
    tell: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Explanation:
    """Minimise a failing run, and find the causes of the failure.

    No run begins after ``seconds`` of ``clock``, and none after Ctrl-C: the results until then count.  Each step
    makes ``most`` runs at most.  ``passed`` are runs that are known to pass.  ``tell`` hears of the progress.

    Raises `CannotRun` if the run does not fail a second time.
    """
    timed = TimedAttempt(attempt, 0.0, clock)
    steps = _ExplanationInTheMaking(outcome, violation, invariants, timed, seconds, seed, passed, most, tell, clock())
    try:
        steps.take()
    except KeyboardInterrupt:  # between two runs
        steps.attempt.is_interrupted = True
    return steps.explanation()


@dataclass(slots=True)
class _ExplanationInTheMaking:
    """An explanation in the making: ``least`` is the best run so far, and ``done`` are the completed steps."""

    found: Outcome
    violation: Violation
    invariants: Sequence[Invariant]
    attempt: TimedAttempt
    seconds: float
    seed: str
    passed: Sequence[Outcome]
    most: int
    tell: Callable[[str], None]
    begun: float
    least: Outcome | None = None
    critical: Critical = field(default_factory=lambda: Critical(None, 0, cut=True))
    orderings: Orderings | None = None
    shrinking: int = 0
    agreeing: int = 0
    done: set[str] = field(default_factory=set)

    def take(self) -> None:
        """Do one step after the other."""
        fails = same_failure(self.found, self.violation, self.invariants)
        self._begin(WORLD)
        budget, passing = min(_PER_WORLD, self.most // 3), self._look(self._holds)
        try:
            is_race = bool(self._of(self.found.world) or passing(self.found.world, budget))
        except Spent:
            is_race = True
        smaller = smaller_world(
            self.found, self._look(fails), fails, budget=budget, passing=passing if is_race else None
        )  # fmt: skip
        self.agreeing = smaller.agreeing
        self._end(WORLD, cut=smaller.cut)
        self._begin(SWITCHES)
        shrunk = shrink(smaller.outcome or self.found, self.attempt, fails, budget=self.most)
        self.least = least = shrunk.outcome
        self.violation, self.shrinking = shrunk.violation, shrunk.runs
        self._end(SWITCHES, cut=shrunk.cut)
        again = same_failure(least, self.violation, self.invariants)
        self._begin(PAIR)
        self.critical = critical_pair(least, self.attempt, again, budget=self.most)
        self._end(PAIR, cut=self.critical.cut)
        self._begin(_ORDERINGS)
        self.orderings = fewest_orderings(
            least, self.attempt, again, passed=self._passing(least), seed=self.seed, completions=_COMPLETIONS,
            budget=self.most, every=min(self.most, _EVERY),
        )  # fmt: skip
        self._end(_ORDERINGS, cut=self.orderings.cut)

    def _passing(self, least: Outcome) -> list[Outcome]:
        """Return the runs of its world that are known to pass."""
        pair = self.critical.pair
        return [*self._of(least.world), *([pair.neighbour] if pair else [])]

    def _of(self, world: World) -> list[Outcome]:
        """Return the runs of a world that are known to pass."""
        return [each for each in self.passed if each.world == world]

    def explanation(self) -> Explanation:
        """Return the results so far."""
        left_out = tuple(each for each in _ENDS if each not in self.done)
        ordering = self.orderings.runs if self.orderings is not None else 0
        return Explanation(
            found=self.found,
            outcome=self.least or self.found,
            violation=self.violation,
            pair=self.critical.pair,
            others=self.critical.others,
            is_killed=self.critical.is_killed,
            agreeing=self.agreeing,
            orderings=self.orderings,
            runs=self.shrinking + self.critical.runs + ordering,
            left_out=left_out,
            why=self._why() if left_out else "",
        )

    def _why(self) -> str:
        """Return why the steps that are not completed ended."""
        if self.attempt.is_interrupted:
            return INTERRUPTED
        return f"{self.seconds:.3g} seconds were too few" if self.attempt.is_late else f"{self.most} runs were too few"

    def _begin(self, step: str) -> None:
        self.tell(f"looking for {step}")
        self.attempt.end = self.begun + _ENDS[step] * self.seconds

    def _end(self, step: str, *, cut: bool) -> None:
        if not cut:
            self.done.add(step)

    def _holds(self, outcome: Outcome) -> bool:
        """Return whether a run breaks no invariant; a fault may have killed its ranks all the same."""
        return not judge(outcome, self.invariants).violations

    def _look(self, is_wanted: Callable[[Outcome], object]) -> FindRun:
        """Look for a certain run of a world."""

        def look(world: World, budget: int) -> Outcome | None:
            strategy = strategies.make(strategies.DEFAULT, world)
            for number in range(budget):
                if strategy.begin(Random(f"{self.seed}:{number}")):
                    outcome = self.attempt(world, strategy)
                    if is_wanted(outcome):
                        return outcome
            return None

        return look
