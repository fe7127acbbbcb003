"""``os.makedirs(exist_ok=True)`` on a mount that denies what it has just said is there.

**Report.**  NVIDIA-NeMo/Automodel #3686: FileExistsError from ``os.makedirs(path, exist_ok=True)`` on several nodes.
The cause has not been proved there; the storage model does what would explain it.

**Mechanism.**  ``makedirs`` asks for a directory that another node makes at that moment, and ``mkdir`` fails with
EEXIST.  ``exist_ok`` then asks ``os.path.isdir``, and where the mount goes by what it had looked up before, there is
nothing: so the error is raised after all.

**What must be found.**

- ``every_rank_makes``: FileExistsError.
- ``rank_0_makes``, and the others wait for it: holds.
"""

from __future__ import annotations

import os
from typing import Any

import racecheck
from racecheck import DEFAULT, Rank, Verdict, no_file_errors

fuse = {"ranks": 2, "nodes": 2, "storage": "incoherent-fuse", "report": "NVIDIA-NeMo/Automodel#3686"}


def write(rank: Rank) -> None:
    """Write this rank's part."""
    (rank.path / "checkpoint" / f"rank{rank.rank}").write_text("weights")


@racecheck.scenario(**fuse, invariants=(no_file_errors,), expected=Verdict.FAIL, breaks="no-file-errors")
def every_rank_makes(rank: Rank) -> None:
    """Each makes the directory, unless it is there."""
    os.makedirs(rank.path / "checkpoint", exist_ok=True)
    write(rank)


@racecheck.scenario(**fuse, invariants=DEFAULT)
def rank_0_makes(rank: Rank) -> None:
    """Rank 0 makes the directory for all."""
    import torch.distributed as dist

    if rank.rank == 0:
        os.makedirs(rank.path / "checkpoint", exist_ok=True)
    dist.barrier()
    write(rank)


def test_every_rank_makes(racecheck: Any) -> None:
    racecheck.finds(every_rank_makes, within=20)


def test_rank_0_makes(racecheck: Any) -> None:
    racecheck.check(rank_0_makes, schedules=15)
