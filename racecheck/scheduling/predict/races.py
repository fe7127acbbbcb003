"""Races of a passing run: ops that could have gone in the other order, and the result if they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from random import Random
from typing import Literal

from racecheck.invariants import judge
from racecheck.model.compare import differences_on_disk, effect, ending
from racecheck.model.nouns import (
    Event,
    Invariant,
    Op,
    Outcome,
    Violation,
)
from racecheck.model.ops.footprint import Dependence
from racecheck.scheduling.happens_before import Order, is_step
from racecheck.scheduling.predict.pairs import Pair, pairs_of
from racecheck.scheduling.strategies.following.reversed_race import Forcing
from racecheck.scheduling.strategies.protocol import Diverged, Strategy

PairAttempt = Callable[[Strategy], Outcome]
"""Runs the world once under a strategy, which has begun already, and calls its ``end``."""


@dataclass(frozen=True, slots=True)
class Race:
    """A pair of ops that nothing orders, and the result of its other order.

    - "confirmed": ``violations`` are its violations; ``outcome`` is that run.
    - "changes": no invariant is broken, but there are ``differences``.
    - "harmless": every rank ends in the same way and leaves the same disk.
    - "infeasible": it could not be brought about; ``why``.
    - "untried".
    """

    pair: Pair
    verdict: Literal["confirmed", "changes", "harmless", "infeasible", "untried"] = "untried"
    violations: tuple[Violation, ...] = ()
    differences: tuple[str, ...] = ()
    why: str = ""
    outcome: Outcome | None = None


def candidates(trace: Sequence[Event], relation: Dependence) -> list[Pair]:
    """Return the races of a run that could be reversed, in the order in which the earlier ops went."""
    steps = [index for index, event in enumerate(trace) if isinstance(event, Op) and is_step(event, relation)]
    order = Order(relation)
    order.extend(trace)
    found = [(steps[first], steps[second]) for second, step in enumerate(order.steps) for first in step.races]
    return pairs_of(trace, sorted(found))


def force(
    pair: Pair, outcome: Outcome, attempt: PairAttempt, invariants: Sequence[Invariant], relation: Dependence
) -> Race:
    """Run the world again with the two ops of a race in the other order, and all else as in ``outcome`` where possible.

    ``outcome`` is a run that has passed.
    """
    strategy = Forcing(relation, outcome.trace, *pair.events)
    strategy.begin(Random(0))
    try:
        other = attempt(strategy)
    except Diverged as difference:
        return Race(pair, "infeasible", why=str(difference))
    if strategy.problem:
        return Race(pair, "infeasible", why=strategy.problem)
    known, judgement = judge(outcome, invariants), judge(other, invariants)
    broken = {each.invariant for each in known.violations}
    violations = tuple(each for each in judgement.violations if each.invariant not in broken)
    if violations:
        return Race(pair, "confirmed", violations=violations, outcome=other)
    doubts = [f"not certain: {each}" for each in judgement.reasons if each not in known.reasons]
    differences = (*doubts, *_differences(outcome, other))
    return Race(pair, "changes" if differences else "harmless", differences=differences, outcome=other)


# What differs.


def _differences(before: Outcome, now: Outcome) -> Iterator[str]:
    one, other = effect(before), effect(now)
    if one != other:
        yield from _in_results(before, now)
        yield from differences_on_disk(before, now)
    if before.recovery is not None and now.recovery is not None:
        yield from (f"in the recovery, {each}" for each in _differences(before.recovery, now.recovery))


def _in_results(before: Outcome, now: Outcome) -> Iterator[str]:
    """Yield differences by `effect`, one rank at a time: it knows the differences that do not count."""
    for rank, (was, is_) in enumerate(zip_longest(_alone(before), _alone(now))):
        if was != is_:
            yield f"rank {rank} {ending(now.results[rank])}; before, it {ending(before.results[rank])}"


def _alone(outcome: Outcome) -> list[object]:
    return [effect(Outcome(outcome.world, (), (), (each,))) for each in outcome.results]
