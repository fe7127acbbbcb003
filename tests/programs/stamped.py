"""Programs that read the time of day."""

from __future__ import annotations

import time
from pathlib import Path

import racecheck
from racecheck import Rank


def _write(rank: Rank, directory: Path) -> int:
    """Write a part into a directory; return how many parts are there when each rank has written its own."""
    import torch.distributed as dist

    directory.mkdir(exist_ok=True)
    (directory / f"part{rank.rank}").write_text("x")
    dist.barrier()
    return len(list(directory.iterdir()))


@racecheck.scenario(ranks=2)
def own_minute(rank: Rank) -> None:
    """Each rank names the directory after its own clock, to the minute."""
    found = _write(rank, rank.path / time.strftime("%H%M"))
    assert found == rank.world_size, f"{found} parts"


@racecheck.scenario(ranks=3)
def one_clock(rank: Rank) -> None:
    """Rank 0 names the directory, and tells the others."""
    import torch.distributed as dist

    name = [time.strftime("%H%M%S")]
    dist.broadcast_object_list(name, src=0)
    assert _write(rank, rank.path / str(name[0])) == rank.world_size


@racecheck.scenario(ranks=2)
def own_directories(rank: Rank) -> None:
    """Each rank has a directory of its own, with a time in its name."""
    _write(rank, rank.path / f"rank{rank.rank}-{time.strftime('%H%M%S')}")


@racecheck.scenario(ranks=2)
def contents(rank: Rank) -> None:
    """Times go into files, and change nothing else."""
    (rank.path / f"log{rank.rank}").write_text(str(time.time()))


@racecheck.scenario(ranks=2)
def stopwatch(rank: Rank) -> None:
    """Only a clock that says nothing of the day."""
    begun = time.perf_counter()
    _write(rank, rank.path / "x")
    (rank.path / f"log{rank.rank}").write_text(str(time.perf_counter() - begun))


@racecheck.scenario(ranks=2)
def asked_by_one(rank: Rank) -> None:
    """Only rank 0 asks."""
    _write(rank, rank.path / ("x" if rank.rank else f"x{time.strftime('%S')}"))
