"""Collectives from which a rank may go on before its peers come."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

import racecheck
from racecheck import Rank


def broadcast(rank: Rank, mine: torch.Tensor) -> Any:
    return dist.broadcast(mine, 0, async_op=True)


def send(rank: Rank, mine: torch.Tensor) -> Any:
    return dist.isend(mine, 1) if rank.rank == 0 else dist.irecv(mine, 0)


def scatter(rank: Rank, mine: torch.Tensor) -> Any:
    parts = [mine.clone() + each for each in range(rank.world_size)] if rank.rank == 0 else None
    dist.scatter(mine, parts, 0)
    for part in parts or ():
        part.fill_(9)


def gather(rank: Rank, mine: torch.Tensor) -> Any:
    parts = [torch.zeros_like(mine) for _ in range(rank.world_size)] if rank.rank == 1 else None
    work = dist.gather(mine, parts, 1, async_op=True)
    if parts:
        work.wait()
        mine.copy_(parts[0])
    return work


def reduce(rank: Rank, mine: torch.Tensor) -> Any:
    return dist.reduce(mine, 1, async_op=True)


def functional_broadcast(rank: Rank, mine: torch.Tensor) -> Any:
    ops = torch.ops._c10d_functional
    got = ops.wait_tensor(ops.broadcast(mine, 0, dist.group.WORLD.group_name))
    if rank.rank:
        mine.copy_(got)


def broadcast_of_cpp(rank: Rank, mine: torch.Tensor) -> Any:
    dist._broadcast_coalesced(dist.group.WORLD, [mine], 1 << 20, 0)


def broadcast_in_inference(rank: Rank, mine: torch.Tensor) -> Any:
    with torch.inference_mode():
        got = mine.clone()
        dist.broadcast(got, 0)
    mine.copy_(got)


KINDS = {
    each.__name__: each
    for each in (
        broadcast, send, scatter, gather, reduce, functional_broadcast, broadcast_of_cpp, broadcast_in_inference,
    )
}  # fmt: skip


def removes(kind: str) -> Any:
    """Rank 0 takes its part, then removes a file and changes its tensor; rank 1 looks for the file first."""

    def run(rank: Rank) -> Any:
        mine = torch.full((3,), float(rank.rank + 1))
        there = None
        if rank.rank == 1:
            there = (rank.path / "file").exists()
        work = KINDS[kind](rank, mine)
        if work is not None:
            work.wait()
        if rank.rank == 1:
            return [there, mine.tolist()]
        (rank.path / "file").unlink()
        own, _ = mine.tolist(), mine.fill_(7)
        return own

    run.__name__ = kind
    made = racecheck.scenario(ranks=2)(run)
    made.setup(_leave_file)
    return made


def _leave_file(path: Any) -> None:
    (path / "file").write_text("")


for _name in KINDS:
    globals()[_name] = removes(_name)


@racecheck.scenario(ranks=3)
def skips_a_rank(rank: Rank) -> Any:
    """Rank 1 looks for what rank 2 writes behind the broadcast; in gloo's tree ranks may wait for one another."""
    mine = torch.tensor([float(rank.rank)])
    there = (rank.path / "file").exists() if rank.rank else None
    dist.broadcast(mine, 0)
    if rank.rank:
        (rank.path / "file").touch()
    return [there, mine.item()]


@racecheck.scenario(ranks=2)
def leaves(rank: Rank) -> Any:
    """Rank 0 sends, destroys its group and ends; rank 1 comes when it has written a file."""
    mine = torch.full((1 << 18,), float(rank.rank + 1))
    if rank.rank == 1:
        (rank.path / "file").touch()
    dist.broadcast(mine, 0)
    if rank.rank == 0:
        mine.fill_(7)
        dist.destroy_process_group()
        return (rank.path / "file").exists()
    return [mine[0].item(), mine[-1].item()]


@racecheck.scenario(ranks=2)
def many(rank: Rank) -> Any:
    """More broadcasts at a time than gloo has threads, then a barrier."""
    got = []
    for each in range(5):
        mine = torch.tensor([float(each if rank.rank == 0 else -1)])
        dist.broadcast(mine, 0)
        got.append(mine.item())
    dist.barrier()
    return got


@racecheck.scenario(ranks=2)
def never_received(rank: Rank) -> Any:
    """Rank 1 does not come to a barrier behind what rank 0 has sent."""
    if rank.rank == 0:
        dist.send(torch.ones(1), 1)
        dist.barrier()
