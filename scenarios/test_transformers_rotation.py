"""transformers #20988: every rank deletes the checkpoints that are one too many.

These are the steps of a rotation as the reports give them, made with real calls, not the real transformers.

**Report.**  huggingface/transformers #20988 is the report of this family that gives the file its name.  The steps are
those of its siblings.  transformers #13035: on 8 GPUs the ``shutil.rmtree`` of ``_rotate_checkpoints`` fails.
huggingface/accelerate #1982: ``total_limit`` makes every process delete the same oldest checkpoint, and
``save_state`` ends in FileNotFoundError.  huggingface/diffusers #5338: the pruning stands outside the guard for the
main process, and [checkpoint-6] is kept where [checkpoint-4, checkpoint-6] should be; the fix moves it inside.

**Mechanism.**  All ranks find the same checkpoint too many and empty it together: what one comes to remove, another
has removed.  Where pruning goes before saving, a late rank counts the *new* checkpoint too, and deletes one that was
to be kept.

**What must be found.**

- ``racy``, as reported: FileNotFoundError.
- ``ignore_errors``, the fix that suggests itself: no error, and one checkpoint less than was asked for.
- ``main_process``: one rank prunes and saves; that holds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import racecheck
from racecheck import DEFAULT, Outcome, Rank, Returned, Verdict, Violation, no_file_errors

OLD = ("checkpoint-2", "checkpoint-4")
NEW = "checkpoint-6"
LIMIT = 2
KEPT = {"checkpoint-4", "checkpoint-6"}


def old_checkpoints(path: Path) -> None:
    """As many as may be kept."""
    for name in OLD:
        (path / "out" / name).mkdir(parents=True)
        (path / "out" / name / "model.pt").write_bytes(b"old")


def log(rank: Rank) -> None:
    """Each rank notes its loss in files of its own, which makes the ranks reach the rotation at different times."""
    for name in ("loss", "gradient", "throughput"):
        (rank.path / f"{name}_{rank.rank}.log").write_text("step 6")


def prune(directory: Path, *, ignore_errors: bool = False) -> None:
    """Delete the oldest checkpoints, so that with the new one there will be no more than the limit."""
    found = sorted(os.listdir(directory))
    for name in found[: max(0, len(found) + 1 - LIMIT)]:
        shutil.rmtree(directory / name, ignore_errors=ignore_errors)


def save(rank: Rank) -> None:
    """Rank 0 writes the new checkpoint."""
    import torch

    if rank.rank == 0:
        (rank.path / "out" / NEW).mkdir()
        torch.save(torch.ones(4), rank.path / "out" / NEW / "model.pt")


def newest_are_kept(outcome: Outcome) -> Iterator[Violation]:
    """Once all ranks have returned, the newest checkpoints are there, whole, and no older ones."""
    if not all(isinstance(result, Returned) for result in outcome.results):
        return
    kept = {path.split("/")[1] for path, entry in outcome.disk.items() if path.endswith("/model.pt") and entry.size}
    found = {path.split("/")[1] for path in outcome.disk if path.startswith("out/")}
    if not kept == found == KEPT:
        names = ", ".join(sorted(found)) or "nothing"
        yield Violation("newest-are-kept", f"kept: {names}, whole: {', '.join(sorted(kept)) or 'nothing'}")


INVARIANTS = (*DEFAULT, newest_are_kept)


@racecheck.scenario(
    ranks=2,
    report="huggingface/transformers#20988",
    invariants=(no_file_errors,),
    expected=Verdict.FAIL,
    breaks="no-file-errors",
)
def racy(rank: Rank) -> None:
    """As reported: all ranks delete; judged only by what fails."""
    prune(rank.path / "out")
    save(rank)


@racecheck.scenario(
    ranks=4,
    report="huggingface/diffusers#5338",
    invariants=INVARIANTS,
    expected=Verdict.FAIL,
    breaks="newest-are-kept",
)
def ignore_errors(rank: Rank) -> None:
    """All ranks delete; what fails is passed over.  The ranks other than 0 come later."""
    if rank.rank != 0:
        log(rank)
    prune(rank.path / "out", ignore_errors=True)
    save(rank)


@racecheck.scenario(ranks=4, report="huggingface/diffusers#5338", invariants=INVARIANTS)
def main_process(rank: Rank) -> None:
    """Rank 0 alone deletes and saves, and all wait for it."""
    import torch.distributed as dist

    log(rank)
    if rank.rank == 0:
        prune(rank.path / "out")
        save(rank)
    dist.barrier()


racy.setup(old_checkpoints)
ignore_errors.setup(old_checkpoints)
main_process.setup(old_checkpoints)


def test_racy(racecheck: Any) -> None:
    racecheck.finds(racy, within=20)


def test_ignore_errors(racecheck: Any) -> None:
    racecheck.finds(ignore_errors, within=20)


def test_main_process(racecheck: Any) -> None:
    racecheck.check(main_process, schedules=20)
