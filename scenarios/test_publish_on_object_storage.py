"""Publishing by "write to a temporary name, then rename" on a bucket of objects that is mounted as a file system.

**Report.**  mountpoint-s3, ``doc/SEMANTICS.md``: renaming is not supported on general purpose buckets, and directories
are not either.  gcsfuse, ``docs/semantics.md``: renaming a directory is not atomic, and is refused above a limit.

**Mechanism.**  There are no directories in a bucket, only objects with long names, and no call that changes many of
these at once.  So a checkpoint that is staged in a directory of another name cannot be moved into place.

**What must be found.**

- ``renamed``, on both: the rename is refused.
- ``marker_last``, on both: each rank writes its part to where it belongs, and after a barrier rank 0 writes a marker;
  who loads looks for the marker: holds.
"""

from __future__ import annotations

import os
from typing import Any

import racecheck
from racecheck import DEFAULT, Rank, Verdict, consistent_weights, no_file_errors

bucket = {"ranks": 2, "nodes": 2}
refused = {**bucket, "invariants": (no_file_errors,), "expected": Verdict.FAIL, "breaks": "no-file-errors"}
holds = {**bucket, "invariants": (*DEFAULT, consistent_weights)}


def save_part(rank: Rank, directory: str) -> None:
    """Write this rank's part of a checkpoint."""
    import torch

    state = {"own": torch.full((64,), float(rank.rank))}
    rank.saved(state, step=1)
    (rank.path / directory).mkdir(exist_ok=True)
    torch.save(state, rank.path / directory / f"rank{rank.rank}.pt")


def rename(rank: Rank) -> None:
    """Save to a temporary directory; rank 0 renames it."""
    import torch.distributed as dist

    save_part(rank, "step-1.tmp")
    dist.barrier()
    if rank.rank == 0:
        os.rename(rank.path / "step-1.tmp", rank.path / "step-1")
    dist.barrier()


def mark(rank: Rank) -> None:
    """Save; rank 0 marks the checkpoint as complete; all load it."""
    import torch.distributed as dist

    save_part(rank, "step-1")
    dist.barrier()
    if rank.rank == 0:
        (rank.path / "step-1" / "complete").write_text("yes")
    dist.barrier()
    load(rank)


def load(rank: Rank) -> None:
    """Load the checkpoint if it is complete."""
    import torch

    if (rank.path / "step-1" / "complete").exists():
        rank.loaded(torch.load(rank.path / "step-1" / f"rank{rank.rank}.pt", weights_only=True), step=1)


@racecheck.scenario(**refused, storage="object(mountpoint-s3)", report="mountpoint-s3, doc/SEMANTICS.md")
def renamed_on_s3(rank: Rank) -> None:
    rename(rank)


@racecheck.scenario(**refused, storage="object(gcsfuse)", report="gcsfuse, docs/semantics.md")
def renamed_on_gcs(rank: Rank) -> None:
    rename(rank)


@racecheck.scenario(**holds, storage="object(mountpoint-s3)", report="mountpoint-s3, doc/SEMANTICS.md")
def marker_last_on_s3(rank: Rank) -> None:
    mark(rank)


@racecheck.scenario(**holds, storage="object(gcsfuse)", report="gcsfuse, docs/semantics.md")
def marker_last_on_gcs(rank: Rank) -> None:
    mark(rank)


marker_last_on_s3.recover(load)
marker_last_on_gcs.recover(load)


def test_renamed_on_s3(racecheck: Any) -> None:
    racecheck.finds(renamed_on_s3, within=5)


def test_renamed_on_gcs(racecheck: Any) -> None:
    racecheck.finds(renamed_on_gcs, within=5)


def test_marker_last_on_s3(racecheck: Any) -> None:
    racecheck.check(marker_last_on_s3, schedules=10)


def test_marker_last_on_gcs(racecheck: Any) -> None:
    racecheck.check(marker_last_on_gcs, schedules=10)
