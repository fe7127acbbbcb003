"""Scenarios in which a rank sends a signal to others, by every way.  Not collected by pytest."""

import os
import signal
import threading
import time

from racecheck import Rank, scenario


def pids(rank: Rank, own: int) -> list[int]:
    """The numbers of all ranks."""
    import torch.distributed as dist

    found: list[int] = [0] * rank.world_size
    dist.all_gather_object(found, own)
    (rank.path / str(rank.rank)).touch()
    dist.barrier()
    return found


@scenario(ranks=3)
def by_number(rank: Rank) -> None:
    other = pids(rank, os.getpid())[1]
    if rank.rank == 0:
        os.kill(other, signal.SIGTERM)
    time.sleep(1)


@scenario(ranks=3)
def by_descriptor(rank: Rank) -> None:
    other = pids(rank, os.getpid())[1]
    if rank.rank == 0:
        signal.pidfd_send_signal(os.pidfd_open(other), signal.SIGTERM)
    time.sleep(1)


@scenario(ranks=3)
def by_group(rank: Rank) -> None:
    other = pids(rank, os.getpgrp())[1]
    if rank.rank == 0:
        os.killpg(other, signal.SIGTERM)
    time.sleep(1)


@scenario(ranks=3)
def itself(rank: Rank) -> None:
    """A rank's group is its own, as under torchrun."""
    pids(rank, 0)
    if rank.rank == 1:
        os.killpg(os.getpgrp(), signal.SIGTERM)


@scenario(ranks=3)
def asks(rank: Rank) -> None:
    """Whether the others are there (signal 0), and a signal to a thread of its own."""
    for each in pids(rank, os.getpid()):
        os.kill(each, 0)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    time.sleep(1)
