"""The fewest orderings of two ops that make every run fail, whatever else happens.

A failing run is one of many.  What they have in common is what a person has to understand, and what can be replayed
when the code has changed.  The candidates are the races of the run: where all of them are kept, a run is equivalent.

A run that passes although some orderings were kept shows that one more is needed, of those that it did not keep.  So
the next to try are always the fewest of which no passing run so far has kept all: a smallest hitting set.  Once they
fail every time, no smaller set could do: each of those was kept by some run that passed.  (The scheme is that of
Davies, Bacchus: "Solving MAXSAT by Solving a Sequence of Simpler SAT Instances", CP 2011.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from racecheck.model.nouns import Constraint, Op, Outcome, World
from racecheck.model.ops.op_names import Naming
from racecheck.scheduling.minimise.attempts import Attempt, Counted, Spent
from racecheck.scheduling.minimise.critical import CriticalPair, races
from racecheck.scheduling.minimise.failure import Fails
from racecheck.scheduling.minimise.hitting_set import smallest_hitting_set
from racecheck.scheduling.strategies.following.constrained import Constrained

_MOST = 6
"""More orderings than these say less to a person than the run itself."""


@dataclass(frozen=True, slots=True)
class Orderings:
    """``failed`` of ``completions`` random runs that kept the constraints failed.

    All of them did if ``why`` is ""; else it says why there is nothing better.  If even without any constraint every
    run fails, there are none.  ``cut``: the budget was spent before all had been tried.
    """

    constraints: tuple[Constraint, ...]
    failed: int
    completions: int
    runs: int
    why: str = ""
    cut: bool = False


def fewest_orderings(
    outcome: Outcome,
    attempt: Attempt,
    fails: Fails,
    *,
    pair: CriticalPair | None = None,
    seed: str = "0",
    completions: int = 50,
    budget: int = 500,
) -> Orderings:
    """Find the orderings that a failing run's failure depends on.

    ``pair`` is its critical pair: one of its orderings is that of the pair, or one that the other order of the pair
    breaks too.  ``budget`` is in runs; with each set the n-th run draws from ``Random(f"{seed}:{n}")``.
    """
    counted = Counted(attempt, budget)
    candidates = _candidates(outcome, fails)
    passed = [_broken(candidates, pair.neighbour)] if pair is not None and pair.passes else []
    best = Orderings((), 0, 0, 0)
    cut = False
    why = f"more than {_MOST} orderings are needed, or orderings outside the run's races"
    while (chosen := smallest_hitting_set(passed, candidates, _MOST)) is not None:
        kept = tuple(each for each in candidates if each in chosen)
        failed, passing = _complete(outcome.world, kept, counted, fails, seed, completions)
        if failed >= best.failed:
            best = Orderings(kept, failed, failed + (passing is not None), counted.runs)
        if failed == completions:
            return best
        if passing is None:
            why, cut = f"the budget ended after {counted.runs} runs", True
            break
        passed.append(_broken(candidates, passing) - chosen)
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
    naming = Naming()
    names = {index: naming.take(event) for index, event in enumerate(outcome.trace) if isinstance(event, Op)}
    names |= {index: naming.peek(op) for index, op in enumerate(outcome.pending, len(outcome.trace))}
    return list(dict.fromkeys(Constraint(names[first], names[second]) for first, second in races(outcome, violation)))


def _broken(candidates: Iterable[Constraint], outcome: Outcome) -> frozenset[Constraint]:
    """Return those that a run did not keep: the later op went, and the earlier one had not gone by then."""
    naming = Naming()
    went = {naming.take(op): at for at, op in enumerate(outcome.ops)}
    never = len(went)
    return frozenset(
        each for each in candidates if each.after in went and went.get(each.before, never) > went[each.after]
    )
