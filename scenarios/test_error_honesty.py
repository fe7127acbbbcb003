"""The disk is full, or fails, for one rank while the others wait.

**Report.**  None of one place: a save that fails on one rank and succeeds on the others is how half a checkpoint comes
to be the latest.  The steps of ``caught`` are a common pattern in training loops, made with real calls; ``dcp_save`` is
the real ``torch.distributed.checkpoint``.

**Mechanism.**  A training loop that catches the error of its save, so that training goes on, goes on to the barrier,
too.  After that rank 0 publishes, and nobody but the rank that failed knows.

**What must be found.**

- ``caught``: the save of step 2 returns on a rank although a part of it is missing, and ``latest`` names it.
- ``uncaught``, the rank that fails does not come to the barrier: its peers wait for it, but nothing is published; the
  old checkpoint is there.  Holds, though the job ends.
- ``agreed``, the ranks tell each other how it went before any of them goes on: all of them raise, and nothing is
  published.
- ``dcp_save``: all ranks raise, and the old checkpoint is there.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

import racecheck
from racecheck import DEFAULT, Rank, Verdict, consistent_weights, durable_after_ack, error_honesty, old_survives

FULL = "ENOSPC on open|write|close step-2/rank1.pt nth=each"
BROKEN = "EIO on open|write|close step-2/rank1.pt nth=each"
HONEST = (*DEFAULT, error_honesty, durable_after_ack, old_survives, consistent_weights)


def save_part(rank: Rank, step: int, path: Path) -> None:
    """Write this rank's part of a checkpoint."""
    import torch

    state = {"own": torch.full((64,), step + rank.rank / 10), "step": step}
    rank.saved(state, step=step, at=path)
    path.mkdir(exist_ok=True)
    torch.save(state, path / f"rank{rank.rank}.pt")


def publish(rank: Rank, path: Path) -> None:
    """Rank 0 makes ``latest`` name a checkpoint, and all wait for it."""
    import torch.distributed as dist

    if rank.rank == 0:
        temporary = rank.path / "latest.tmp"
        temporary.write_text(path.name)
        temporary.replace(rank.path / "latest")
    dist.barrier()


def load_latest(rank: Rank) -> None:
    """After the run: load what ``latest`` names, if it is there."""
    import torch

    latest = rank.path / "latest"
    if latest.exists():
        path = rank.path / latest.read_text()
        state = torch.load(path / f"rank{rank.rank}.pt", weights_only=True)
        rank.loaded(state, step=state["step"], at=path)


@racecheck.scenario(faults=(FULL,), invariants=(error_honesty,), expected=Verdict.FAIL, breaks="error-honesty")
def caught(rank: Rank) -> None:
    """A rank that cannot save goes on."""
    import torch.distributed as dist

    for step in (1, 2):
        path = rank.path / f"step-{step}"
        with contextlib.suppress(OSError, RuntimeError):
            save_part(rank, step, path)
        dist.barrier()
        publish(rank, path)
        rank.acked(step=step, at=path)


@racecheck.scenario(faults=(FULL, BROKEN), invariants=HONEST)
def uncaught(rank: Rank) -> None:
    """A rank that cannot save ends."""
    import torch.distributed as dist

    for step in (1, 2):
        path = rank.path / f"step-{step}"
        save_part(rank, step, path)
        dist.barrier()
        publish(rank, path)
        rank.acked(step=step, at=path)


@racecheck.scenario(faults=(FULL, BROKEN), invariants=HONEST)
def agreed(rank: Rank) -> None:
    """All ranks hear how it went on each, and then all publish or all raise."""
    import torch.distributed as dist

    for step in (1, 2):
        path, failure = rank.path / f"step-{step}", ""
        try:
            save_part(rank, step, path)
        except (OSError, RuntimeError) as error:
            failure = f"rank {rank.rank}: {error}"
        failures = [""] * rank.world_size
        dist.all_gather_object(failures, failure)
        if any(failures):
            raise RuntimeError(f"step {step} was not saved: {'; '.join(filter(None, failures))}")
        publish(rank, path)
        rank.acked(step=step, at=path)


@racecheck.scenario(
    faults=tuple(f"{errno} on open|write|fsync|close step-2/__1_0.distcp nth=each" for errno in ("ENOSPC", "EIO")),
    invariants=HONEST,
)
def dcp_save(rank: Rank) -> None:
    """The save of torch itself, with a directory for each step."""
    import torch
    import torch.distributed.checkpoint as dcp

    for step in (1, 2):
        path = rank.path / f"step-{step}"
        state = {f"own{rank.rank}": torch.full((64,), step + rank.rank / 10), "step": torch.tensor(step)}
        rank.saved(state, step=step, at=path)
        dcp.save(state, checkpoint_id=path)
        rank.acked(step=step, at=path)


def load_newest(rank: Rank) -> None:
    """After the run: load the newest checkpoint that has its metadata."""
    import torch
    import torch.distributed.checkpoint as dcp

    complete = sorted(each.parent for each in rank.path.glob("step-*/.metadata"))
    if complete:
        state = {"own0": torch.zeros(64), "own1": torch.zeros(64), "step": torch.tensor(0)}
        dcp.load(state, checkpoint_id=complete[-1])
        rank.loaded(state, step=int(state["step"]), at=complete[-1])


caught.recover(load_latest)
uncaught.recover(load_latest)
agreed.recover(load_latest)
dcp_save.recover(load_newest, ranks=1)


def test_caught(racecheck: Any) -> None:
    racecheck.finds(caught, within=20)


def test_uncaught(racecheck: Any) -> None:
    racecheck.check(uncaught, schedules=10)


def test_agreed(racecheck: Any) -> None:
    racecheck.check(agreed, schedules=10)


@pytest.mark.slow
def test_dcp_save(racecheck: Any) -> None:
    racecheck.check(dcp_save, schedules=14)
