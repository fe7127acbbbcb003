"""Invariants of the loads of a job with a checkpointer, besides those of `racecheck.invariants`."""

from __future__ import annotations

from collections.abc import Iterator

from racecheck.invariants import judges_crashes
from racecheck.invariants.saves import saves
from racecheck.invariants.staleness import begins
from racecheck.invariants.weights import saves_of_load
from racecheck.model.nouns import Outcome, Returned, Violation, Weights


@judges_crashes
def same_start(outcome: Outcome) -> Iterator[Violation]:
    """All ranks of a restart continue from one step, or all from none: the result of the recovery is the same on each.

    One that finds no checkpoint where the others find one (on its own node's disk, or by a look that failed) starts
    from scratch, and no error shows it.
    """
    results = outcome.recovery.results if outcome.recovery is not None else ()
    steps = {rank: each.value for rank, each in enumerate(results) if isinstance(each, Returned)}
    if len(set(steps.values())) > 1:
        text = "; ".join(f"rank {rank} from {f'step {step}' if step else 'none'}" for rank, step in steps.items())
        yield Violation(
            "same-start", f"the ranks continue from different steps: {text} (in the recovery)", tuple(steps)
        )


def newest_loads(outcome: Outcome) -> Iterator[Violation]:
    """A load that begins when the save of a step has returned on all ranks returns that step, or a later one.

    If a step was saved again, it returns the last save.  The run is judged, and its recovery.
    """
    for world, where in ((outcome, ""), (outcome.recovery, " (in the recovery)")):
        if world is None:
            continue
        every = [save for save in saves(world) if save.is_acked]
        for load in (each for each in world.weights if each.kind == "loaded" and each.step >= 0):
            begun = begins(world, load)
            due = max((save.step for save in every if save.since <= begun), default=load.step)
            text = ""
            if load.step < due:
                text = f"all ranks had saved step {due}, but then rank {load.rank} loaded step {load.step}"
            elif _is_stale(outcome, world, load, begun):
                text = (
                    f"all ranks had saved step {load.step} again, but then rank {load.rank} loaded what it was before"
                )
            if text:
                yield Violation("newest-loads", f"{text}{where}", (load.rank,), () if where else (begun,))


def _is_stale(outcome: Outcome, world: Outcome, load: Weights, begun: int) -> bool:
    """Return whether a load has an earlier save of its step than the last one that all ranks count on."""
    returned = _returned(world, load.step, begun)
    if returned and (own := saves_of_load(world, load, world.world.ranks)):
        return max(own) < returned - 1
    earlier = saves_of_load(outcome, load, world.world.ranks) if world is not outcome else []
    return bool(earlier) and (bool(returned) or max(earlier) < _returned(outcome, load.step, len(outcome.trace)) - 1)


def _returned(world: Outcome, step: int, before: int) -> int:
    """Return how many saves of a step had returned on all ranks before an event."""
    acked = [each.rank for each in world.weights if each.kind == "acked" and each.step == step and each.event <= before]
    return min(map(acked.count, range(world.world.ranks)), default=0)
