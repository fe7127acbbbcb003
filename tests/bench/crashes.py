"""Savers whose crash states are many, for the benchmark of crashes."""

from __future__ import annotations

from typing import Any

import racecheck
from racecheck import Rank, recovers

PARTS = 6


def state(rank: int, step: int) -> dict[str, Any]:
    import torch

    return {"weights": torch.full((1200,), float(rank + step)), "step": step}


@racecheck.scenario(ranks=2, invariants=(recovers,))
def parts(rank: Rank) -> None:
    """Each rank writes a few files of 5 KB and syncs none of them; then a pointer says that they are there."""
    import torch
    import torch.distributed as dist

    directory = rank.path / "step2"
    directory.mkdir(exist_ok=True)
    for part in range(PARTS // rank.world_size):
        torch.save(state(rank.rank, part), directory / f"{rank.rank}_{part}.pt")
    dist.barrier()
    if rank.rank == 0:
        (rank.path / "latest").write_text("step2")


@parts.recover(ranks=1)
def load_parts(rank: Rank) -> int:
    """Two of the files, 10 KB, are read if they are there."""
    import torch

    found = 0
    for path in sorted(rank.path.glob("step2/?_0.pt")):
        if path.stat().st_size > 4000:
            found += int(torch.load(path, weights_only=False)["step"] >= 0)
    return found


@racecheck.scenario(ranks=2, invariants=(recovers,))
def dcp_save(rank: Rank) -> None:
    """`torch.distributed.checkpoint`, unmodified, 10 KB."""
    import torch
    import torch.distributed.checkpoint as dcp

    own = {f"own{rank.rank}": torch.full((1200,), 1.0), "common": torch.ones(100)}
    dcp.save(own, checkpoint_id=rank.path / "checkpoint")
    rank.acked(step=1)


@dcp_save.recover(ranks=1)
def dcp_load(rank: Rank) -> int:
    import torch
    import torch.distributed.checkpoint as dcp

    if not (rank.path / "checkpoint" / ".metadata").exists():
        return 0
    found = {"own0": torch.zeros(1200), "own1": torch.zeros(1200), "common": torch.zeros(100)}
    dcp.load(found, checkpoint_id=rank.path / "checkpoint")
    return 1
