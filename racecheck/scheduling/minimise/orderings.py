"""The fewest orderings of two ops with which all runs that are tried fail.

A failing run is one of many.  Their common part is for people to understand, and can be replayed
when the code has changed.  The candidates are the races of the run: where all of them are kept, a run is equivalent.

A run that passes although some orderings were kept shows that one more is needed, of those that it did not keep.  So
the next to try are always the fewest of which no passing run so far has kept all: a smallest hitting set.  Once they
fail every time, no smaller set could do: each of those was kept by some run that passed.  (The scheme is that of
Davies, Bacchus: "Solving MAXSAT by Solving a Sequence of Simpler SAT Instances", CP 2011.)

Random runs are samples.  Where DPOR covers all interleavings in a few runs, these decide instead (`every`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from racecheck.model.nouns import Constraint, Outcome, World
from racecheck.scheduling.minimise.attempts import Attempt, Counted, Spent
from racecheck.scheduling.minimise.critical import races
from racecheck.scheduling.minimise.failure import Fails
from racecheck.scheduling.minimise.hitting_set import smallest_hitting_set
from racecheck.scheduling.minimise.interleavings import Interleavings, broken, interleavings, names
from racecheck.scheduling.strategies.following.constrained import Constrained

_MOST = 6
"""More orderings than these say less to a person than the run itself."""


@dataclass(frozen=True, slots=True)
class Orderings:
    """``failed`` of ``completions`` random runs that kept the constraints failed.

    All of them did if ``why`` is ""; else it says why there is nothing better.  If even without any constraint every
    run that was tried failed, there are none.  ``proof``: of how many interleavings that is known, "" if only of the
    random runs.  ``cut``: the budget was spent before all had been tried.
    """

    constraints: tuple[Constraint, ...]
    failed: int
    completions: int
    runs: int
    why: str = ""
    cut: bool = False
    proof: str = ""


def fewest_orderings(
    outcome: Outcome,
    attempt: Attempt,
    fails: Fails,
    *,
    passed: Sequence[Outcome] = (),
    seed: str = "0",
    completions: int = 50,
    budget: int = 500,
    every: int = 0,
) -> Orderings:
    """Find the orderings that a failing run's failure depends on.

    ``passed`` are runs of the same world that are known not to fail so: one of the orderings is one that they do not
    keep.  ``budget`` is in runs, ``every`` how many of them DPOR may take to cover all interleavings; with each set the
    n-th run draws from ``Random(f"{seed}:{n}")``.
    """
    counted = Counted(attempt, budget)
    candidates = _candidates(outcome, fails)
    missed = [broken(candidates, each) for each in passed]
    best, cut = Orderings((), 0, 0, 0), False
    why = f"more than {_MOST} orderings are needed, or orderings outside the run's races"
    seen: Interleavings | None = None
    while (chosen := smallest_hitting_set(missed, candidates, _MOST)) is not None:
        kept = tuple(each for each in candidates if each in chosen)
        failed, passing = _complete(outcome.world, kept, counted, fails, seed, completions)
        if failed >= best.failed:
            best = Orderings(kept, failed, failed + (passing is not None), counted.runs)
        if failed == completions:
            seen = seen or interleavings(outcome.world, Counted(counted, every), fails)
            against = seen.against(kept)
            if against is None:
                return replace(best, runs=counted.runs, proof=seen.proof(kept, outcome))
            passing = against
        if passing is None:
            why, cut = f"the budget ended after {counted.runs} runs", True
            break
        missed.append(broken(candidates, passing) - chosen)
    return replace(best, runs=counted.runs, why=why, cut=cut)


def _complete(
    world: World, kept: Sequence[Constraint], attempt: Attempt, fails: Fails, seed: str, most: int
) -> tuple[int, Outcome | None]:
    """Make random runs that keep the constraints; returns how many failed before one passed, and that one if any."""
    for number in range(most):
        strategy = Constrained(kept)
        strategy.begin(Random(f"{seed}:{number}"))
        try:
            outcome = attempt(world, strategy)
        except Spent:
            return number, None
        if fails(outcome) is None:
            return number, outcome
    return most, None


def _candidates(outcome: Outcome, fails: Fails) -> list[Constraint]:
    """Return the races of the run as constraints."""
    violation = fails(outcome)
    assert violation is not None, "a run that has not the failure has no orderings that bring it about"
    found = names(outcome)
    return list(dict.fromkeys(Constraint(found[first], found[second]) for first, second in races(outcome, violation)))
