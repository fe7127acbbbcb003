"""Scenarios to try racecheck on, wherever it is installed: ``racecheck run racecheck.examples:overwrite``."""

from __future__ import annotations

import shutil
from pathlib import Path

import racecheck

_STEP = 100


@racecheck.scenario(ranks=2, report="openpi #868", expected=racecheck.Verdict.FAIL, breaks="no-file-errors")
def overwrite(rank: racecheck.Rank) -> None:
    """Clear the checkpoint directory in every rank."""
    checkpoint = rank.path / "checkpoint"
    if checkpoint.exists():
        shutil.rmtree(checkpoint)
    checkpoint.mkdir(exist_ok=True)


@overwrite.setup
def an_old_checkpoint(path: Path) -> None:
    """Leave what an earlier run has saved."""
    (path / "checkpoint").mkdir()
    (path / "checkpoint" / "model.pt").write_text("old")


@racecheck.scenario(ranks=2)
def guarded(rank: racecheck.Rank) -> None:
    """Clear the checkpoint directory in one rank, while the others wait."""
    checkpoint = rank.path / "checkpoint"
    if rank.rank == 0:
        shutil.rmtree(checkpoint)
        checkpoint.mkdir()
    _barrier()


guarded.setup(an_old_checkpoint)


@racecheck.scenario(ranks=2)
def save(rank: racecheck.Rank) -> None:
    """Save a shard in every rank, and then name the checkpoint in ``latest``: sound until something goes wrong."""
    latest = rank.path / "latest"
    if latest.exists():
        raise RuntimeError("nothing is to be resumed here")
    (rank.path / f"shard{rank.rank}.pt").write_text(f"weights of step {_STEP}")
    _barrier()
    if rank.rank == 0:
        latest.write_text(str(_STEP))
    _barrier()
    if not latest.exists():
        raise RuntimeError("the save has succeeded, and there is no checkpoint")


@save.recover
def resume(rank: racecheck.Rank) -> None:
    """Load what ``latest`` names, nothing if there is none."""
    latest = rank.path / "latest"
    if latest.exists():
        step = int(latest.read_text())
        if (rank.path / f"shard{rank.rank}.pt").read_text() != f"weights of step {step}":
            raise RuntimeError(f"the shard is not of step {step}")


def _barrier() -> None:
    import torch.distributed as dist

    dist.barrier()
