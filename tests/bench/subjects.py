"""Two scenarios that differ only in the number of ops: what the difference takes is the cost of ops."""

from __future__ import annotations

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
