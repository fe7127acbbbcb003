"""``dcp.save`` over the checkpoint before: what a kill leaves of it.

This is the real ``torch.distributed.checkpoint``.

**Report.**  None that is public: it follows from how ``FileSystemWriter`` (torch up to 2.14) writes, and shows when the
job is killed in its second save to the same ``checkpoint_id``.

**Mechanism.**  Each rank opens its file (``__0_0.distcp``) with O_TRUNC, in place.  When all have written, rank 0
removes ``.metadata`` and renames the new one to this name.  So from the first O_TRUNC on there is no old checkpoint any
more, and until the rename no new one.  And when one rank has written and the other is slow to begin, the old
``.metadata`` fits the new file of the one and the old file of the other: that loads, without any error, as weights of
two steps.

**What must be found.**

- ``overwritten``: killed at one op or another, the job has lost step 1, on which all ranks counted.
- ``mixed``, the same: at one op what loads is a mix of both steps.
- ``directory_per_step``, and load the newest one that has its ``.metadata``: holds, whenever the job is killed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import racecheck
from racecheck import DEFAULT, Rank, Verdict, consistent_weights, durable_after_ack, old_survives

KILLED = ("kill-job on mkdir|open|write|unlink|rename nth=each",)
SURVIVES = (*DEFAULT, durable_after_ack, old_survives, consistent_weights)
STEPS = (1, 2)


def weights(step: int, ranks: range) -> dict[str, Any]:
    """What these ranks have at a step."""
    import torch

    return {f"own{rank}": torch.full((64,), step + rank / 10) for rank in ranks} | {"step": torch.tensor(step)}


def save(rank: Rank, step: int, path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    state = weights(step, range(rank.rank, rank.rank + 1))
    rank.saved(state, step=step, at=path)
    dcp.save(state, checkpoint_id=path)
    rank.acked(step=step, at=path)


def load(rank: Rank, path: Path) -> None:
    """Load the weights of all ranks."""
    import torch.distributed.checkpoint as dcp

    state = weights(0, range(2))
    dcp.load(state, checkpoint_id=path)
    rank.loaded(state, step=int(state["step"]), at=path)


def load_if_there(rank: Rank) -> None:
    if (rank.path / "checkpoint" / ".metadata").exists():
        load(rank, rank.path / "checkpoint")


def load_newest(rank: Rank) -> None:
    complete = sorted(each.parent for each in rank.path.glob("step-*/.metadata"))
    if complete:
        load(rank, complete[-1])


def save_twice(rank: Rank) -> None:
    for step in STEPS:
        save(rank, step, rank.path / "checkpoint")


@racecheck.scenario(
    faults=KILLED, invariants=(durable_after_ack, old_survives), expected=Verdict.FAIL, breaks="old-survives"
)
def overwritten(rank: Rank) -> None:
    """Both steps go to one directory."""
    save_twice(rank)


@racecheck.scenario(faults=KILLED, invariants=(consistent_weights,), expected=Verdict.FAIL, breaks="consistent-weights")
def mixed(rank: Rank) -> None:
    """The same; judged only by what loads."""
    save_twice(rank)


@racecheck.scenario(faults=KILLED, invariants=SURVIVES)
def directory_per_step(rank: Rank) -> None:
    """Each step has a directory of its own."""
    for step in STEPS:
        save(rank, step, rank.path / f"step-{step}")


overwritten.recover(load_if_there, ranks=1)
mixed.recover(load_if_there, ranks=1)
directory_per_step.recover(load_newest, ranks=1)


def test_overwritten(racecheck: Any) -> None:
    racecheck.finds(overwritten, within=40)


def test_mixed(racecheck: Any) -> None:
    racecheck.finds(mixed, within=40)


@pytest.mark.slow
def test_directory_per_step(racecheck: Any) -> None:
    racecheck.check(directory_per_step, schedules=25)
