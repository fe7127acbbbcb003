"""What a failing run comes down to.

The smallest world and the fewest switches with which it fails, the two ops that decide, and what makes every run fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from racecheck.model.nouns import Invariant, Outcome, Violation
from racecheck.scheduling.minimise import (
    Attempt,
    CriticalPair,
    Orderings,
    Search,
    critical_pair,
    fewest_orderings,
    same_failure,
    shrink,
    smaller_world,
)

_PER_WORLD = 20
"""How many runs of each smaller world are tried, at most."""
_COMPLETIONS = 50


@dataclass(frozen=True, slots=True)
class Explanation:
    """``outcome`` is the least run that fails as ``found`` does.

    ``runs`` is how many it took to find all this, those of other worlds left out.  ``orderings`` is None if they were
    not looked for, and ``cut`` says that not all was tried.
    """

    found: Outcome
    outcome: Outcome
    violation: Violation
    pair: CriticalPair | None
    orderings: Orderings | None
    runs: int
    cut: bool


def explain(
    outcome: Outcome,
    violation: Violation,
    invariants: Sequence[Invariant],
    attempt: Attempt,
    search: Search,
    *,
    budget: int,
    seed: str,
    tell: Callable[[str], None] = lambda _: None,
) -> Explanation:
    """Minimise a failing run, and say what it owes its failure to.

    Each step takes ``budget`` runs at most; with less than 100 the orderings are not looked for.  ``tell`` hears what
    is being done.

    Raises `CannotRun` if the run does not fail a second time.
    """
    fails = same_failure(outcome, violation, invariants)
    tell("looking for it in a smaller world")
    smaller = smaller_world(outcome, search, fails, budget=min(_PER_WORLD, budget // 3))
    tell("minimising")
    least = shrink(smaller.outcome or outcome, attempt, fails, budget=budget)
    again = same_failure(least.outcome, least.violation, invariants)
    tell("looking for the pair of ops that decides")
    critical = critical_pair(least.outcome, attempt, again, budget=budget)
    orderings = None
    if budget >= 2 * _COMPLETIONS:
        tell("looking for what makes every run fail")
        orderings = fewest_orderings(
            least.outcome, attempt, again, pair=critical.pair, seed=seed, completions=_COMPLETIONS, budget=budget
        )
    return Explanation(
        found=outcome,
        outcome=least.outcome,
        violation=least.violation,
        pair=critical.pair,
        orderings=orderings,
        runs=least.runs + critical.runs + (orderings.runs if orderings is not None else 0),
        cut=least.cut or critical.cut or orderings is None,
    )
