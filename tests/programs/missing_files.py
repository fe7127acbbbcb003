"""Scenarios that ask for a file outside the watched directory until it is there.  Not collected by pytest.

Their sleeps are virtual: no real time passes.
"""

import os
import time
from multiprocessing.shared_memory import SharedMemory

import torch.distributed as dist

from racecheck import Rank, scenario


def _name() -> str:
    return f"racecheck-{os.getppid()}"


def _opened() -> tuple[SharedMemory, int]:
    """Return the memory once it is there, and how often it was asked for."""
    asked = 0
    while True:
        asked += 1
        try:
            return SharedMemory(_name()), asked
        except FileNotFoundError:
            continue


@scenario(ranks=2)
def spins(rank: Rank) -> str:
    """Rank 1 opens memory that rank 0 makes after two ops of its own, which need rank 1 to stop."""
    if rank.rank == 0:
        (rank.path / "first").touch()
        (rank.path / "second").touch()
        memory = SharedMemory(_name(), create=True, size=64)
        dist.barrier()
        memory.unlink()
        return "made"
    memory, asked = _opened()
    (rank.path / "third").touch()
    dist.barrier()
    return "asked often" if asked > 1000 else "asked"


@scenario(ranks=2)
def beside_a_sleeper(rank: Rank) -> float:
    """It comes after ten seconds of virtual time."""
    before = time.monotonic()
    if rank.rank == 0:
        time.sleep(10)
        memory = SharedMemory(_name(), create=True, size=64)
        dist.barrier()
        memory.unlink()
    else:
        _opened()
        dist.barrier()
    return round(time.monotonic() - before, 1)


@scenario(ranks=1)
def in_vain(rank: Rank) -> None:
    """Nobody makes it."""
    del rank
    _opened()


@scenario(ranks=1)
def often(rank: Rank) -> int:
    """Many questions for a file that is there, and for files that are not, are no loop that waits."""
    found = sum(os.path.exists(__file__) for _ in range(3000))
    found += sum(os.path.exists(f"/nowhere/{number}") for number in range(3000))
    (rank.path / "file").touch()
    return found
