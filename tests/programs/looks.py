"""Programs that look at clocks, at times of files, and at listings."""

from __future__ import annotations

import os
import shutil
import subprocess
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


@scenario(ranks=1)
def ages_without_others(rank: Rank) -> int:
    """Nobody else is there, so there is no choice in a run."""
    (rank.path / "0").mkdir()
    (rank.path / "other").mkdir()
    return int((rank.path / "0").stat().st_mtime_ns < (rank.path / "other").stat().st_mtime_ns)


@scenario(ranks=2)
def asks_only_what_is_there(rank: Rank) -> bool:
    (rank.path / str(rank.rank)).mkdir()
    dist.barrier()
    return (rank.path / "0").exists() and (rank.path / "1").is_dir()


@scenario(ranks=2)
def lists(rank: Rank) -> list[str]:
    (rank.path / str(rank.rank)).mkdir()
    dist.barrier()
    return os.listdir(rank.path)


@scenario(ranks=2)
def asks_for_room(rank: Rank) -> bool:
    return shutil.disk_usage(rank.path).free > 0


@scenario(ranks=2)
def counts_links(rank: Rank) -> int:
    return rank.path.stat().st_nlink


@scenario(ranks=2)
def asks_who_read(rank: Rank) -> bool:
    (rank.path / str(rank.rank)).touch()
    return (rank.path / str(rank.rank)).stat().st_atime > 5


@scenario(ranks=2)
def reads_from_a_fifo(rank: Rank) -> None:
    if rank.rank == 0:
        os.mkfifo(rank.path / "fifo")
    dist.barrier()
    os.close(os.open(rank.path / "fifo", os.O_RDWR))


@scenario(ranks=2)
def shares_what_is_outside(rank: Rank) -> bool:
    lock = rank.path.parent / "lock"
    if rank.rank == 0:
        lock.touch()
    return lock.exists()


@scenario(ranks=2)
def lists_with_a_program(rank: Rank) -> str:
    (rank.path / str(rank.rank)).mkdir()
    dist.barrier()
    program = ["ls", "-t", str(rank.path)]
    return subprocess.run(program, capture_output=True, check=True, text=True).stdout if rank.rank == 0 else ""


@scenario(ranks=2)
def deletes_the_oldest(rank: Rank) -> None:
    """Rank 0's directory is taken to be the oldest."""
    (rank.path / str(rank.rank)).mkdir()
    dist.barrier()
    if rank.rank == 0:
        oldest = min(os.listdir(rank.path), key=lambda name: (rank.path / name).stat().st_mtime)
        (rank.path / oldest).rmdir()
    dist.barrier()
    assert (rank.path / "1").exists()
