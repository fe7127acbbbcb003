"""KempnerForge #49: each rank looks whether there is a checkpoint, and goes into a collective or past it.

These are the steps of save and load as the reports give them, made with real calls, not the real KempnerForge.

**Report.**  KempnerInstitute/KempnerForge #49, "Race in CheckpointManager save and load collectives": ranks other than
0 return from ``save()`` before rank 0 has written ``train_state``, and what they read next races with it.  PR #50 adds
a closing barrier.  What that does to a collective is in NVIDIA-NeMo/Speech #14380: rank 0 creates the file of the
checkpoint around the time when others look whether it exists; they take another branch, the collectives no longer
match, and training hangs.

**Mechanism.**  What ``exists()`` says depends on when a rank asks.  Rank 0 finds what it has written itself and goes
into the broadcast; a rank that has asked too early goes past it.

**What must be found.**

- ``racy``: rank 0 is in the broadcast when the other is in the next collective of the training.
- ``nothing_after``: the branch ends in a barrier, and no other collective comes: rank 0 waits in it for good.
- ``look_again``, the fix that suggests itself, where a rank that finds nothing waits and looks once more: as before.
  However long it waits, rank 0 can take longer.
- ``closing_barrier`` (#50) holds.
- ``one_rank_decides``, where rank 0 looks and tells the others, holds even without that barrier.  (There is then only
  one schedule: rank 0 alone makes ops.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import racecheck
from racecheck import DEFAULT, Outcome, Rank, Returned, Verdict, Violation, no_deadlock

STATE = "step_10/train_state.pt"
STEP = 10


def save(rank: Rank) -> None:
    """Rank 0 writes the state of the training; the others have nothing to write."""
    import torch

    if rank.rank == 0:
        (rank.path / STATE).parent.mkdir()
        torch.save({"step": torch.tensor(STEP)}, rank.path / STATE)


def load(rank: Rank, found: Callable[[Path], bool] = Path.exists) -> int:
    """The step to go on from: what rank 0 reads and broadcasts if there is a checkpoint, else 0."""
    import torch
    import torch.distributed as dist

    if not found(rank.path / STATE):
        return 0
    told = [0]
    if rank.rank == 0:
        told = [int(torch.load(rank.path / STATE)["step"])]
    dist.broadcast_object_list(told, src=0)
    return told[0]


def train(step: int) -> int:
    """What comes next is a collective; returns the step that it began with."""
    import torch.distributed as dist

    dist.barrier()
    return step


def same_step(outcome: Outcome) -> Iterator[Violation]:
    """A rank that has returned goes on from the step that was saved."""
    for rank, result in enumerate(outcome.results):
        if isinstance(result, Returned) and result.value != STEP:
            yield Violation("same-step", f"rank {rank} goes on from step {result.value}, not {STEP}", (rank,))


INVARIANTS = (*DEFAULT, same_step)


@racecheck.scenario(
    ranks=2,
    report="KempnerInstitute/KempnerForge#49",
    invariants=INVARIANTS,
    expected=Verdict.FAIL,
    breaks="equal-collectives",
)
def racy(rank: Rank) -> int:
    """Save, then load, where each rank looks for itself, then go on."""
    save(rank)
    return train(load(rank))


@racecheck.scenario(
    ranks=2, report="NVIDIA-NeMo/Speech#14380", invariants=(no_deadlock,), expected=Verdict.FAIL, breaks="no-deadlock"
)
def nothing_after(rank: Rank) -> None:
    """Save, then wait for each other if there is a checkpoint; judged only by whether that ends."""
    import torch.distributed as dist

    save(rank)
    if (rank.path / STATE).exists():
        dist.barrier()


@racecheck.scenario(
    ranks=2,
    report="KempnerInstitute/KempnerForge#49",
    invariants=INVARIANTS,
    expected=Verdict.FAIL,
    breaks="equal-collectives",
)
def look_again(rank: Rank) -> int:
    """A rank that finds nothing gives the file system some time."""

    def found(path: Path) -> bool:
        if path.exists():
            return True
        time.sleep(5)
        return path.exists()

    save(rank)
    return train(load(rank, found))


@racecheck.scenario(ranks=2, report="KempnerInstitute/KempnerForge#50", invariants=INVARIANTS)
def closing_barrier(rank: Rank) -> int:
    """The fix of #50: no rank returns from save before rank 0 has written."""
    import torch.distributed as dist

    save(rank)
    dist.barrier()
    return train(load(rank))


@racecheck.scenario(ranks=2, report="NVIDIA-NeMo/Speech#14380", invariants=INVARIANTS)
def one_rank_decides(rank: Rank) -> int:
    """One decision for all ranks: rank 0's."""
    import torch.distributed as dist

    def found(path: Path) -> bool:
        decided = [path.exists() if rank.rank == 0 else False]
        dist.broadcast_object_list(decided, src=0)
        return decided[0]

    save(rank)
    return train(load(rank, found))


def test_racy(racecheck: Any) -> None:
    racecheck.finds(racy, within=20)


def test_nothing_after(racecheck: Any) -> None:
    racecheck.finds(nothing_after, within=20)


def test_look_again(racecheck: Any) -> None:
    racecheck.finds(look_again, within=20)


def test_closing_barrier(racecheck: Any) -> None:
    racecheck.check(closing_barrier, schedules=20)


def test_one_rank_decides(racecheck: Any) -> None:
    racecheck.check(one_rank_decides, schedules=20)
