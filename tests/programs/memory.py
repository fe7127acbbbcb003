"""Scenarios that share memory and semaphores, which are no storage.  Not collected by pytest."""

import _multiprocessing
import multiprocessing
from multiprocessing import shared_memory

from racecheck import Rank, scenario


@scenario(ranks=2)
def private(rank: Rank) -> int:
    """Each rank makes and removes memory of its own, by all of multiprocessing's ways."""
    value, array = multiprocessing.Value("i", rank.rank), multiprocessing.Array("i", 3)
    memory = shared_memory.SharedMemory(create=True, size=64)
    memory.buf[0] = 7
    memory.close()
    memory.unlink()
    (rank.path / str(rank.rank)).touch()
    return int(value.value) + len(array)


@scenario(ranks=2)
def common(rank: Rank) -> int:
    """Rank 1 attaches to the memory of rank 0, by its name."""
    import torch.distributed as dist

    memory = shared_memory.SharedMemory("psm_common", create=True, size=64) if rank.rank == 0 else None
    dist.barrier()
    memory = memory or shared_memory.SharedMemory("psm_common")
    memory.buf[rank.rank] = 1
    dist.barrier()
    found = sum(memory.buf[:2])
    memory.close()
    dist.barrier()
    if rank.rank == 0:
        memory.unlink()
    return found


@scenario(ranks=2)
def semaphore(rank: Rank) -> int:
    """Both ranks open one POSIX semaphore by its name."""
    import torch.distributed as dist

    made = _multiprocessing.SemLock(1, 1, 1, "/mp-common", False) if rank.rank == 0 else None
    dist.barrier()
    made = made or _multiprocessing.SemLock._rebuild(0, 1, 1, "/mp-common")
    dist.barrier()
    if rank.rank == 0:
        _multiprocessing.sem_unlink("/mp-common")
    made.acquire(False)  # who gets it is decided in memory
    return 1
