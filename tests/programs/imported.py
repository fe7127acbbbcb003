"""A module that draws, reads and opens things when it is imported: each rank does that for itself."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
import tempfile
import threading
import time
import uuid
from pathlib import Path

import torch.distributed as dist

import racecheck
from racecheck import Rank
from tests.programs.launched import __name__ as package

NAME = uuid.uuid4().hex
STAMP = time.strftime("%Y%m%d_%H%M%S")
RANK = os.environ.get("RANK", "")
NUMBER = random.random()
LOCK = multiprocessing.Lock()
LOCK_FILE = os.open(Path(tempfile.gettempdir()) / "lock", os.O_CREAT | os.O_RDWR) if RANK else -1
STARTED = threading.Event()
os.environ["SET_BY_THE_MODULE"] = "1"


@racecheck.scenario(ranks=2)
def facts(rank: Rank) -> list[object]:
    (rank.path / str(rank.rank)).touch()
    return [NAME, RANK, NUMBER, package, os.environ["SET_BY_THE_MODULE"], facts.name, __name__]


@racecheck.scenario(ranks=2, skew=(0, 1.5))
def stamped_directory(rank: Rank) -> str:
    """Shards are scattered over directories that are named by the second at which the module was imported."""
    (rank.path / STAMP).mkdir(exist_ok=True)
    (rank.path / STAMP / f"{rank.rank}.pt").touch()
    dist.barrier()
    if rank.rank == 0:
        assert len(os.listdir(rank.path)) == 1, "scattered"
    return STAMP


@racecheck.scenario(ranks=2)
def locked_in_memory(rank: Rank) -> None:
    """The lock is this rank's own: it excludes nobody."""
    with LOCK:
        count = int((rank.path / "count").read_text() or "0") if (rank.path / "count").exists() else 0
        (rank.path / "count").write_text(str(count + 1))
    dist.barrier()
    assert (rank.path / "count").read_text() == "2", "an increment is lost"


@racecheck.scenario(ranks=2)
def locked_by_a_file(rank: Rank) -> None:
    """Each rank has opened the lock file for itself, so that the lock excludes the other one."""
    fcntl.flock(LOCK_FILE, fcntl.LOCK_EX)
    count = int((rank.path / "count").read_text()) if (rank.path / "count").exists() else 0
    (rank.path / "count").write_text(str(count + 1))
    fcntl.flock(LOCK_FILE, fcntl.LOCK_UN)
    dist.barrier()
    assert (rank.path / "count").read_text() == "2", "an increment is lost"
