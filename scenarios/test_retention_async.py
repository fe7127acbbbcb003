"""Retention deletes the old checkpoint while an asynchronous save of the new one is under way.

This is the real ``dcp.async_save``, with a retention policy as training loops have them ("keep the last one").

**Report.**  None of one place: ``dcp.async_save`` returns before anything is written, and retention that ran after the
save when that was synchronous still does.

**Mechanism.**  ``async_save`` returns when the weights have been copied.  The old checkpoint is deleted then, and the
new one is not there yet: a kill leaves none.

**What must be found.**

- ``too_early``, judged by what is deleted: the only checkpoint that all ranks had saved.
- ``killed``, the same and the job is killed: nothing can be loaded, or it ends in an error.
- ``after_result``, each rank waits for its save, all for each other, and then rank 0 deletes: holds, whenever the job
  is killed.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import racecheck
from racecheck import DEFAULT, Rank, Verdict, consistent_weights, durable_after_ack, gc_safety, old_survives

KILLED = ("kill-job on open|write|rename|unlink|rmdir nth=each",)


def weights(step: int, ranks: range) -> dict[str, Any]:
    """What these ranks have at a step."""
    import torch

    return {f"own{rank}": torch.full((64,), step + rank / 10) for rank in ranks} | {"step": torch.tensor(step)}


def begin(rank: Rank, step: int) -> Any:
    """Begin to save a step; returns its future."""
    import torch.distributed.checkpoint as dcp

    state, path = weights(step, range(rank.rank, rank.rank + 1)), rank.path / f"step-{step}"
    rank.saved(state, step=step, at=path)
    return dcp.async_save(state, checkpoint_id=path)


def end(rank: Rank, step: int, future: Any) -> None:
    """Wait for a save."""
    future.result()
    rank.acked(step=step, at=rank.path / f"step-{step}")


def delete(rank: Rank, step: int) -> None:
    """Rank 0 deletes a checkpoint."""
    if rank.rank == 0:
        shutil.rmtree(rank.path / f"step-{step}")


def load_newest(rank: Rank) -> None:
    """After the run: load the newest checkpoint that has its metadata."""
    import torch.distributed.checkpoint as dcp

    complete: list[Path] = sorted(each.parent for each in rank.path.glob("step-*/.metadata"))
    if complete:
        state = weights(0, range(2))
        dcp.load(state, checkpoint_id=complete[-1])
        rank.loaded(state, step=int(state["step"]), at=complete[-1])


def save_and_delete(rank: Rank) -> None:
    end(rank, 1, begin(rank, 1))
    future = begin(rank, 2)
    delete(rank, 1)
    end(rank, 2, future)


@racecheck.scenario(invariants=(gc_safety,), expected=Verdict.FAIL, breaks="gc-safety")
def too_early(rank: Rank) -> None:
    """Rank 0 deletes step 1 when the save of step 2 has begun."""
    save_and_delete(rank)


@racecheck.scenario(faults=KILLED, invariants=(old_survives,), expected=Verdict.FAIL, breaks="old-survives")
def killed(rank: Rank) -> None:
    """The same, and the job is killed at any op."""
    save_and_delete(rank)


@racecheck.scenario(
    faults=KILLED, invariants=(*DEFAULT, gc_safety, durable_after_ack, old_survives, consistent_weights)
)
def after_result(rank: Rank) -> None:
    """Rank 0 deletes step 1 when step 2 is there on all ranks."""
    import torch.distributed as dist

    for step in (1, 2):
        end(rank, step, begin(rank, step))
        dist.barrier()
    delete(rank, 1)


killed.recover(load_newest, ranks=1)
after_result.recover(load_newest, ranks=1)


def test_too_early(racecheck: Any) -> None:
    racecheck.finds(too_early, within=20)


def test_killed(racecheck: Any) -> None:
    racecheck.finds(killed, within=40)


@pytest.mark.slow
def test_after_result(racecheck: Any) -> None:
    racecheck.check(after_result, schedules=24)
