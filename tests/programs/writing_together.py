"""Ranks that write one file, at once or one after the other."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time

import racecheck
from racecheck import Rank


def _barrier() -> None:
    import torch.distributed as dist

    dist.barrier()


@racecheck.scenario()
def events(rank: Rank) -> None:
    """Each rank writes its own state to one file."""
    (rank.path / "events.json").write_text(json.dumps({"rank": rank.rank}))


@racecheck.scenario()
def after_a_barrier(rank: Rank) -> None:
    """The barrier orders neither of the two."""
    _barrier()
    (rank.path / "latest").write_text(f"step_{rank.rank}")
    _barrier()


@racecheck.scenario()
def emptied_by_appenders(rank: Rank) -> None:
    """Each rank empties the log, and then appends to it."""
    (rank.path / "log").write_text("")
    with (rank.path / "log").open("a") as log:
        log.write(f"rank {rank.rank}")


@racecheck.scenario()
def one_appends(rank: Rank) -> None:
    """One of the two writes where it stands."""
    with (rank.path / "log").open("a" if rank.rank else "w") as log:
        log.write(f"rank {rank.rank}")


@racecheck.scenario()
def copies(rank: Rank) -> None:
    """Each rank copies its own file to one place."""
    own = rank.path / f"own{rank.rank}"
    own.write_text(f"weights of {rank.rank}")
    shutil.copyfile(own, rank.path / "best")


@racecheck.scenario()
def appends(rank: Rank) -> None:
    """Both append."""
    with (rank.path / "log").open("a") as log:
        log.write(f"rank {rank.rank}")


@racecheck.scenario()
def in_turns(rank: Rank) -> None:
    """A barrier between the two."""
    for turn in range(2):
        if turn == rank.rank:
            (rank.path / "state").write_text(f"by {rank.rank}")
        _barrier()


@racecheck.scenario()
def own_places(rank: Rank) -> None:
    """Each rank seeks to a part of its own."""
    if rank.rank == 0:
        (rank.path / "all").write_bytes(bytes(20))
    _barrier()
    with (rank.path / "all").open("r+b", buffering=0) as file:
        file.seek(10 * rank.rank)
        file.write(bytes([rank.rank + 1]) * 5)
        file.write(bytes([rank.rank + 3]) * 5)


@racecheck.scenario()
def one_place(rank: Rank) -> None:
    """Each rank seeks to the same place."""
    if rank.rank == 0:
        (rank.path / "all").write_bytes(bytes(20))
    _barrier()
    with (rank.path / "all").open("r+b", buffering=0) as file:
        file.seek(10)
        file.write(bytes([rank.rank + 1]) * 5)


@racecheck.scenario()
def numbered_places(rank: Rank) -> None:
    """Each rank names the place."""
    descriptor = os.open(rank.path / "all", os.O_CREAT | os.O_RDWR)
    os.pwrite(descriptor, bytes([rank.rank]) * 10, 10 * rank.rank)
    os.close(descriptor)


@racecheck.scenario()
def locked(rank: Rank) -> None:
    """One after the other has the lock."""
    with (rank.path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (rank.path / "state").write_text(f"by {rank.rank}")


@racecheck.scenario()
def read_before(rank: Rank) -> None:
    """Rank 1 knows what was there."""
    if rank.rank == 0:
        (rank.path / "index").write_text("0")
    else:
        while not (rank.path / "index").exists() or (rank.path / "index").read_text() != "0":
            time.sleep(1)
        (rank.path / "index").write_text("0, 1")


@racecheck.scenario()
def told_by_a_file(rank: Rank) -> None:
    """Another file says that rank 0 is done."""
    if rank.rank == 0:
        (rank.path / "state").write_text("from 0")
        (rank.path / "done").touch()
    else:
        while not (rank.path / "done").exists():
            time.sleep(1)
        (rank.path / "state").write_text("from 1")


@racecheck.scenario()
def same_bytes(rank: Rank) -> None:
    """All ranks write the same."""
    (rank.path / "config").write_text("lr: 0.1")
