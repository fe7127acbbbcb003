"""The invariant of damaged checkpoints: they are refused, or nothing of the damage gets into the job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from racecheck.invariants.judging import judges_damage
from racecheck.invariants.series import loads_of, was_there
from racecheck.model.nouns import Outcome, Returned, Stopped, TrainingStep, Violation, Weights
from racecheck.model.training_parts import RANDOM

_NUMBER = re.compile(r"\d+")
_KINDS = {
    "flip": "with a flipped bit in {}",
    "cut": "without the tail of {}",
    "zero": "with a page of zeros in {}",
    "empty": "with {} empty",
    "missing": "without {}",
    "older": "with the {} of an older save",
}
"""The kinds of damage, in the words of violations."""


@judges_damage
def damage_refused(outcome: Outcome) -> Iterator[Violation]:
    """A job that resumes from a damaged checkpoint ends with an error, or is the job that it would be without damage.

    Disks and copies lose bits, tails and files, and a loader without a checksum trains on with wrong weights.  Right
    are: an error on any rank; the loads and training steps of the undamaged recovery; loads of an older save by all
    ranks (whether the job says so is not judged).  Wrong are: weights that nobody saved, a mix of saves, a job that
    waits forever, or begins again though files of its saves are still there.
    """
    if outcome.crash is None or not outcome.crash.damage:
        return
    recovery, whole = outcome.recovery, outcome.undamaged
    if recovery is None or whole is None:
        raise LookupError("there is no recovery to load a damaged checkpoint")
    if not (_loads(whole) or whole.steps):
        raise LookupError("no load and no training step was observed in the undamaged recovery")
    flaw, ranks = _flaw(outcome, recovery, whole)
    if flaw:
        damage = _KINDS[outcome.crash.model].format(outcome.crash.file)
        yield Violation("damage-refused", f"{damage}, the resumed job {flaw}", ranks)


def _flaw(outcome: Outcome, recovery: Outcome, whole: Outcome) -> tuple[str, tuple[int, ...]]:
    """Return the flaw of a recovery of a damaged checkpoint, and its ranks; "" if it has none."""
    stopped = {rank: each for rank, each in enumerate(recovery.results) if isinstance(each, Stopped)}
    if len(stopped) < len([each for each in recovery.results if not isinstance(each, Returned)]):
        return "", ()
    if stopped:  # a rank that still runs may end: `judge` has a reason for doubt
        is_stuck = all(each.kind != "running" for each in stopped.values())
        return ("waits forever", tuple(stopped)) if is_stuck else ("", ())
    loads = [each for each in loads_of(outcome, recovery) if each.tensors]
    older = [each for each in loads if _is_older_file(outcome, each)]
    known = [*_saves(outcome), *_loads(outcome)]
    wrong = [each for each in loads if each not in older and not _is_known(each, [*_loads(whole), *known])]
    if wrong:
        tensors = {each for save in known for each in save.tensors.items()}
        is_mix = all(tensors >= each.tensors.items() for each in wrong)
        what = "a mix of saves" if is_mix else "what nobody saved"
        return f"loads {what}, without an error", _ranks(wrong)
    fallen = [each for each in loads if each in older or not _is_known(each, _loads(whole))]
    if fallen:
        newest = [each for each in loads if each not in fallen and not _is_old(outcome, each)]
        return ("loads a mix of saves, without an error", _ranks(newest)) if newest else ("", ())
    if not loads and not _has_more(outcome, whole):
        return "", ()
    if _loads(whole) and not loads:
        return "begins again beside other files of its saves, without an error", tuple(range(len(recovery.results)))
    return _other_steps(recovery, whole)


def _is_older_file(outcome: Outcome, load: Weights) -> bool:
    """Return whether a load is of a checkpoint from before the run, which is not the damaged one.

    Its weights are not known.  A path that is not observed says nothing.
    """
    path, damaged = load.checkpoint, outcome.crash.file if outcome.crash is not None else ""
    files = (damaged, damaged.partition("/")[2])  # on a disk of its own the path begins with the node
    is_damaged = any(each == path or each.startswith(f"{path}/") for each in files)
    return bool(path and load.series) and not is_damaged and was_there(outcome, path)


def _has_more(outcome: Outcome, whole: Outcome) -> bool:
    """Return whether a disk has a file whose path, without numbers, the undamaged recovery opened, saved or loaded.

    A job that finds none cannot know that there was a checkpoint.
    """
    opened = {place.path for op in whole.ops if op.call == "open" for place in op.places if place.kind == "file"}
    known = {_plain(each) for each in (*opened, *(each.checkpoint for each in (*_saves(outcome), *_loads(whole))))}
    return any(_plain(path) in known for path, each in outcome.disk.items() if each.kind == "file")


def _plain(path: str) -> str:
    return _NUMBER.sub("#", path)


def _other_steps(recovery: Outcome, whole: Outcome) -> tuple[str, tuple[int, ...]]:
    """Return how a recovery trains otherwise than the undamaged recovery, if its steps were observed."""
    if not (recovery.steps and whole.steps):
        return "", ()
    ranks = range(len(whole.results))
    apart = tuple(rank for rank in ranks if _steps(recovery.steps, rank) != _steps(whole.steps, rank))
    return ("takes other training steps, without an error", apart) if apart else ("", ())


def _steps(steps: Sequence[TrainingStep], rank: int) -> list[dict[str, str]]:
    """Return the steps of a rank without its random numbers: like their generators, these matter if a step differs."""
    own = [each.parts for each in steps if each.rank == rank]
    return [{name: each for name, each in parts.items() if not name.startswith(RANDOM)} for parts in own]


def _loads(outcome: Outcome) -> list[Weights]:
    return [each for each in outcome.weights if each.kind == "loaded" and each.tensors]


def _saves(outcome: Outcome) -> list[Weights]:
    return [each for each in outcome.weights if each.kind == "saved"]


def _is_known(load: Weights, others: Sequence[Weights]) -> bool:
    """Return whether one of the others has all tensors of a load."""
    return any(load.tensors.items() <= each.tensors.items() for each in others)


def _is_old(outcome: Outcome, load: Weights) -> bool:
    """Return whether a load may also be of a save that is not the last one of its series."""
    saves = _saves(outcome)
    last = {(each.rank, each.series): each for each in saves}
    return _is_known(load, [each for each in saves if each is not last[each.rank, each.series]])


def _ranks(loads: Sequence[Weights]) -> tuple[int, ...]:
    return tuple(sorted({each.rank for each in loads}))
