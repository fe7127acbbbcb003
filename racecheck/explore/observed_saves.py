"""Choose the invariants that can judge a program's saves and loads, by a run without faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from racecheck.invariants import (
    all_shards_present,
    consistent_weights,
    declared_steps,
    durable_after_ack,
    ends_in_time,
    error_honesty,
    judge,
    old_survives,
    resume_equals,
    same_checkpoint,
    snapshot_isolation,
)
from racecheck.invariants.disk import listed
from racecheck.invariants.resuming import Uninterrupted, varying
from racecheck.invariants.series import Series, count, reads_parts, series_of
from racecheck.invariants.weights import restored_by_ranks, shared_by_ranks
from racecheck.model.nouns import Fault, Invariant, Outcome, World

FOR_OBSERVED = (
    ends_in_time,
    all_shards_present,
    consistent_weights,
    durable_after_ack,
    old_survives,
    resume_equals,
    same_checkpoint,
    snapshot_isolation,
    error_honesty,
)
"""The invariants that judge the observed saves and loads of a program."""
_OF_LOSSES: Sequence[Invariant] = (durable_after_ack, old_survives)
UNREADABLE = "a checkpoint has files that racecheck cannot read, so it is not judged whether all shards are present"
_NO_SAVE = "no save was observed, so no weights are judged"
_NO_LOAD = "no load was observed in the recovery, so lost saves are not judged"
_PARTS = "the recovery loads several files of one series, so lost saves are not judged"
_NOT_COMPARED = "so a resumed job is not compared with an uninterrupted one"
_OTHER_SIZE = f"the recovery has another number of ranks, {_NOT_COMPARED}"
_APART = "two undisturbed runs differ in"
CONTINUED = "resumed jobs that could be compared with an uninterrupted one"
NEVER_CONTINUED = f"no recovery trained or saved anything that the undisturbed run did, {_NOT_COMPARED}"
_LATER, _OTHER_SEED = 1.0, "another"
"""Seconds by which the clocks of the second undisturbed run are ahead, and its seed."""
_NO_STEPS = "the recovery takes no training step, so after damage its loads alone are judged"
_OTHERS = "the recovery loads another save than the last one also without a fault, so lost saves are not judged"


Again = Callable[[World, str], Outcome]
"""Makes an undisturbed run in a world, with a seed, and at half the speed."""


def fitting(
    undisturbed: Outcome, again: Again, faults: Sequence[Fault] = ()
) -> tuple[list[Invariant], tuple[str, ...]]:
    """Return the invariants that can judge a program, with these faults, and a condition for each that cannot.

    The recovery must load a save after a fault only if it loads one without a fault.
    """
    saves, _ = count(undisturbed)
    told: list[Invariant] = [ends_in_time] if any(each.what == "preempt" for each in faults) else []
    if not saves:
        return told, (_NO_SAVE,)
    found, conditions = _of_loads(undisturbed)
    found += told
    if undisturbed.recovery is not None and any(each.what not in {"crash", "damage"} for each in faults):
        resumed, more = _of_resumption(undisturbed, again)
        found, conditions = [*found, *resumed], (*conditions, *more)
    recovery = undisturbed.recovery
    if recovery is not None and not recovery.steps and any(each.what == "damage" for each in faults):
        conditions = (*conditions, _NO_STEPS)
    shared = shared_by_ranks(undisturbed)
    found += [partial(same_checkpoint, observed=shared)] if shared else []
    always = (snapshot_isolation, error_honesty) if faults else (snapshot_isolation,)
    return [*found, *(partial(each, observed=True) for each in always)], conditions


def _of_loads(undisturbed: Outcome) -> tuple[list[Invariant], tuple[str, ...]]:
    """Return the invariants of loads, also of those by the recovery."""
    if undisturbed.recovery is None:
        return [consistent_weights], ()
    restored = restored_by_ranks(undisturbed)
    consistent = partial(consistent_weights, restored=restored) if restored else consistent_weights
    losses, condition = _of_losses(undisturbed)
    return [consistent, *losses], condition


def _of_resumption(undisturbed: Outcome, again: Again) -> tuple[list[Invariant], tuple[str, ...]]:
    """Return the invariant of a resumed job, if two undisturbed runs are alike, and conditions for the rest.

    The second one has other clocks, on which all takes longer, other process numbers, and other random numbers from the
    kernel.
    """
    world = undisturbed.world
    if undisturbed.recovery is not None and undisturbed.recovery.world.ranks != world.ranks:
        return [], (_OTHER_SIZE,)
    other = again(_elsewhere(world), _OTHER_SEED)
    vary, why = varying(undisturbed, other)
    if why:
        return [], (f"{_APART} {why}: {_NOT_COMPARED}",)
    names = listed(sorted({name for _, name in vary}))
    conditions = (f"{_APART} {names}, which are not compared after a resume",) if vary else ()
    return [partial(resume_equals, reference=Uninterrupted(undisturbed, vary))], conditions


def with_reference(invariants: Sequence[Invariant], undisturbed: Outcome, again: Again) -> tuple[Invariant, ...]:
    """Return the invariants of a scenario, of which `resume_equals` gets the undisturbed run to compare with."""
    other = again(_elsewhere(undisturbed.world), _OTHER_SEED)
    reference = Uninterrupted(undisturbed, why=declared_steps.why_not(undisturbed, other))
    bound = partial(resume_equals, reference=reference)
    return tuple(bound if each is resume_equals else each for each in invariants)


def _elsewhere(world: World) -> World:
    return replace(world, skew=(_LATER,) * world.ranks)


def _of_losses(undisturbed: Outcome) -> tuple[Sequence[Invariant], tuple[str, ...]]:
    """Return the invariants of lost saves, and a condition for those that cannot be judged."""
    assert undisturbed.recovery is not None
    if not any(each.kind == "loaded" for each in undisturbed.recovery.weights):
        return [], (_NO_LOAD,)
    if reads_parts(undisturbed):
        return [], (_PARTS,)
    unread = tuple(each.name for each in series_of(undisturbed) if not _is_loaded(each))
    asked: Sequence[Invariant] = _OF_LOSSES
    if unread:
        asked = [partial(each, unread=unread) for each in (durable_after_ack, old_survives)]
    if judge(undisturbed, asked).violations:
        return [], (_OTHERS,)
    conditions = (f"the recovery does not load {', '.join(unread)}, so it is not judged whether that is lost",)
    return asked, conditions if unread else ()


def _is_loaded(series: Series) -> bool:
    recovery = series.outcome.recovery
    return recovery is not None and any(each.kind == "loaded" for each in recovery.weights)


def has_shards(undisturbed: Outcome) -> bool:
    """Return whether a program has left a checkpoint of DCP."""
    saves, _ = count(undisturbed)
    return saves > 0 and any(path.rpartition("/")[2] == ".metadata" for path in undisturbed.disk)


def leaves_open(undisturbed: Outcome) -> bool:
    """Return whether `all_shards_present` cannot judge a run of which the contents of files are known."""
    return bool(judge(undisturbed, [all_shards_present]).reasons)
