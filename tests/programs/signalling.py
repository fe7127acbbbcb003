"""Scenarios in which a rank sends a signal to others, by every way.  Not collected by pytest.

They run under control, where a sleep takes virtual time: nothing here waits.
"""

import os
import signal
import threading
import time
from collections.abc import Callable

from racecheck import Rank, scenario


def pids(rank: Rank, own: int) -> list[int]:
    """The numbers of all ranks."""
    import torch.distributed as dist

    found: list[int] = [0] * rank.world_size
    dist.all_gather_object(found, own)
    (rank.path / str(rank.rank)).touch()
    dist.barrier()
    return found


def sends(rank: Rank, own: int, send: Callable[[int], None]) -> None:
    """Rank 0 sends something to rank 1, while all are still there."""
    other = pids(rank, own)[1]
    if rank.rank == 0:
        send(other)
    time.sleep(1)


@scenario(ranks=3)
def by_number(rank: Rank) -> None:
    sends(rank, os.getpid(), lambda other: os.kill(other, signal.SIGTERM))


@scenario(ranks=3)
def by_descriptor(rank: Rank) -> None:
    sends(rank, os.getpid(), lambda other: signal.pidfd_send_signal(os.pidfd_open(other), signal.SIGTERM))


@scenario(ranks=3)
def by_group(rank: Rank) -> None:
    sends(rank, os.getpgrp(), lambda other: os.killpg(other, signal.SIGTERM))


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


@scenario(ranks=1)
def shells(rank: Rank) -> int:
    """The rank runs a shell, which handles SIGCHLD, and waits for its commands."""
    import subprocess

    place = rank.path / str(rank.rank)
    place.mkdir()
    (place / "a").write_text("a")
    return subprocess.run(["sh", "-c", "cp a b && mv b c"], cwd=place, check=False).returncode


@scenario(ranks=1)
def handles_children(rank: Rank) -> list[int]:
    """A handler of SIGCHLD runs while the process is at work: it may run earlier or later."""
    import subprocess

    found: list[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: found.append(len(os.listdir(rank.path))))
    child = subprocess.Popen(["touch", rank.path / "child"])
    for number in range(3):
        (rank.path / str(number)).touch()
    child.wait()
    return found


def starve(pid: int) -> None:
    """Have a process run only if its processor has nothing else to do: with a busy loop there, it dies slowly."""
    os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


@scenario(ranks=2)
def starved_peer(rank: Rank) -> None:
    """A rank that sleeps dies while its peer goes on."""
    other = pids(rank, os.getpid())[1]
    if rank.rank == 0:
        starve(other)
        os.kill(other, signal.SIGTERM)
        for number in range(2, 5):
            (rank.path / str(number)).touch()
    else:
        time.sleep(1)
        (rank.path / "late").touch()
