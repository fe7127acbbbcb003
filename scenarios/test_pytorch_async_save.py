"""pytorch #144657: an asynchronous save that reads the weights while training changes them.

**Report.**  pytorch/pytorch #144657, "Async distributed checkpointing works incorrectly with tensors on CPU":
``async_save`` returned without having copied CPU tensors, the optimizer's step changed them, and the checkpoint held
the updated values.

**Mechanism.**  ``dcp.async_save`` *stages* the state (copies it) and lets a thread write it.  Where staging gives the
live tensors back, whatever training does before the thread comes to a tensor is what is saved.  The torch that
racecheck is tested with copies CPU tensors; so ``live_tensors`` hands ``async_save`` a stager of its own that does not,
which is what the report saw.

**What must be found.**

- ``live_tensors``: what is loaded as step 1 is the weights of a later step.
- ``one_group``: the copy is there, but the thread that saves and the training loop use the same process group: the
  ranks come to a collective of the save and to one of the training in different order.
- ``staged``, with a copy and a group of its own, holds.
"""

from __future__ import annotations

from typing import Any

import pytest

import racecheck
from racecheck import DEFAULT, Rank, Verdict, equal_collectives, snapshot_isolation

CHECKPOINT = "step1"
REPORT = "pytorch #144657"


class Live:
    """Stages nothing: the tensors themselves are what is saved."""

    should_synchronize_after_execute = False

    def stage(self, state: dict[str, Any]) -> dict[str, Any]:
        return state

    def synchronize_staging(self) -> None:
        pass

    def close(self) -> None:
        pass


def train(rank: Rank, *, own_group: bool = True, **options: Any) -> None:
    """Save after the first step, and go on with the second while that is written."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    group = dist.new_group() if own_group else None
    weights = {"first": torch.full((8,), 1.0), "second": torch.full((8,), 1.0)}
    rank.saved(weights, step=1, at=rank.path / CHECKPOINT)
    future = dcp.async_save(weights, checkpoint_id=rank.path / CHECKPOINT, process_group=group, **options)
    gradient = torch.ones(8)
    dist.all_reduce(gradient)
    for tensor in weights.values():
        tensor.add_(gradient)
    rank.saved(weights, step=2)
    future.result()


def load(rank: Rank) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    weights = {"first": torch.zeros(8), "second": torch.zeros(8)}
    dcp.load(weights, checkpoint_id=rank.path / CHECKPOINT)
    rank.loaded(weights, step=1)


@racecheck.scenario(
    report=REPORT,
    expected=Verdict.FAIL,
    breaks="snapshot-isolation",
    invariants=(*DEFAULT, snapshot_isolation),
)
def live_tensors(rank: Rank) -> None:
    train(rank, async_stager=Live())


@racecheck.scenario(expected=Verdict.FAIL, breaks="equal-collectives", invariants=(equal_collectives,))
def one_group(rank: Rank) -> None:
    train(rank, own_group=False)


@racecheck.scenario(report=REPORT, invariants=(*DEFAULT, snapshot_isolation))
def staged(rank: Rank) -> None:
    train(rank)


live_tensors.recover(load)
staged.recover(load)


def test_live_tensors(racecheck: Any) -> None:
    racecheck.finds(live_tensors)


def test_one_group(racecheck: Any) -> None:
    racecheck.finds(one_group)


@pytest.mark.slow
def test_staged(racecheck: Any) -> None:
    racecheck.check(staged, schedules=20)
