"""PyTorch forum 217025: a distributed checkpoint on the disks of two nodes.

These are the real ``torch.distributed.checkpoint`` and the real FSDP2, on 2 nodes with 4 ranks and a disk each.

**Report.**  discuss.pytorch.org/t/217025, "Torch.distributed.checkpoint cannot load checkpoint files in multiple node
environment": torch 2.6, 8 ranks on 2 servers.  ``.metadata`` is written on node 0 only, and node 1 cannot load.  Two
things more are asked: how to go on when a node fails and only ``__0_0.distcp`` to ``__3_0.distcp`` are left; and
whether each node can save the full state in one file, to be scattered when it is loaded.

**Mechanism.**  ``dcp.save`` takes its path to be the same place for all ranks: each writes its own shard there, and
rank 0 the metadata.  Every rank reads the metadata when it loads, and whatever shards it needs.

**What must be found.**  No races: each fails, or holds, in every order of calls.

- ``shards``, as reported: in ``dcp.load`` ranks 4 to 7 find no metadata, and with them it fails on all ranks.
- ``one_node_left``, the first question: nothing can be resumed.  4 ranks on node 0 have the metadata, and ranks 0 and 1
  even all the shards that they need; ranks 2 and 3 miss those of node 1 (``__4_0.distcp``, ``__6_0.distcp``), and with
  them it fails on all ranks.  (Of node 1 alone, without metadata, nothing can be loaded at all.)
- ``metadata_on_both``, the fix that suggests itself: the metadata is copied to node 1.  It holds as long as every rank
  loads just what it has saved, so: as many ranks, each on its old node, and a state of nothing but shards.
- ``metadata_and_step``: the same with the number of the step in the state, which all ranks have.  DCP writes it once,
  to the file of one rank, here on node 0: ranks 4 to 7 miss it.
- ``full_state``, the second question: the first rank of each node writes the whole state, and when it is loaded, rank 0
  scatters its node's file.  It holds.  So does ``full_state_each``, where every rank cuts its shards out of its own
  node's file, and ``full_state_one_node``, where one node goes on alone.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

import racecheck
from racecheck import DEFAULT, Rank, Verdict, all_shards_present, consistent_weights, nothing_left_over

REPORT = "discuss.pytorch.org/t/217025"
STEP = 1
SHARDS = "checkpoint"
METADATA = f"{SHARDS}/.metadata"
FULL = "model.pt"
RESUMED = (*DEFAULT, consistent_weights)


def make_model(rank: Rank, seed: int) -> Any:
    """A small model, sharded over all ranks."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(seed)
    model = torch.nn.Linear(4, 16)
    fully_shard(model, mesh=init_device_mesh("cpu", (rank.world_size,)))
    return model


def trained(rank: Rank) -> Any:
    """The model after a step, for which each rank has seen other data."""
    import torch

    model = make_model(rank, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.full((2, 4), rank.rank + 1.0)).sum().backward()
    optimizer.step()
    return model


def fresh(rank: Rank) -> Any:
    """A model with other weights, to load into."""
    return make_model(rank, seed=1)


def shards_of(model: Any) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    return {"model": get_model_state_dict(model)}


def save_shards(rank: Rank, state: dict[str, Any]) -> None:
    import torch.distributed.checkpoint as dcp

    rank.saved(state, step=STEP, at=rank.path / SHARDS)
    dcp.save(state, checkpoint_id=rank.path / SHARDS)


def load_shards(rank: Rank, state: dict[str, Any]) -> None:
    import torch.distributed.checkpoint as dcp

    dcp.load(state, checkpoint_id=rank.path / SHARDS)
    rank.loaded(state, step=STEP, at=rank.path / SHARDS)


def copy_metadata(rank: Rank) -> None:
    """Give every other node the metadata that rank 0 has written."""
    import torch.distributed as dist

    content = [(rank.path / METADATA).read_bytes() if rank.rank == 0 else b""]
    dist.broadcast_object_list(content, src=0)
    if rank.local_rank == 0 and rank.node != 0:
        (rank.path / METADATA).write_bytes(content[0])
    dist.barrier()


def resume(rank: Rank) -> None:
    """Load the shards of the model."""
    load_shards(rank, shards_of(fresh(rank)))


