"""nanochat #315: rank 0 makes the directory of the checkpoint, and the others do not wait for it.

These are the steps of ``save_checkpoint`` as the report gives them, made with real calls, not the real nanochat.

**Report.**  karpathy/nanochat #315: only rank 0 makes the directory, and every rank saves its part of the optimizer
into it.  A fast rank saves first and ends in "RuntimeError: Parent directory .../base_checkpoints/d20 does not exist".
With PR #336 every rank makes the directory, which may exist already.

**Mechanism.**  Nothing orders rank 0's making of the directory before the other ranks' opening of files in it.

**What must be found.**

- ``racy``, as reported: the RuntimeError.  (torch.save writes from C++, so it is no FileNotFoundError.)
- ``check_then_make``, the fix that suggests itself, where every rank makes the directory if there is none: two ranks
  find none, and one ends in FileExistsError.  NVIDIA/Megatron-LM #58 and deepspeedai/DeepSpeedExamples #372 are
  of that kind.
- ``every_rank_makes_it`` (#336) holds, on one file system that all ranks see alike.
- ``barrier``, where rank 0 makes it and all wait (deepspeedai/DeepSpeed #4536), holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import racecheck
from racecheck import DEFAULT, Outcome, Rank, Returned, Verdict, Violation

CHECKPOINT = "base_checkpoints/d20"


def save_optimizer(rank: Rank) -> None:
    """Every rank saves its own part."""
    import torch

    torch.save(torch.full((4,), float(rank.rank)), rank.path / CHECKPOINT / f"optim_{rank.rank}.pt")


def all_parts_saved(outcome: Outcome) -> Iterator[Violation]:
    """A rank that has returned has its part in the checkpoint, with content."""
    for rank, result in enumerate(outcome.results):
        entry = outcome.disk.get(f"{CHECKPOINT}/optim_{rank}.pt")
        if isinstance(result, Returned) and (entry is None or not entry.size):
            yield Violation("all-parts-saved", f"the part of rank {rank} is missing or empty", (rank,))


INVARIANTS = (*DEFAULT, all_parts_saved)


@racecheck.scenario(
    ranks=2,
    report="karpathy/nanochat#315",
    invariants=INVARIANTS,
    expected=Verdict.FAIL,
    breaks="no-unexpected-errors",
)
def racy(rank: Rank) -> None:
    """As reported: rank 0 makes the directory, all save."""
    if rank.rank == 0:
        os.makedirs(rank.path / CHECKPOINT, exist_ok=True)
    save_optimizer(rank)


@racecheck.scenario(
    ranks=2,
    report="NVIDIA/Megatron-LM#58",
    invariants=INVARIANTS,
    expected=Verdict.FAIL,
    breaks="no-file-errors",
)
def check_then_make(rank: Rank) -> None:
    """Every rank makes the directory if it finds none."""
    directory = Path(rank.path / CHECKPOINT)
    if not directory.exists():
        os.makedirs(directory)
    save_optimizer(rank)


@racecheck.scenario(ranks=2, report="karpathy/nanochat#336", invariants=INVARIANTS)
def every_rank_makes_it(rank: Rank) -> None:
    """The fix of #336: every rank makes the directory, and it may exist already."""
    os.makedirs(rank.path / CHECKPOINT, exist_ok=True)
    save_optimizer(rank)


@racecheck.scenario(ranks=2, report="deepspeedai/DeepSpeed#4536", invariants=INVARIANTS)
def barrier(rank: Rank) -> None:
    """Rank 0 makes the directory, and nobody goes on before it has."""
    import torch.distributed as dist

    if rank.rank == 0:
        os.makedirs(rank.path / CHECKPOINT, exist_ok=True)
    dist.barrier()
    save_optimizer(rank)


def test_racy(racecheck: Any) -> None:
    racecheck.finds(racy, within=20)


def test_check_then_make(racecheck: Any) -> None:
    racecheck.finds(check_then_make, within=20)


def test_every_rank_makes_it(racecheck: Any) -> None:
    racecheck.check(every_rank_makes_it, schedules=20)


def test_barrier(racecheck: Any) -> None:
    racecheck.check(barrier, schedules=20)
