"""Two scenarios that differ only in the number of ops, so the difference is the cost of ops; one with a long proof."""

from __future__ import annotations

import os

import racecheck
from racecheck import Rank

FEW, MANY = 5, 25


def make_and_remove(rank: Rank, times: int) -> None:
    import torch.distributed as dist

    own = rank.path / str(rank.rank)
    for _ in range(times):
        own.mkdir()
        own.rmdir()
    dist.barrier()


@racecheck.scenario(ranks=4)
def few(rank: Rank) -> None:
    make_and_remove(rank, FEW)


@racecheck.scenario(ranks=4)
def many(rank: Rank) -> None:
    make_and_remove(rank, MANY)


@racecheck.scenario(ranks=3)
def appends(rank: Rank) -> None:
    """Its proof has 560 traces: the orders of three, three and two writes."""
    import torch.distributed as dist

    if rank.rank == 0:
        (rank.path / "log").touch()
    dist.barrier()
    log = os.open(rank.path / "log", os.O_WRONLY | os.O_APPEND)
    for _ in range(2 if rank.rank == 2 else 3):
        os.write(log, b"%d" % rank.rank)
    os.close(log)
