"""The checks of the conformance suite: the deeds of a job with a checkpointer, its world, and the invariants.

Each is an ordinary scenario: a function that every rank runs, faults, a recovery, invariants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from racecheck.invariants import (
    DEFAULT,
    consistent_weights,
    durable_after_ack,
    error_honesty,
    liveness,
    monotonic_step,
    no_torn_files,
    old_survives,
    resume_equals,
    snapshot_isolation,
)
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Invariant
from racecheck.targets.suite.driver import Driver, TrainingDriver
from racecheck.targets.suite.load_invariants import newest_loads, same_start

SHARED = "shared"
OTHER_STORAGES = ("nfs", "node-local", "incoherent-fuse", "object(mountpoint-s3)", "object(gcsfuse)")

CHANGES = "open|write|copy|allocate|mkdir|rename|unlink|rmdir|fsync|truncate|link|symlink"
"""The calls of a save that change something."""
NEEDS_ROOM = "open|write|copy|allocate|mkdir|rename|link|symlink|fsync"
"""The calls for which the manual pages name ENOSPC."""
LATER = 100
"""The step that a recovery saves, to show that it can."""

_SOUND = (*DEFAULT, consistent_weights, durable_after_ack, same_start, newest_loads)
_SURVIVES = (*_SOUND, old_survives)

Steps = Callable[[Any], None]
"""Takes a `Driver`, or a `TrainingDriver`."""
Resume = Callable[[Any], int]
"""Takes a driver; returns the step that it continues from, 0 for none."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check: each rank calls ``run``, and then, in a fresh world, ``recover``; ``world`` changes the usual world.

    ``about`` says what happens, in a few words.  ``needs`` is an optional method that the checkpointer must have.
    ``steps`` is how many it saves: for a finding, a search makes that fewer.  ``recovering`` is the size of the
    recovery's world: a number, or -1 for as many ranks as saved.  ``quick``: a pull request waits for it.
    ``when`` says when its findings happen, as the end of a sentence.  ``of_training``: it is for a `Training`.
    """

    name: str
    about: str
    run: Steps
    recover: Resume
    invariants: Sequence[Invariant]
    world: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    steps: int = 2
    recovering: int = -1
    storage: str = SHARED
    quick: bool = False
    when: str = ""
    of_training: bool = False

    @property
    def saves(self) -> int:
        """How many saves the run makes."""
        return self.steps + 2 * (self.run is _again)


def _resume(job: Driver) -> int:
    return job.load()


def _resume_and_save(job: Driver) -> int:
    step = job.load()
    job.train()
    job.save(LATER)
    return step


def _resume_and_overwrite(job: Driver) -> int:
    """Save the last step again, if that is promised, and the next one, and load both.

    Shards of a larger world must not be in them.
    """
    first = job.load()
    again = [first or LATER - 1] if job.may_overwrite else []
    for step in (*again, LATER):
        job.train()
        job.save(step)
        job.train()
        job.load()
    return first


def _resume_and_compare(job: Driver) -> int:
    """Where nobody else saves, ``latest`` says what ``load`` loads."""
    said, step = job.latest(), job.load()
    if said is not None and said != step:
        raise UsageError(f"{job.name}.latest returned {said}, and then load loaded step {step}: they must agree")
    return step


def _save(job: Driver) -> None:
    for step in job.steps():
        if step > 1:
            job.train()
        job.save(step)


def _in_a_row(job: Driver) -> None:
    """Sort as text: 10 comes before 9."""
    for step in job.steps(8):
        job.save(step)


def _and_train(job: Driver) -> None:
    """With three steps, retention that keeps two has something to remove."""
    for step in job.steps(9):
        job.save(step)
        job.train()


def _and_load_at_once(job: Driver) -> None:
    for step in job.steps(8):
        job.save(step)
        job.load()


def _and_load(job: Driver) -> None:
    for step in job.steps():
        job.save(step)
        job.load()
        job.train()


def _again(job: Driver) -> None:
    """Save the last step once more, as a job does that has resumed from the one before."""
    *steps, last = job.steps()
    for step in (*steps, last, last):
        job.save(step)
        job.train()


def _carry_on(job: Driver) -> None:
    """Save, and ignore errors, as a job does that prefers training without a checkpoint to an end."""
    for step in job.steps():
        with suppress(BaseException):  # torch.distributed.checkpoint's is no Exception
            job.save(step)
        job.train()


def _async(job: Driver) -> None:
    for step in job.steps():
        begun = job.begin(step)
        job.train()
        job.finish(begun)


def _async_overlapping(job: Driver) -> None:
    for begun in [job.begin(step) for step in job.steps()]:
        job.finish(begun)


def _faulty(name: str, about: str, invariants: Sequence[Invariant], *faults: str, **more: Any) -> Check:
    return Check(name, about, more.pop("run", _save), _resume_and_save, invariants, {"faults": faults}, **more)


_HONEST = (*_SURVIVES, error_honesty, liveness)
_KILLED = (*_SURVIVES, liveness)
_ASYNC = (*_SOUND, snapshot_isolation)

_ON_SHARED = (
    Check(
        "load-behind", "four saves, each loaded by every rank while another rank may be in the next save and delete it",
        _and_load_at_once, _resume, (*_SOUND, no_torn_files, monotonic_step), steps=4, quick=True,
        when="if a rank loads while another one saves",
    ),
    _faulty("kill", "the whole job is killed before each op that changes files", _KILLED,
            f"kill-job on {CHANGES} nth=each", quick=True,
          when="if the job is killed"),
    Check("power-loss", "power loss at each moment of three saves", _and_train, _resume, _SURVIVES,
          {"faults": ("crash",)}, steps=3, recovering=1, quick=True,
          when="if the power fails"),
    _faulty("carry-on", "ENOSPC at each op that needs space; the job catches the error and continues training", _HONEST,
            f"ENOSPC on {NEEDS_ROOM} nth=each", run=_carry_on, steps=3, quick=True,
          when="if the disk is full and the job continues"),
    _faulty("kill-overwrite", "the job is killed while a step is saved again", _KILLED,
            f"kill-job on {CHANGES} nth=each", run=_again, quick=True,
          when="if the job is killed while a step is saved again"),
    Check("save", "one save; every rank exits as soon as it returns", _save, _resume,
          (*_SOUND, no_torn_files), steps=1, quick=True),
    Check("saves", "four saves in a row", _in_a_row, _resume,
          (*_SURVIVES, no_torn_files), steps=4),
    Check(
        "load", "three saves, each loaded immediately by every rank", _and_load, _resume,
        (*_SOUND, no_torn_files, monotonic_step), steps=3,
        when="if it is loaded at once",
    ),
    Check("overwrite", "a step is saved again", _again, _resume, (*_SURVIVES, no_torn_files), quick=True,
          when="if a step is saved again"),
    Check("shrink", "saved by four ranks, loaded by two, which save that step again (if promised) and then another",
          _save, _resume_and_overwrite, _SOUND, {"ranks": 4}, recovering=2, quick=True,
          when="if fewer ranks continue"),
    Check("grow", "saved by two ranks, loaded by four", _save, _resume, _SOUND, {"ranks": 2}, recovering=4,
          when="if more ranks continue"),
    _faulty("error", "EIO on one rank, at each op", _HONEST, "EIO on any nth=each", quick=True,
          when="if a call fails with EIO"),
    _faulty("kill-rank", "one rank is killed before each op that changes files", _KILLED,
            f"kill on {CHANGES} nth=each",
          when="if a rank is killed"),
    _faulty("no-space", "ENOSPC at each op that needs space", _HONEST, f"ENOSPC on {NEEDS_ROOM} nth=each",
          when="if the disk is full"),
    Check("slow", "one op takes a minute, each in turn", _save, _resume, (*_SURVIVES, no_torn_files),
          {"faults": (f"slow on {CHANGES} seconds=60 nth=each",)},
          when="if a call takes a minute"),
    Check("async", "two asynchronous saves, while the weights change", _async, _resume, _ASYNC, needs="save_async",
          quick=True,
          when="if weights change during an asynchronous save"),
    Check("async-overlap", "the second asynchronous save starts while the first is running", _async_overlapping,
          _resume, _ASYNC, needs="save_async",
          when="if two asynchronous saves overlap"),
    _faulty("async-kill", "the job is killed during asynchronous saves", _KILLED,
            f"kill-job on {CHANGES} nth=each", run=_async, needs="save_async", quick=True,
          when="if the job is killed during an asynchronous save"),
    _faulty("async-error", "ENOSPC in asynchronous saves, at each op that needs space", (*_HONEST, snapshot_isolation),
            f"ENOSPC on {NEEDS_ROOM} nth=each", run=_async, needs="save_async",
          when="if the disk is full during an asynchronous save"),
)  # fmt: skip


def _elsewhere(storage: str) -> tuple[Check, ...]:
    world = {"storage": storage, "nodes": 2}
    return (
        Check(f"saves@{storage}", f"two saves on {storage}, a node for each rank", _save, _resume, _SURVIVES,
              world, storage=storage, quick=storage == "nfs", when=f"on {storage}"),
        Check(f"load@{storage}", f"three saves on {storage}, each loaded at once by every rank", _and_load, _resume,
              (*_SOUND, monotonic_step), world, steps=3, storage=storage, quick=storage == "node-local",
              when=f"on {storage}"),
    )  # fmt: skip


def _without_power(storage: str) -> Check:
    return Check(
        f"power-loss@{storage}", f"power loss of all ranks' machines at each moment of three saves on {storage}",
        _and_train, _resume, _SURVIVES, {"storage": storage, "nodes": 2, "faults": ("crash",)}, steps=3, recovering=1,
        storage=storage, when=f"if the power fails, on {storage}",
    )  # fmt: skip


_SERVED = [each for each in OTHER_STORAGES if each == "nfs" or each.startswith("object")]
"""Storages that survive when the machines of the job do not."""


def _train(job: TrainingDriver) -> None:
    job.train()


def _train_on(job: TrainingDriver) -> int:
    return job.resume()


def _of_training(name: str, about: str, when: str, fault: str, *, quick: bool = True) -> Check:
    return Check(
        name, about, _train, _train_on, (*_SURVIVES, resume_equals, liveness), {"faults": (fault,)}, steps=3,
        quick=quick, when=when, of_training=True,
    )  # fmt: skip


_OF_TRAINING = (
    _of_training("resume", "the job is killed before each op that changes files, and trains on",
                 "if the job is killed and trains on", f"kill-job on {CHANGES} nth=each"),
    _of_training("resume-rank", "one rank is killed before each op that changes files, and the job trains on",
                 "if a rank is killed and the job trains on", f"kill on {CHANGES} nth=each"),
    _of_training("resume-power-loss", "power loss at each moment of three saves, and the job trains on",
                 "if the power fails and the job trains on", "crash", quick=False),
)  # fmt: skip

TRIAL = Check("trial", "one rank saves twice and loads", _save, _resume_and_compare, (), {"ranks": 1})
"""Before all checks: a checkpointer that fails here needs no check."""
TRAINING_TRIAL = Check("trial", "one rank trains, saves and loads", _train, _train_on, (), {"ranks": 1},
                       of_training=True)  # fmt: skip
CHECKS: Mapping[str, Check] = {
    each.name: each
    for each in (
        *_ON_SHARED,
        *(check for storage in OTHER_STORAGES for check in _elsewhere(storage)),
        *map(_without_power, _SERVED),
        *_OF_TRAINING,
    )
}
"""All checks by name, the most telling first."""
