"""``latest`` is written before the other ranks are done, and then the job is killed.

These are the steps that several trainers take, made with real calls; DeepSpeed's engine is one of them.

**Report.**  DeepSpeed, ``deepspeed/runtime/engine.py``: ``save_checkpoint`` lets every rank write its part, rank 0 then
writes the file ``latest``, and after that comes ``dist.barrier()``.

**Mechanism.**  Rank 0 writes ``latest`` when its *own* part is there.  If the job is killed before the slowest rank has
finished, ``latest`` names a checkpoint of which a part is empty or missing.  Rewritten in place, it is empty for a
moment itself.

**What must be found.**

- ``latest_first``: killed at one op or another, the job has lost step 1, on which all ranks counted.
- ``in_place``, with the barrier before it: there is still the moment in which ``latest`` is empty.
- ``latest_last``, a barrier, then ``latest`` under another name and renamed: holds, whenever the job is killed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import racecheck
from racecheck import DEFAULT, Rank, Verdict, atomic_publish, consistent_weights, durable_after_ack, old_survives

REPORT = "DeepSpeed engine.py, save_checkpoint"
KILLED = ("slow on open rank1.pt times=all", "kill-job on mkdir|open|write|rename nth=each")
"""Rank 1 is slow, and the job is killed before any op that changes something."""
SURVIVES = (*DEFAULT, durable_after_ack, old_survives, consistent_weights, atomic_publish)
STEPS = (1, 2)


def save_part(rank: Rank, step: int, path: Path) -> None:
    """Write this rank's part of a checkpoint."""
    import torch

    state = {"own": torch.full((64,), step + rank.rank / 10), "step": step}
    rank.saved(state, step=step, at=path)
    path.mkdir(exist_ok=True)
    torch.save(state, path / f"rank{rank.rank}.pt")


def write(path: Path, text: str) -> None:
    """Rewrite a file in place."""
    path.write_text(text)


def replace(path: Path, text: str) -> None:
    """Write under another name, then rename."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)


def load_latest(rank: Rank) -> None:
    """After the run: load what ``latest`` names, if it is there."""
    import torch

    latest = rank.path / "latest"
    if latest.exists():
        path = rank.path / latest.read_text()
        state = torch.load(path / f"rank{rank.rank}.pt", weights_only=True)
        rank.loaded(state, step=state["step"], at=path)


killed = racecheck.scenario(
    report=REPORT, faults=KILLED, invariants=(old_survives,), expected=Verdict.FAIL, breaks="old-survives"
)


@killed
def latest_first(rank: Rank) -> None:
    """Rank 0 writes ``latest``, and then waits for the others."""
    import torch.distributed as dist

    for step in STEPS:
        path = rank.path / f"step-{step}"
        save_part(rank, step, path)
        if rank.rank == 0:
            replace(rank.path / "latest", path.name)
        dist.barrier()
        rank.acked(step=step, at=path)


def save_then_publish(rank: Rank, publish: Callable[[Path, str], None]) -> None:
    """Rank 0 waits for the others, and then publishes."""
    import torch.distributed as dist

    for step in STEPS:
        path = rank.path / f"step-{step}"
        save_part(rank, step, path)
        dist.barrier()
        if rank.rank == 0:
            publish(rank.path / "latest", path.name)
        dist.barrier()
        rank.acked(step=step, at=path)


@killed
def in_place(rank: Rank) -> None:
    """Rank 0 waits for the others, and then rewrites ``latest``."""
    save_then_publish(rank, write)


@racecheck.scenario(report=REPORT, faults=KILLED, invariants=SURVIVES)
def latest_last(rank: Rank) -> None:
    """Rank 0 waits for the others, and then renames a new ``latest`` into place."""
    save_then_publish(rank, replace)


latest_first.recover(load_latest)
in_place.recover(load_latest)
latest_last.recover(load_latest)


def test_latest_first(racecheck: Any) -> None:
    racecheck.finds(latest_first, within=30)


def test_in_place(racecheck: Any) -> None:
    racecheck.finds(in_place, within=30)


def test_latest_last(racecheck: Any) -> None:
    racecheck.check(latest_last, schedules=25)
