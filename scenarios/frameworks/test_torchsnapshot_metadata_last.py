"""torchsnapshot: ``Snapshot.take`` returns to all ranks but rank 0 before the snapshot can be restored.

This is the real torchsnapshot (0.1.0); it takes an environment that has it (``torchsnapshot==0.1.0``).

**Mechanism.**  In ``Snapshot.take`` (``torchsnapshot/snapshot.py``) all ranks write their parts, then comes a barrier,
and after it rank 0 alone writes ``.snapshot_metadata``, without which nothing can be restored.  For that nobody waits:
what the others do next they do while the snapshot is not there yet.

Seen without racecheck, too, in two processes: ``take`` has returned to rank 1, which finds no ``.snapshot_metadata``
(5 of 5, nothing injected); with rank 0 killed as it is about to write that, ``restore`` ends in FileNotFoundError on
both ranks (5 of 5).

**What must be found.**

- ``newest``: each rank restores the newest snapshot that it sees.  Rank 1 sees none, goes on without, and rank 0 waits
  for it.
- ``keeps_one``: when ``take`` has returned to it, rank 1 removes the snapshot before.  With rank 0 killed as it opens
  the metadata nothing is left to restore.
- ``newest_later`` and ``keeps_one_later``: with a barrier after ``take`` both hold.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import racecheck
from racecheck import DEFAULT, Rank, Verdict, consistent_weights, old_survives
from racecheck.targets.adapters.torchsnapshot import TorchSnapshot
from racecheck.targets.suite import State
from racecheck.targets.suite.driver import Driver

LOADS = (*DEFAULT, consistent_weights)
KILLED = ("kill on open step-2/.snapshot_metadata rank=0",)
SURVIVES = (consistent_weights, old_survives)


class Later(TorchSnapshot):
    """Returns to nobody before rank 0 has written the metadata."""

    def save(self, state: State, root: Path, step: int) -> None:
        import torch.distributed as dist

        super().save(state, root, step)
        dist.barrier()


def save_and_load(rank: Rank, kind: type) -> None:
    job = Driver(rank, kind)
    job.save(1)
    job.load()


def keep_one(rank: Rank, kind: type) -> None:
    job = Driver(rank, kind)
    job.save(1)
    job.train()
    job.save(2)
    if rank.rank == 1:
        shutil.rmtree(rank.path / "step-1")


@racecheck.scenario(ranks=2, invariants=LOADS, expected=Verdict.FAIL, breaks="no-deadlock")
def newest(rank: Rank) -> None:
    """``take`` as it is."""
    save_and_load(rank, TorchSnapshot)


@racecheck.scenario(ranks=2, invariants=LOADS)
def newest_later(rank: Rank) -> None:
    """The repair."""
    save_and_load(rank, Later)


@racecheck.scenario(ranks=2, faults=KILLED, invariants=SURVIVES, expected=Verdict.FAIL, breaks="old-survives")
def keeps_one(rank: Rank) -> None:
    """``take`` as it is."""
    keep_one(rank, TorchSnapshot)


@racecheck.scenario(ranks=2, faults=KILLED, invariants=SURVIVES)
def keeps_one_later(rank: Rank) -> None:
    """The repair."""
    keep_one(rank, Later)


@keeps_one.recover
@keeps_one_later.recover
def resume(rank: Rank) -> None:
    """The job is started again, with as many ranks."""
    Driver(rank, TorchSnapshot).load()


def test_newest(racecheck: Any) -> None:
    racecheck.finds(newest, within=20)


def test_newest_later(racecheck: Any) -> None:
    racecheck.check(newest_later, schedules=8)


def test_keeps_one(racecheck: Any) -> None:
    racecheck.finds(keeps_one, within=10)


def test_keeps_one_later(racecheck: Any) -> None:
    racecheck.check(keeps_one_later, schedules=8)
