"""Prediction: the facts about other runs that one passing run shows.

`candidates` are the pairs of dependent ops that only happened to go in this order; `force` has one of them go the
other way.  `needed_collectives` says of each collective which pairs it alone keeps in order.  `predict` does it all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from racecheck.model.nouns import Invariant, Outcome
from racecheck.model.ops.footprint import Dependence
from racecheck.scheduling.predict.collectives import Need, needed_collectives
from racecheck.scheduling.predict.pairs import Pair
from racecheck.scheduling.predict.races import PairAttempt, Race, candidates, force

__all__ = ["Need", "Pair", "PairAttempt", "Prediction", "Race", "candidates", "force", "needed_collectives", "predict"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """The conclusions from a passing run: its races, with the result of their other order, and its collectives."""

    outcome: Outcome
    races: tuple[Race, ...]
    needs: tuple[Need, ...]

    @property
    def confirmed(self) -> tuple[Race, ...]:
        """The races that break an invariant."""
        return tuple(race for race in self.races if race.verdict == "confirmed")


def predict(
    outcome: Outcome,
    attempt: PairAttempt,
    invariants: Sequence[Invariant],
    relation: Dependence,
    *,
    goes_on: Callable[[Sequence[Race]], bool] = lambda _: True,
) -> Prediction:
    """Reverse each race of a passing run, with one run for each.

    ``goes_on`` is asked before each run, with the races tried so far, whether to make it.  Those that are left then, or
    at Ctrl-C, are "untried".
    """
    pairs = candidates(outcome.trace, relation)
    tried: list[Race] = []
    try:
        for pair in pairs:
            if not goes_on(tried):
                break
            tried.append(force(pair, outcome, attempt, invariants, relation))
    except KeyboardInterrupt:
        pass
    return Prediction(
        outcome, (*tried, *_untried(pairs[len(tried) :])), tuple(needed_collectives(outcome.trace, relation))
    )


def _untried(pairs: Sequence[Pair]) -> Iterator[Race]:
    yield from (Race(pair) for pair in pairs)
