"""The next ``dcp.async_save`` begins while the one before is under way.

This is the real ``torch.distributed.checkpoint``.

**Report.**  None that is public.  PyTorch's recipe for asynchronous saving waits for the save before, to avoid "queuing
more than one checkpoint request at a time"; that it must is written nowhere, and ``async_save`` does not see to it.

**Mechanism.**  Each call makes a thread of its own, which goes through the collectives of ``dcp.save`` (torch 2.13,
``_ThreadBasedAsyncCheckpointExecutor``).  Two of them share the process group, and which comes first is each rank's own
luck: a rank's plan for one step meets the other's for the next.

**What must be found.**

- ``at_once``: the ranks come to the collectives of the two saves in different order.
- ``in_turn``, as in the recipe: holds.
- ``own_groups``, a process group for each of the two: holds.
"""

from __future__ import annotations

from typing import Any

import pytest

import racecheck
from racecheck import DEFAULT, Rank, Verdict, consistent_weights

SOUND = (*DEFAULT, consistent_weights)
STEPS = (1, 2)


def begin(rank: Rank, step: int, group: Any) -> Any:
    import torch
    import torch.distributed.checkpoint as dcp

    state = {f"own{rank.rank}": torch.full((8,), step + rank.rank / 10)}
    rank.saved(state, step=step)
    return dcp.async_save(state, checkpoint_id=rank.path / f"step-{step}", process_group=group)


@racecheck.scenario(invariants=SOUND, expected=Verdict.FAIL, breaks="equal-collectives")
def at_once(rank: Rank) -> None:
    """Two saves in one group."""
    import torch.distributed as dist

    group = dist.new_group()
    for each in [begin(rank, step, group) for step in STEPS]:
        each.result()


@racecheck.scenario(invariants=SOUND)
def in_turn(rank: Rank) -> None:
    """The second begins when the first is done."""
    import torch.distributed as dist

    group = dist.new_group()
    for step in STEPS:
        begin(rank, step, group).result()


@racecheck.scenario(invariants=SOUND)
def own_groups(rank: Rank) -> None:
    """Two saves at once, each in a group of its own."""
    import torch.distributed as dist

    groups = [dist.new_group() for _ in STEPS]
    for each in [begin(rank, step, group) for step, group in zip(STEPS, groups, strict=True)]:
        each.result()


def load(rank: Rank) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    for step in STEPS:
        state = {f"own{rank.rank}": torch.zeros(8)}
        dcp.load(state, checkpoint_id=rank.path / f"step-{step}")
        rank.loaded(state, step=step)


for each in (at_once, in_turn, own_groups):
    each.recover(load)


def test_at_once(racecheck: Any) -> None:
    racecheck.finds(at_once, within=20)


def test_in_turn(racecheck: Any) -> None:
    racecheck.check(in_turn, schedules=5)


@pytest.mark.slow
def test_own_groups(racecheck: Any) -> None:
    racecheck.check(own_groups, schedules=5)
