"""Invariants of the loads of a job with a checkpointer, besides those of `racecheck.invariants`."""

from __future__ import annotations

from collections.abc import Iterator

from racecheck.invariants import judges_crashes
from racecheck.invariants.saves import saves
from racecheck.invariants.staleness import begins
from racecheck.model.nouns import Outcome, Returned, Violation


@judges_crashes
def same_start(outcome: Outcome) -> Iterator[Violation]:
    """All ranks of a restart continue from one step, or all from none: what the recovery returns is the same on each.

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

    The run is judged, and its recovery, each for itself.
    """
    for world, where in ((outcome, ""), (outcome.recovery, " (in the recovery)")):
        if world is None:
            continue
        every = [save for save in saves(world) if save.is_acked]
        for load in (each for each in world.weights if each.kind == "loaded" and each.step >= 0):
            begun = begins(world, load)
            due = max((save.step for save in every if save.since <= begun), default=load.step)
            if load.step < due:
                text = f"all ranks had saved step {due}, but then rank {load.rank} loaded step {load.step}{where}"
                yield Violation("newest-loads", text, (load.rank,), () if where else (begun,))
