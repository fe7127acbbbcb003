"""All interleavings of a small world: facts about orderings beyond samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from racecheck.model.errors import CannotRun, InternalError, UsageError
from racecheck.model.nouns import Constraint, Op, OpName, Outcome, World
from racecheck.model.ops.footprint import depends
from racecheck.model.ops.op_names import Naming
from racecheck.scheduling import file_times, strategies
from racecheck.scheduling.claims import Claim, of_run
from racecheck.scheduling.minimise.attempts import Attempt, Spent
from racecheck.scheduling.minimise.failure import Fails
from racecheck.scheduling.parts import CONDITION, Parts


@dataclass(frozen=True, slots=True)
class Interleavings:
    """Runs of a world, each with whether it fails; with an exhaustive ``claim`` they stand for all that there are."""

    runs: Sequence[tuple[Outcome, bool]]
    claim: Claim

    def against(self, kept: Sequence[Constraint]) -> Outcome | None:
        """Return a run that keeps these orderings and does not fail, None if there is none."""
        return next((run for run, fails in self.runs if not fails and not broken(kept, run)), None)

    def proof(self, kept: Sequence[Constraint], outcome: Outcome) -> str:
        """Say of how many interleavings it is known that they fail if they keep these orderings; "" if not of all.

        One run stands for all in which dependent ops go in the same order, so the orderings have to be of such ops, as
        they are in ``outcome``.
        """
        if not self.claim.exhaustive or not all(_is_of_dependent(each, outcome) for each in kept):
            return ""
        keeping, every = sum(not broken(kept, run) for run, _ in self.runs), len(self.runs)
        said = f"{keeping} of all {every} interleavings keep them, and each of these fails"
        if keeping == 1:
            said = f"1 of all {every} interleavings keeps them, and it fails"
        if not kept:
            said = f"all {every} interleavings fail" if every > 1 else "there is one interleaving"
        return f"{said} ({'; '.join(self.claim.conditions)})" if self.claim.conditions else said


def interleavings(world: World, attempt: Attempt, fails: Fails) -> Interleavings:
    """Run the world under DPOR until nothing is left to try, or the attempt is spent."""
    runs: list[tuple[Outcome, bool]] = []
    claim, parts, has_parts = Claim(proves=True), Parts(world), False
    try:
        strategy = strategies.make("dpor", world)
        while strategy.begin(Random(0)):
            outcome = attempt(world, strategy)
            runs.append((outcome, fails(outcome) is not None))
            claim = claim.join(of_run(outcome))
            has_parts |= parts.learn(outcome) or parts.stay_whole
    except (Spent, UsageError, CannotRun, InternalError, strategies.Diverged):
        return Interleavings(runs, Claim())
    if has_parts:
        claim = claim.join(Claim(proves=True, conditions=(CONDITION,)))
    return Interleavings(runs, claim.join(strategy.claim()))


def broken(candidates: Iterable[Constraint], outcome: Outcome) -> frozenset[Constraint]:
    """Return those that a run did not keep: the later op went, and the earlier one had not gone by then."""
    naming = Naming()
    went = {naming.take(op): at for at, op in enumerate(outcome.ops)}
    never = len(went)
    return frozenset(
        each for each in candidates if each.after in went and went.get(each.before, never) > went[each.after]
    )


def names(outcome: Outcome) -> dict[int, OpName]:
    """Return the names of a run's ops by their indices; those after the end of the trace are of pending ops."""
    naming = Naming()
    found = {index: naming.take(event) for index, event in enumerate(outcome.trace) if isinstance(event, Op)}
    return found | {index: naming.peek(op) for index, op in enumerate(outcome.pending, len(outcome.trace))}


def _is_of_dependent(constraint: Constraint, outcome: Outcome) -> bool:
    model, events = file_times.relation_of(outcome), (*outcome.trace, *outcome.pending)
    ops = {name: event for index, name in names(outcome).items() if isinstance(event := events[index], Op)}
    first, second = ops.get(constraint.before), ops.get(constraint.after)
    return first is not None and second is not None and depends(model.footprint(first), model.footprint(second))