def resume_with_step(rank: Rank) -> None:
    """Load the shards of the model and the step."""
    load_shards(rank, {**shards_of(fresh(rank)), "step": 0})


def scatter(rank: Rank) -> None:
    """Rank 0 reads its node's file, and each rank gets its shards of it."""
    import torch
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    model = fresh(rank)
    state = torch.load(rank.path / FULL, weights_only=True)["model"] if rank.rank == 0 else {}
    set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    rank.loaded(shards_of(model), step=STEP, at=rank.path / FULL)


def every_rank_reads(rank: Rank) -> None:
    """Each rank takes its shards out of its own node's file."""
    import torch
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    model = fresh(rank)
    state = torch.load(rank.path / FULL, weights_only=True)["model"]
    set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))
    rank.loaded(shards_of(model), step=STEP, at=rank.path / FULL)


@racecheck.scenario(ranks=8, nodes=2, storage="node-local", report=REPORT, expected=Verdict.FAIL, breaks="recovers")
def shards(rank: Rank) -> None:
    """As reported: each rank saves its shard to its node's disk."""
    save_shards(rank, shards_of(trained(rank)))


@racecheck.scenario(ranks=8, nodes=2, storage="node-local", report=REPORT, expected=Verdict.FAIL, breaks="recovers")
def one_node_left(rank: Rank) -> None:
    """The same; then node 1 is lost, and the 4 ranks of node 0 go on."""
    save_shards(rank, shards_of(trained(rank)))


@racecheck.scenario(ranks=8, nodes=2, storage="node-local", report=REPORT, invariants=RESUMED)
def metadata_on_both(rank: Rank) -> None:
    """The metadata is copied, and a rank finds its own shard where it has left it."""
    save_shards(rank, shards_of(trained(rank)))
    copy_metadata(rank)


@racecheck.scenario(ranks=8, nodes=2, storage="node-local", report=REPORT, expected=Verdict.FAIL, breaks="recovers")
def metadata_and_step(rank: Rank) -> None:
    """The same, and the state has something that is not sharded."""
    save_shards(rank, {**shards_of(trained(rank)), "step": STEP})
    copy_metadata(rank)


def save_full(rank: Rank) -> None:
    """The first rank of each node writes the whole state."""
    import torch
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    state = {"model": get_model_state_dict(trained(rank), options=StateDictOptions(full_state_dict=True))}
    rank.saved(state, step=STEP, at=rank.path / FULL)
    if rank.local_rank == 0:
        temporary = rank.path / f"{FULL}.tmp"
        torch.save(state, temporary)
        os.replace(temporary, rank.path / FULL)


in_one_file = racecheck.scenario(
    ranks=8,
    nodes=2,
    storage="node-local",
    report=REPORT,
    invariants=(*RESUMED, all_shards_present, nothing_left_over),
)


@in_one_file
def full_state(rank: Rank) -> None:
    """A full state per node; all ranks go on, and rank 0 scatters."""
    save_full(rank)


@in_one_file
def full_state_each(rank: Rank) -> None:
    """A full state per node; all ranks go on, and each reads its node's file."""
    save_full(rank)


@in_one_file
def full_state_one_node(rank: Rank) -> None:
    """A full state per node; then one node is lost, and 4 ranks go on."""
    save_full(rank)


shards.recover(resume)
one_node_left.recover(resume, ranks=4, nodes=1)
metadata_on_both.recover(resume)
metadata_and_step.recover(resume_with_step)
full_state.recover(scatter)
full_state_each.recover(every_rank_reads)
full_state_one_node.recover(scatter, ranks=4, nodes=1)


def test_shards(racecheck: Any) -> None:
    racecheck.finds(shards, within=20)


def test_one_node_left(racecheck: Any) -> None:
    racecheck.finds(one_node_left, within=20)


@pytest.mark.slow
def test_metadata_on_both(racecheck: Any) -> None:
    racecheck.check(metadata_on_both, schedules=3)


def test_metadata_and_step(racecheck: Any) -> None:
    racecheck.finds(metadata_and_step, within=20)


def test_full_state(racecheck: Any) -> None:
    racecheck.check(full_state, schedules=3)


def test_full_state_each(racecheck: Any) -> None:
    racecheck.check(full_state_each, schedules=3)


def test_full_state_one_node(racecheck: Any) -> None:
    racecheck.check(full_state_one_node, schedules=3)
