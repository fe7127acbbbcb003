"""Loops that wait, forever or for a long time (virtual: a sleep here takes no real time)."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from pathlib import Path

import racecheck
from racecheck import Rank


def _barrier() -> None:
    import torch.distributed as dist

    dist.barrier()


def _await(path: Path) -> None:
    while not path.exists():
        time.sleep(0.1)


@racecheck.scenario(ranks=2)
def for_each_other(rank: Rank) -> None:
    """Each waits for the other's file."""
    _await(rank.path / f"file{1 - rank.rank}")
    (rank.path / f"file{rank.rank}").touch()


@racecheck.scenario(ranks=2)
def beside_a_barrier(rank: Rank) -> None:
    """Rank 0 waits in a collective."""
    if rank.rank == 1:
        _await(rank.path / "file")
    _barrier()
    (rank.path / "file").touch()


@racecheck.scenario(ranks=2)
def left_lock(rank: Rank) -> None:
    """An earlier job has left its lock."""
    (rank.path / "lock").touch()
    while True:
        try:
            return os.close(os.open(rank.path / "lock", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            time.sleep(0.05)


@racecheck.scenario(ranks=1)
def alone(rank: Rank) -> None:
    """Two waits in turn, of different lengths."""
    while not (rank.path / "a").exists() and not (rank.path / "b").exists():
        time.sleep(1)
        time.sleep(20)


@racecheck.scenario(ranks=2)
def counted(rank: Rank) -> None:
    """It gives up after 70 turns."""
    for _ in range(70):
        if (rank.path / "file").exists():
            break
        time.sleep(1)
    _barrier()


class _Waiter:
    def __init__(self) -> None:
        self.turns = {"left": [70]}

    def is_over(self) -> bool:
        self.turns["left"][0] -= 1
        return self.turns["left"][0] == 0


@racecheck.scenario(ranks=1)
def counted_elsewhere(rank: Rank) -> None:
    """An object counts the turns."""
    waiter = _Waiter()
    while not (rank.path / "file").exists() and not waiter.is_over():
        time.sleep(1)


@racecheck.scenario(ranks=1)
def iterated(rank: Rank) -> None:
    """An iterator counts them."""
    turns = itertools.repeat(None, 70)
    for _ in turns:
        if (rank.path / "file").exists():
            break
        time.sleep(1)


@racecheck.scenario(ranks=2)
def timed(rank: Rank) -> None:
    """It gives up after 2 minutes."""
    end = time.monotonic() + 120
    while not (rank.path / "file").exists() and time.monotonic() < end:
        time.sleep(2)
    _barrier()


@racecheck.scenario(ranks=2)
def slow_peer(rank: Rank) -> None:
    """The other one takes a minute."""
    if rank.rank == 0:
        time.sleep(60)
        (rank.path / "file").touch()
    else:
        _await(rank.path / "file")


@racecheck.scenario(ranks=1)
def alarmed(rank: Rank) -> None:
    """A signal ends it."""

    def end(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, end)
    signal.alarm(60)
    try:
        _await(rank.path / "file")
    except TimeoutError:
        os.stat(rank.path)


@racecheck.scenario(ranks=1)
def watched(rank: Rank) -> None:
    """A thread ends it when it has waited."""
    is_over = threading.Event()
    late = threading.Event()

    def end() -> None:
        late.wait(400)
        is_over.set()

    watcher = threading.Thread(target=end)
    watcher.start()
    while not (rank.path / "file").exists() and not is_over.is_set():
        time.sleep(5)
    watcher.join()
