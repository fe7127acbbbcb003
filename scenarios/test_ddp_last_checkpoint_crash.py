"""The last checkpoint of DDP training, and the job is killed, or the power fails, while it is saved.

This is a real training loop under ``DistributedDataParallel``, with the real ``torch.save`` and ``torch.load``.

**Report.**  The question "Why can't PyTorch distributed training save the last checkpoint?", and what is proposed for
it: a barrier, a ``FileLock``.

**Mechanism.**  Both keep readers off who take part in them.  A kill (the scheduler's, out of memory, a node that is
drained) takes no part: it finds the file where ``torch.save`` had emptied it, or half filled it again, and that file is
the checkpoint before, too.  A file that is written under another name and renamed is never half there when a *process*
dies.  When the *power* fails, what had been written, and the new name, may not have come to the disk yet: until fsync
of the file, and of its directory, nobody has promised that (Pillai et al., "All File Systems Are Not Created Equal",
OSDI '14).

**What must be found.**

- ``barrier_after``: killed at one op or another, the job has lost the step before, on which all ranks counted.
- ``locked``: the same.
- ``replaced``, another name, ``os.replace``, then a barrier: holds, whenever the job is killed.
- ``power_fails``, the same and the power fails: a step is lost on which all ranks counted.
- ``synced``, another name, fsync, ``os.replace``, fsync of the directory, then a barrier: holds, whenever the job is
  killed or the power fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import racecheck
from racecheck import DEFAULT, Rank, Verdict, consistent_weights, durable_after_ack, old_survives

REPORT = "Why can't PyTorch distributed training save the last checkpoint?"
KILLED = ("kill-job on any nth=each",)
SURVIVES = (*DEFAULT, durable_after_ack, old_survives, consistent_weights)
STEPS = 2
LAST = "last.pt"


def train(rank: Rank, save: Callable[[Any, Path], None]) -> None:
    """Train; rank 0 saves after each step, and all wait for it."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        model(torch.full((2, 8), float(step + rank.rank))).sum().backward()
        optimizer.step()
        if rank.rank == 0:
            state = {"model": model.module.state_dict(), "step": step}
            rank.saved(state, step=step, at=rank.path / LAST)
            save(state, rank.path / LAST)
        dist.barrier()
        rank.acked(step=step, at=rank.path / LAST)


def write(state: Any, path: Path) -> None:
    """Write in place."""
    import torch

    torch.save(state, path)


def write_locked(state: Any, path: Path) -> None:
    """Write in place, under a lock."""
    from filelock import FileLock

    with FileLock(path.with_name("lock")):
        write(state, path)


def replace(state: Any, path: Path) -> None:
    """Write under another name, then rename."""
    temporary = path.with_suffix(".tmp")
    write(state, temporary)
    os.replace(temporary, path)


def replace_synced(state: Any, path: Path) -> None:
    """Write under another name, sync, rename, and sync the directory."""
    temporary = path.with_suffix(".tmp")
    write(state, temporary)
    sync(temporary)
    os.replace(temporary, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file, or the names in a directory, on stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def resume(rank: Rank) -> None:
    """After the run: start from the last checkpoint, if there is one."""
    import torch

    if (rank.path / LAST).exists():
        state = torch.load(rank.path / LAST, weights_only=True)
        rank.loaded(state, step=state["step"], at=rank.path / LAST)


killed = racecheck.scenario(
    report=REPORT, faults=KILLED, invariants=(old_survives,), expected=Verdict.FAIL, breaks="old-survives"
)


@killed
def barrier_after(rank: Rank) -> None:
    """Rank 0 saves in place; a barrier."""
    train(rank, write)


@killed
def locked(rank: Rank) -> None:
    """Rank 0 saves in place under a lock; a barrier."""
    train(rank, write_locked)


@racecheck.scenario(report=REPORT, faults=KILLED, invariants=SURVIVES)
def replaced(rank: Rank) -> None:
    """Rank 0 saves under another name and renames; a barrier."""
    train(rank, replace)


@racecheck.scenario(
    report=REPORT,
    faults=("crash",),
    invariants=(durable_after_ack, old_survives),
    expected=Verdict.FAIL,
    breaks="durable-after-ack",
)
def power_fails(rank: Rank) -> None:
    """Rank 0 saves under another name and renames; a barrier."""
    train(rank, replace)


@racecheck.scenario(report=REPORT, faults=("crash",), invariants=SURVIVES)
def synced(rank: Rank) -> None:
    """Rank 0 saves under another name, syncs, renames, and syncs the directory; a barrier."""
    train(rank, replace_synced)


barrier_after.recover(resume, ranks=1)
locked.recover(resume, ranks=1)
replaced.recover(resume, ranks=1)
power_fails.recover(resume, ranks=1)
synced.recover(resume, ranks=1)


def test_barrier_after(racecheck: Any) -> None:
    racecheck.finds(barrier_after, within=20)


def test_locked(racecheck: Any) -> None:
    racecheck.finds(locked, within=30)


def test_replaced(racecheck: Any) -> None:
    racecheck.check(replaced, schedules=14)


def test_power_fails(racecheck: Any) -> None:
    racecheck.finds(power_fails, within=5)


def test_synced(racecheck: Any) -> None:
    racecheck.check(synced, schedules=5)
