"""``dcp.save`` has made one file of safetensors of the shards, and then the power fails.

This is the real ``torch.distributed.checkpoint`` with its ``HuggingFaceStorageWriter``.

**Report.**  None that is public; of ``.metadata``, which this writer has not, it is pytorch #183877.

**Mechanism.**  ``HuggingFaceStorageWriter(save_distributed=True, enable_consolidation=True)`` has each rank write and
sync its shards in ``sharded/``.  Rank 0 then puts them together in ``model-00001-of-00001.safetensors``, and writes
``model.safetensors.index.json`` (``_consolidate_hf_safetensors.py``, torch 2.13).  These two, which are what everybody
loads, are never synced, and no directory is, though ``sync_files`` of ``FileSystemWriter`` ("force files to be synced
to permanent storage") is on by default and cannot be turned off here.  So the index, written last, may be there, and
the weights that it names may not.

**What must be found.**

- ``as_it_is``: a step is lost on which all ranks counted: its file is cut short, or what loads was never saved.
- ``pointer_last``: what was saved is synced, files and directories, and then a synced pointer names it: holds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import racecheck
from racecheck import DEFAULT, Rank, Verdict, consistent_weights, durable_after_ack, old_survives

INDEX = "model.safetensors.index.json"
SURVIVES = (*DEFAULT, durable_after_ack, old_survives, consistent_weights)


def weights(value: float) -> dict[str, Any]:
    """A sharded tensor."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return {"layer": distribute_tensor(torch.arange(8.0) + value, mesh, [Shard(0)])}


def save(rank: Rank, path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    state = weights(1.0)
    rank.saved(state, step=1, at=path)
    writer = dcp.HuggingFaceStorageWriter(str(path), save_distributed=True, enable_consolidation=True)
    dcp.save(state, storage_writer=writer)


def load(rank: Rank, path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    state = weights(0.0)
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(path)))
    rank.loaded(state, step=1, at=path)


def sync(path: Path) -> None:
    """Have a file, or the names in a directory, on stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


@racecheck.scenario(
    ranks=1, faults=("crash",), invariants=(durable_after_ack,), expected=Verdict.FAIL, breaks="durable-after-ack"
)
def as_it_is(rank: Rank) -> None:
    """The index says that a step is there."""
    save(rank, rank.path / "step-1")
    rank.acked(step=1, at=rank.path / "step-1")


@as_it_is.recover(ranks=1)
def load_newest(rank: Rank) -> None:
    """Load the step that has its index."""
    if (rank.path / "step-1" / INDEX).exists():
        load(rank, rank.path / "step-1")


@racecheck.scenario(ranks=1, faults=("crash",), invariants=SURVIVES)
def pointer_last(rank: Rank) -> None:
    """What is there is synced, and then a synced pointer names it."""
    import torch.distributed as dist

    path = rank.path / "step-1"
    save(rank, path)
    if rank.rank == 0:
        for each in (*path.glob("model*"), path, rank.path):
            sync(each)
        temporary = rank.path / "latest.tmp"
        temporary.write_text(path.name)
        sync(temporary)
        temporary.replace(rank.path / "latest")
        sync(rank.path)
    dist.barrier()
    rank.acked(step=1, at=path)


@pointer_last.recover(ranks=1)
def load_latest(rank: Rank) -> None:
    """Load what ``latest`` names, if it is there."""
    if (rank.path / "latest").exists():
        load(rank, rank.path / (rank.path / "latest").read_text())


def test_as_it_is(racecheck: Any) -> None:
    racecheck.finds(as_it_is, within=2)


def test_pointer_last(racecheck: Any) -> None:
    racecheck.check(pointer_last, schedules=2)
