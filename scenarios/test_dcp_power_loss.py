"""``dcp.save`` has returned, and then the power fails.

This is the real ``torch.distributed.checkpoint``.

**Report.**  pytorch #183877, "flush before fsync": ``FileSystemWriter`` called fsync on ``.metadata`` while its content
was still in Python's buffer.

**Mechanism.**  Each step has a directory of its own, so nothing is overwritten.  Still, what ``dcp.save`` has written
when it returns need not be on the disk: ``.metadata.tmp`` is synced before it is written (up to torch 2.13, where it is
smaller than Python's buffer), it is then renamed, and no directory is ever synced.  So the names may be lost, or
``.metadata`` be there without its content.  Who looks for the newest directory with a ``.metadata`` then finds one that
does not load, and does not come to the one before.

**What must be found.**

- ``as_it_is``: a step is lost on which all ranks counted.
- ``pointer_last``: what was saved is synced, files and directories; then a file ``latest`` is written under another
  name, synced, renamed, and its directory synced; then a barrier: holds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import racecheck
from racecheck import DEFAULT, Rank, Verdict, consistent_weights, durable_after_ack, old_survives

REPORT = "pytorch #183877"
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


def load(rank: Rank, path: Path) -> None:
    """Load the weights of all ranks."""
    import torch.distributed.checkpoint as dcp

    state = weights(0, range(2))
    dcp.load(state, checkpoint_id=path)
    rank.loaded(state, step=int(state["step"]), at=path)


def sync(path: Path) -> None:
    """Have a file, or the names in a directory, on stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


@racecheck.scenario(
    report=REPORT,
    faults=("crash",),
    invariants=(durable_after_ack, old_survives),
    expected=Verdict.FAIL,
    breaks="durable-after-ack",
)
def as_it_is(rank: Rank) -> None:
    """Each step has a directory of its own."""
    for step in STEPS:
        save(rank, step, rank.path / f"step-{step}")
        rank.acked(step=step, at=rank.path / f"step-{step}")


@as_it_is.recover(ranks=1)
def load_newest(rank: Rank) -> None:
    """Load the newest checkpoint that has its metadata."""
    complete = sorted(each.parent for each in rank.path.glob("step-*/.metadata"))
    if complete:
        load(rank, complete[-1])


@racecheck.scenario(
    report=REPORT, faults=("crash",), invariants=(*DEFAULT, durable_after_ack, old_survives, consistent_weights)
)
def pointer_last(rank: Rank) -> None:
    """What is there is synced, and then a synced pointer names it."""
    import torch.distributed as dist

    for step in STEPS:
        path = rank.path / f"step-{step}"
        save(rank, step, path)
        if rank.rank == 0:
            for each in (*path.iterdir(), path, rank.path):
                sync(each)
            temporary = rank.path / "latest.tmp"
            temporary.write_text(path.name)
            sync(temporary)
            temporary.replace(rank.path / "latest")
            sync(rank.path)
        dist.barrier()
        rank.acked(step=step, at=path)


@pointer_last.recover(ranks=1)
def load_latest(rank: Rank) -> None:
    """Load what ``latest`` names, if it is there."""
    if (rank.path / "latest").exists():
        load(rank, rank.path / (rank.path / "latest").read_text())


def test_as_it_is(racecheck: Any) -> None:
    racecheck.finds(as_it_is, within=5)


def test_pointer_last(racecheck: Any) -> None:
    racecheck.check(pointer_last, schedules=2)
