"""The invariant of a save in which something fails: all ranks learn of it, and none counts on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from racecheck.invariants.events import changed, done, is_below
from racecheck.invariants.excuses import faults
from racecheck.invariants.failures import failures
from racecheck.invariants.publishing import PublishedPointer, followed
from racecheck.invariants.saves import Save, recovered, saves
from racecheck.model.nouns import Op, Outcome, Raised, Returned, Violation, Weights
from racecheck.model.ops import op_kinds


def error_honesty(outcome: Outcome, pointer: str = "latest", *, observed: bool = False) -> Iterator[Violation]:
    """A save in which a call failed on one rank returns on no rank and publishes nothing.

    A rank that has failed and says nothing leaves a checkpoint without its part.  One that fails alone leaves peers
    that continue, delete the old checkpoint, and die of it at the next restart.  A rank may try again, or do without:
    its save may return if the recovery loads all of it.  ``pointer`` is as in `atomic_publish`.

    For runs with faults that make calls fail; of others it says nothing.  Ranks say when a save begins and has returned
    with `Rank.saved` and `Rank.acked`.  That no rank hangs is for `no_deadlock`.

    A program whose saves are ``observed`` is dishonest if all ranks end with status 0, although a fault came to a save
    that never returned, and the rank saved no such state later.
    """
    if observed:
        yield from _forgotten(outcome)
        return
    if not outcome.world.faults:
        raise LookupError("no fault makes a call fail (such as 'ENOSPC on write')")
    every = saves(outcome)
    if not every:
        raise LookupError("no rank declared a save (Rank.saved, Rank.acked)")
    for save in every:
        hit = next((each for each in faults(outcome) if each[1].call != "kill" and _is_during(save, *each)), None)
        if hit is not None:
            yield from _judged(outcome, save, *hit, pointer)


def _forgotten(outcome: Outcome) -> Iterator[Violation]:
    """Return the observed saves that failed, and of which nothing speaks."""
    if not all(isinstance(each, Returned) or (isinstance(each, Raised) and each.thread) for each in outcome.results):
        return  # a lost thread leaves status 0, too
    hits = [(index, op) for index, op in faults(outcome) if op.call != "kill"]
    for save in outcome.weights:
        if save.kind == "saved":
            hit, why = _undone(outcome, save, hits)
            if hit is not None:
                index, op = hit
                what = f"rank {op.rank}'s {op.call} {op.path} failed ({op.fault}) in save {save.step} of {save.series}"
                text = f"{what}, which was never {why}, but every rank ended with status 0"
                yield Violation("error-honesty", text, (op.rank,), (index,))


def _undone(outcome: Outcome, save: Weights, hits: Sequence[tuple[int, Op]]) -> tuple[tuple[int, Op] | None, str]:
    """Return the fault that kept a save from its end, None for none, and the step that was not repeated."""
    later = [(index, op) for index, op in hits if index >= save.event and op.rank == save.rank]
    if any(_is_return(each, save) for each in outcome.weights):
        return next((each for each in later if _is_unpublished(outcome, save, *each)), None), "renamed"
    if any(_makes_up(each, save, outcome) for each in outcome.weights):
        return None, ""
    return next((each for each in later if _is_of(each[1], save)), None), "saved again"


def _is_unpublished(outcome: Outcome, save: Weights, index: int, op: Op) -> bool:
    """Return whether the rename of a saved file failed for good: nothing was put at its new name afterwards."""
    if op.call not in op_kinds.LINKS or not is_below(op.places[0].path, save.checkpoint):
        return False
    return not any(later > index and op.path in changed(each) for later, each in done(outcome))


def _is_return(acked: Weights, save: Weights) -> bool:
    """Return whether this is the return of a save."""
    key = acked.rank, acked.series, acked.step
    return acked.kind == "acked" and key == (save.rank, save.series, save.step)


def _is_of(op: Op, save: Weights) -> bool:
    """Return whether an op is one of a save, by its place: the checkpoint or a neighbour of it."""
    beside = save.checkpoint.rpartition("/")[0]
    return any(is_below(place.path, save.checkpoint) or place.path.rpartition("/")[0] == beside for place in op.places)


def _makes_up(later: Weights, save: Weights, outcome: Outcome) -> bool:
    """Return whether a save came after another one of the same rank, with tensors of the same names, and returned."""
    is_later = later.kind == "saved" and later.rank == save.rank and later.event >= save.event and later is not save
    is_like = later.tensors.keys() == save.tensors.keys()
    return is_later and is_like and any(_is_return(each, later) for each in outcome.weights)


def _is_during(save: Save, index: int, op: Op) -> bool:
    """Return whether a call was one of a save's: between its begin and its return on that rank."""
    begun, acked = save.begun.get(op.rank), save.acked.get(op.rank)
    return begun is not None and begun <= index and (acked is None or index < acked)


def _judged(outcome: Outcome, save: Save, index: int, op: Op, pointer: str) -> Iterator[Violation]:
    what = f"rank {op.rank}'s {op.call} {op.path} failed ({op.fault}) in the save of step {save.step}"
    if op.rank in save.acked:
        lost = _lost(outcome, save)
        if lost:
            yield Violation("error-honesty", f"{what}, but the save returned there; {lost}", (op.rank,), (index,))
        return
    others = tuple(sorted(save.acked))
    if others:
        ranks = f"rank{'s' * (len(others) > 1)} {', '.join(map(str, others))}"
        yield Violation(
            "error-honesty", f"{what}, but the save returned on {ranks}", tuple(sorted((op.rank, *others))), (index,)
        )
    for path, named in _named_since(outcome, pointer, index):
        if any(is_below(named.target, each) for each in save.checkpoints):
            text = f"{what}, but then {path} named it"
            yield Violation("error-honesty", text, tuple(sorted({op.rank, named.rank})), (index, named.index))


def _named_since(outcome: Outcome, pointer: str, since: int) -> list[tuple[str, PublishedPointer]]:
    """Yield the checkpoints that pointers name after an event."""
    found = {
        each.index: (path, each)
        for _, _, current in followed(outcome, pointer)
        for path, each in current.items()
        if each.index > since
    }
    return [*found.values()]


def _lost(outcome: Outcome, save: Save) -> str:
    """Return how a load shows that a save has not saved all, "" if it has."""
    if outcome.recovery is None:
        raise LookupError("the scenario has no recovery to load what was saved (@scenario.recover)")
    if failures(outcome.recovery):
        return "the step does not load"
    steps = [step for _, step in recovered(outcome)]
    return "" if steps and min(steps) >= save.step else "a restart does not find it"
