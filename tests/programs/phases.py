"""Scenarios for property tests.  Not collected by pytest."""

import os
import time
from pathlib import Path

import torch

from racecheck import Rank, consistent_weights, scenario


@scenario(ranks=2)
def overwrite(rank: Rank) -> None:
    if (rank.path / "ckpt").exists():
        (rank.path / "ckpt").rmdir()


@overwrite.setup
def old(path: Path) -> None:
    (path / "ckpt").mkdir()


@scenario(ranks=2)
def guarded(rank: Rank) -> None:
    (rank.path / f"ckpt{rank.rank}").mkdir()


def checkpoints(rank: Rank) -> list[Path]:
    return sorted(rank.path.glob("step*"))


@scenario(ranks=2)
def save(rank: Rank) -> None:
    if rank.rank == 0:
        number = len(checkpoints(rank))
        (rank.path / f"step{number}").mkdir()
        (rank.path / "latest").write_text(f"step{number}")


@scenario(ranks=2)
def rotate(rank: Rank) -> None:
    """Deletes the newest, and not the oldest."""
    if rank.rank == 0 and checkpoints(rank):
        checkpoints(rank)[-1].rmdir()


@scenario(ranks=2)
def resume(rank: Rank) -> None:
    latest = rank.path / "latest"
    if latest.exists():
        [*(rank.path / latest.read_text()).iterdir()]


@scenario(ranks=2)
def rarely_alike(rank: Rank) -> None:
    """No two runs are the same in which rank 1 comes first."""
    if rank.rank == 0:
        (rank.path / "first").touch()
    elif not (rank.path / "first").exists():
        (rank.path / "log").write_text(f"process {os.getpid()}")


@scenario(ranks=2)
def named_by_chance(rank: Rank) -> None:
    """Nothing differs but names: of files that a process names after itself."""
    (rank.path / f"{os.getpid()}.tmp").touch()


@scenario(ranks=1)
def dated(rank: Rank) -> list[int]:
    """How many hours old the files are, one of which is new."""
    (rank.path / str(len([*rank.path.iterdir()]))).touch()
    return sorted(round((time.time() - each.stat().st_mtime) / 3600) for each in rank.path.iterdir())


@scenario(ranks=4, invariants=(consistent_weights,))
def saves_weights(rank: Rank) -> None:
    rank.saved({"w": torch.full((2,), 7.0)}, step=1)


@scenario(ranks=2, invariants=(consistent_weights,))
def loads_weights(rank: Rank) -> None:
    rank.loaded({"w": torch.full((2,), 7.0)}, step=1)


@scenario(ranks=2, invariants=(consistent_weights,))
def loads_others(rank: Rank) -> None:
    rank.loaded({"w": torch.full((2,), 8.0)}, step=1)
