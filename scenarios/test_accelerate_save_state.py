"""``Accelerator.save_state``: a rank that returns from it has saved nothing yet.

This is the real ``accelerate``, with a model in DDP, automatic naming and ``total_limit``.

**Report.**  None that is public; it follows from ``Accelerator.save_state`` of accelerate 1.15, whose documentation
("Checkpointing", and the docstring) shows ``save_state()`` and ``load_state()`` without anything around them.

**Mechanism.**  Rank 0 alone writes model and optimizer, each rank its own random state; there is a
``wait_for_everyone`` before, and nothing after.  So rank 1 returns when rank 0 may still be writing.  If it loads what
it has "saved", ``load_accelerator_state`` finds no ``model.safetensors`` and takes the checkpoint for one of the older
format: FileNotFoundError for ``pytorch_model.bin``.  With ``total_limit``, rank 0 deletes the directory before the
barrier of the next save, while rank 1 may still have its random state to write there: that directory is gone.

And ``total_limit=1`` deletes the old checkpoint first, then writes the new one: a job that is killed in between has
lost the checkpoint that all ranks counted on.

**What must be found.**

- ``loaded_at_once``: the FileNotFoundError.
- ``limited``: two saves in a row fail on the rank that is late.
- ``killed``: nothing that can be loaded is left.
- ``waited``: ``wait_for_everyone`` after ``save_state`` is the repair of the first two.
- ``kept``: ``total_limit=2``, and resuming from the newest checkpoint that is complete, is that of the third.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import racecheck
from racecheck import DEFAULT, Rank, Verdict, consistent_weights, durable_after_ack, old_survives

SURVIVES = (*DEFAULT, durable_after_ack, old_survives, consistent_weights)
KILLED = ("kill-job on open|write|rename|unlink|rmdir|mkdir nth=each",)


class Job:
    """A training with one parameter; ``limit`` is ``total_limit``."""

    def __init__(self, rank: Rank, limit: int | None = None) -> None:
        import torch
        from accelerate import Accelerator
        from accelerate.utils import ProjectConfiguration

        self.rank = rank
        naming = ProjectConfiguration(str(rank.path), automatic_checkpoint_naming=True, total_limit=limit)
        self.accelerator = Accelerator(cpu=True, project_config=naming)
        self.model = torch.nn.Linear(4, 1, bias=False)
        self.accelerator.prepare(self.model)

    def weights(self) -> dict[str, Any]:
        return dict(self.model.state_dict())

    def save(self, step: int) -> None:
        import torch

        torch.nn.init.constant_(self.model.weight, float(step))
        self.rank.saved(self.weights(), step=step)
        self.accelerator.save_state()

    def wait(self) -> None:
        self.accelerator.wait_for_everyone()

    def load(self, checkpoint: Path | None = None) -> None:
        self.accelerator.load_state(str(checkpoint) if checkpoint else None)
        self.rank.loaded(self.weights())


@racecheck.scenario(expected=Verdict.FAIL, breaks="no-file-errors")
def loaded_at_once(rank: Rank) -> None:
    """As the documentation has it."""
    job = Job(rank)
    job.save(1)
    job.load()


@racecheck.scenario(expected=Verdict.FAIL, breaks="no-unexpected-errors")
def limited(rank: Rank) -> None:
    """Two saves in a row, of which the newer is to be kept."""
    job = Job(rank, limit=1)
    job.save(1)
    job.save(2)


@racecheck.scenario(invariants=(*DEFAULT, consistent_weights))
def waited(rank: Rank) -> None:
    """Both, with a barrier behind each save."""
    job = Job(rank, limit=1)
    for step in (1, 2):
        job.save(step)
        job.wait()
    job.load()


def save_twice(rank: Rank, limit: int) -> None:
    job = Job(rank, limit)
    for step in (1, 2):
        job.save(step)
        job.wait()
        rank.acked(step=step)


def checkpoints(rank: Rank) -> list[Path]:
    """Oldest first."""
    return sorted(rank.path.glob("checkpoints/checkpoint_*"))


@racecheck.scenario(
    faults=KILLED, invariants=(durable_after_ack, old_survives), expected=Verdict.FAIL, breaks="old-survives"
)
def killed(rank: Rank) -> None:
    """With barriers; the new one takes the place of the old one."""
    save_twice(rank, limit=1)


@killed.recover(ranks=1)
def resume(rank: Rank) -> None:
    """By automatic naming: the newest."""
    if checkpoints(rank):
        Job(rank).load()


@racecheck.scenario(faults=KILLED, invariants=SURVIVES)
def kept(rank: Rank) -> None:
    """There is room for the old one until the new one is complete."""
    save_twice(rank, limit=2)


@kept.recover(ranks=1)
def resume_complete(rank: Rank) -> None:
    """Rank 0 writes its random state last."""
    complete = [each for each in checkpoints(rank) if (each / "random_states_0.pkl").exists()]
    if complete:
        Job(rank).load(complete[-1])


def test_loaded_at_once(racecheck: Any) -> None:
    racecheck.finds(loaded_at_once, within=10)


def test_limited(racecheck: Any) -> None:
    racecheck.finds(limited, within=20)


@pytest.mark.slow
def test_waited(racecheck: Any) -> None:
    racecheck.check(waited, schedules=5)


def test_killed(racecheck: Any) -> None:
    racecheck.finds(killed, within=40)


def test_kept(racecheck: Any) -> None:
    racecheck.check(kept, schedules=6)
