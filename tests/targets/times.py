"""Programs that look at clocks, at times of files, and at listings."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

import torch.distributed as dist

from racecheck import Rank, scenario


@scenario(ranks=2)
def oldest_by_time(rank: Rank) -> str:
    (rank.path / str(rank.rank)).mkdir()
    dist.barrier()
    return min(os.listdir(rank.path), key=lambda name: (rank.path / name).stat().st_mtime)


@scenario(ranks=2)
def oldest_to_a_recovery(rank: Rank) -> None:
    (rank.path / str(rank.rank)).mkdir()


@oldest_to_a_recovery.recover
def look(rank: Rank) -> str:
    return min(os.listdir(rank.path), key=lambda name: os.path.getmtime(rank.path / name))


@scenario(ranks=2)
def looks_at_a_clock(rank: Rank) -> bool:
    began = time.monotonic()
    if rank.rank == 0:
        time.sleep(3)
    (rank.path / str(rank.rank)).mkdir()
    return time.monotonic() - began > 1


@scenario(ranks=2)
def looks_at_the_date(rank: Rank) -> None:
    (rank.path / datetime.now(tz=UTC).strftime("%Y%m%d")).mkdir(exist_ok=True)


@scenario(ranks=3)
def ages_of_one_rank(rank: Rank) -> int:
    """Only rank 0 makes what it compares; the others make what nobody looks at."""
    (rank.path / str(rank.rank)).mkdir()
    if rank.rank:
        return 0
    (rank.path / "other").mkdir()
    return int((rank.path / "0").stat().st_mtime_ns < (rank.path / "other").stat().st_mtime_ns)


@scenario(ranks=2)
def asks_only_what_is_there(rank: Rank) -> bool:
    (rank.path / str(rank.rank)).mkdir()
    dist.barrier()
    return (rank.path / "0").exists() and (rank.path / "1").stat().st_size >= 0


@scenario(ranks=2)
def lists(rank: Rank) -> list[str]:
    (rank.path / str(rank.rank)).mkdir()
    dist.barrier()
    return os.listdir(rank.path)
