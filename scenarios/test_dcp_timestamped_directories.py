"""PyTorch forum 222561: every rank names the checkpoint directory after its own clock.

This is the real ``torch.distributed.checkpoint.save`` of a model that the real FSDP2 has sharded.

**Report.**  discuss.pytorch.org/t/222561, "Torch.distributed.dcp.save does not save on all ranks": torch 2.6, FSDP2 on
8 GPUs, a shared file system.  Not all ranks' ``.distcp`` files are there, though every once in a while they are.  The
log shows it: the ranks save to ``...-193345``, ``...-193346`` and ``...-193347``.

**Mechanism.**  The name has the seconds in it, and each rank makes it for itself.  ``dcp.save`` never compares the
names: every rank makes the directory that it was given and writes its shard there, and the collectives in between carry
the plan, not the path.  So it returns on all ranks without an error, and the metadata, in rank 0's directory, promises
shards that lie elsewhere.  It comes out when somebody loads.  (Ranks of one machine have one clock, and come to that
line at different times.  Here their clocks differ, which is the same to the name.)

**What must be found.**

- ``own_clock``, as reported: rank 0's directory lacks shards.  No race: no order of calls helps.
- ``barriers``, what is tried first: a barrier on either side of the save, and clocks that are a millisecond apart.  It
  makes the window small and does not close it: this is a save in which a second ends in between.
- ``same_second``: the same code where it does not.  It holds, and that is "every once in a while".
- ``one_name``, the fix: rank 0 makes the name and broadcasts it.  It holds, whatever the clocks say.

What is loaded is what ``dcp_to_torch_save`` makes of the directory that has the metadata.  4 ranks take half the time
of the report's 8 (``--ranks 8``), which show the same.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import racecheck
from racecheck import (
    DEFAULT,
    Rank,
    Verdict,
    all_shards_present,
    consistent_weights,
    same_checkpoint,
)

STEP = 1
REPORT = "discuss.pytorch.org/t/222561"
INVARIANTS = (*DEFAULT, same_checkpoint, all_shards_present, consistent_weights)

SECONDS_APART = (1.0, 0.0, 2.0, 0.0)
MILLISECONDS_APART = (0.0, 0.001, 0.002, 0.001)
"""How far the clock of each rank goes ahead (of more ranks: not at all)."""

UNTIL_THE_LAST_MILLISECOND = 0.9985
"""A run begins with a full second; after this sleep some clocks are in the next one and some are not."""


def train(rank: Rank) -> Any:
    """One step of a sharded model; every rank has seen other data.  Gives the sharded state."""
    import torch
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 16)
    fully_shard(model, mesh=init_device_mesh("cpu", (rank.world_size,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.full((2, 4), rank.rank + 1.0)).sum().backward()
    optimizer.step()
    return {"model": get_model_state_dict(model)}


def name_now(rank: Rank) -> Path:
    """The directory, named after this rank's clock."""
    return rank.path / time.strftime("sft-%Y-%m-%d-%H%M%S")


def save(rank: Rank, state: Any, directory: Path) -> None:
    import torch.distributed.checkpoint as dcp

    rank.saved(state, step=STEP, at=directory)
    dcp.save(state, checkpoint_id=directory)


def save_between_barriers(rank: Rank) -> None:
    import torch.distributed as dist

    state = train(rank)
    dist.barrier()
    save(rank, state, name_now(rank))
    dist.barrier()


def convert(rank: Rank) -> None:
    """Make one file of the directory that has the metadata, and load it."""
    import torch
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    [metadata] = rank.path.glob("*/.metadata")
    dcp_to_torch_save(metadata.parent, rank.path / "model.pt")
    rank.loaded(torch.load(rank.path / "model.pt", weights_only=True), step=STEP, at=metadata.parent)


@racecheck.scenario(
    ranks=4,
    skew=SECONDS_APART,
    report=REPORT,
    invariants=INVARIANTS,
    expected=Verdict.FAIL,
    breaks="all-shards-present",
)
def own_clock(rank: Rank) -> None:
    """As reported: each rank asks its own clock."""
    state = train(rank)
    save(rank, state, name_now(rank))


@racecheck.scenario(
    ranks=4,
    skew=MILLISECONDS_APART,
    report=REPORT,
    invariants=INVARIANTS,
    expected=Verdict.FAIL,
    breaks="all-shards-present",
)
def barriers(rank: Rank) -> None:
    """Barriers around the save, just when a second ends."""
    time.sleep(UNTIL_THE_LAST_MILLISECOND)
    save_between_barriers(rank)


@racecheck.scenario(ranks=4, skew=MILLISECONDS_APART, report=REPORT, invariants=INVARIANTS)
def same_second(rank: Rank) -> None:
    """The same in the middle of a second."""
    save_between_barriers(rank)


@racecheck.scenario(ranks=4, skew=SECONDS_APART, report=REPORT, invariants=INVARIANTS)
def one_name(rank: Rank) -> None:
    """The fix: rank 0's clock counts for all."""
    import torch.distributed as dist

    state = train(rank)
    name = [name_now(rank) if rank.rank == 0 else None]
    dist.broadcast_object_list(name, src=0)
    directory = name[0]
    assert directory is not None
    save(rank, state, directory)


own_clock.recover(convert, ranks=1)
barriers.recover(convert, ranks=1)
same_second.recover(convert, ranks=1)
one_name.recover(convert, ranks=1)


def test_own_clock(racecheck: Any) -> None:
    racecheck.finds(own_clock, within=20)


def test_barriers(racecheck: Any) -> None:
    racecheck.finds(barriers, within=20)


def test_same_second(racecheck: Any) -> None:
    racecheck.check(same_second, schedules=8)


def test_one_name(racecheck: Any) -> None:
    racecheck.check(one_name, schedules=8)
