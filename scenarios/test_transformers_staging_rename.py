"""transformers #27925: every rank renames the one staging directory to its final name.

These are the steps of the Trainer's save as the reports give them, made with real calls, not the real transformers.

**Report.**  huggingface/transformers #27925, as seen in hiyouga/LlamaFactory #1963 and others: the Trainer of 4.36
writes a checkpoint into a staging directory, and every rank renames it.  Seen are FileNotFoundError, from
``tmp-checkpoint-81`` to ``checkpoint-81`` and on ``trainer_state.json``, and "Directory not empty".  #28009 lets the
main process go first, and the others look before they rename; its review says that the race persists, since looking
and renaming are two steps.  With #28364 the main process alone renames, and flushes the directory.

**Mechanism.**  One rename wins: for all others the source is gone.  A rank that has not yet written loses its
directory; if it makes the staging directory again, the final name is taken when it comes to rename.

**What must be found.**

- ``racy``, as reported: FileNotFoundError.
- ``exists_first``, after #28009: going first orders the renames, not what was written before.  A slow rank comes to
  write ``trainer_state.json``, and the staging directory is gone.  (What the review tells of is said to
  need two nodes.)
- ``main_process_renames``: one rank renames, as soon as it has written itself.  The same.
  (Whether #28364 waits before that is not claimed here.)
- ``everyone_has_written``: the same after a barrier holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import racecheck
from racecheck import DEFAULT, Outcome, Rank, Returned, Verdict, Violation, no_file_errors, nothing_left_over

STAGING = "tmp-checkpoint-81"
FINAL = "checkpoint-81"
STATE = "trainer_state.json"
PARTS = ("optimizer", "scheduler", "rng_state")


def write(rank: Rank) -> None:
    """Every rank writes parts of its own into the staging directory, then the state of the trainer, which all have."""
    import torch

    staging = rank.path / STAGING
    staging.mkdir(exist_ok=True)
    for name in PARTS:
        torch.save(torch.full((4,), float(rank.rank)), staging / f"{name}_{rank.rank}.pt")
    (staging / STATE).write_text("{}")


def publish(rank: Rank) -> None:
    """Rename, then flush the directory."""
    os.rename(rank.path / STAGING, rank.path / FINAL)
    directory = os.open(rank.path / FINAL, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def published_whole(outcome: Outcome) -> Iterator[Violation]:
    """Once all ranks have returned, the files of all ranks are in the published checkpoint, with content."""
    if not all(isinstance(result, Returned) for result in outcome.results):
        return
    files = [STATE, *(f"{name}_{rank}.pt" for rank in range(outcome.world.ranks) for name in PARTS)]
    sizes = {path: entry.size for path, entry in outcome.disk.items()}
    missing = [name for name in files if not sizes.get(f"{FINAL}/{name}")]
    if missing:
        yield Violation("published-whole", f"missing or empty: {', '.join(missing)}")


INVARIANTS = (*DEFAULT, nothing_left_over, published_whole)


@racecheck.scenario(
    ranks=2,
    report="huggingface/transformers#27925",
    invariants=(no_file_errors,),
    expected=Verdict.FAIL,
    breaks="no-file-errors",
)
def racy(rank: Rank) -> None:
    """As reported: all ranks write, all ranks rename; judged only by how the rename ends."""
    write(rank)
    os.rename(rank.path / STAGING, rank.path / FINAL)


@racecheck.scenario(
    ranks=4,
    report="huggingface/transformers#28009",
    invariants=(no_file_errors,),
    expected=Verdict.FAIL,
    breaks="no-file-errors",
)
def exists_first(rank: Rank) -> None:
    """After #28009: rank 0 goes first, and who finds no staging directory leaves it at that."""
    import torch.distributed as dist

    write(rank)
    if rank.rank != 0:
        dist.barrier()
    if (rank.path / STAGING).exists():
        os.rename(rank.path / STAGING, rank.path / FINAL)
    if rank.rank == 0:
        dist.barrier()


@racecheck.scenario(
    ranks=4,
    report="huggingface/transformers#27925",
    invariants=(no_file_errors,),
    expected=Verdict.FAIL,
    breaks="no-file-errors",
)
def main_process_renames(rank: Rank) -> None:
    """Rank 0 alone renames, and all wait, but only afterwards."""
    import torch.distributed as dist

    write(rank)
    if rank.rank == 0:
        publish(rank)
    dist.barrier()


@racecheck.scenario(ranks=2, report="huggingface/transformers#28364", invariants=INVARIANTS)
def everyone_has_written(rank: Rank) -> None:
    """Rank 0 alone renames, once all have written; nobody goes on before it has."""
    import torch.distributed as dist

    write(rank)
    dist.barrier()
    if rank.rank == 0:
        publish(rank)
    dist.barrier()


def test_racy(racecheck: Any) -> None:
    racecheck.finds(racy, within=20)


def test_exists_first(racecheck: Any) -> None:
    racecheck.finds(exists_first, within=20)


def test_main_process_renames(racecheck: Any) -> None:
    racecheck.finds(main_process_renames, within=20)


def test_everyone_has_written(racecheck: Any) -> None:
    racecheck.check(everyone_has_written, schedules=20)
