"""openpi #868: with ``--overwrite``, every rank deletes the checkpoint directory and makes it again.

**Report.**  Physical-Intelligence/openpi #868: with 8 GPUs, ``train_pytorch.py --overwrite`` over an older
run ends in FileNotFoundError out of ``shutil.rmtree`` on one rank or more.  PRs #908 and #969 let rank 0
alone delete and create, with barriers.  #969 was verified by looping: 140 errors in 20 attempts before,
none in 50 after.

**Mechanism.**  Finding the directory, listing it and emptying it are many calls, and all ranks make them at
once: a rank that has seen a file comes to remove it when a peer has done so.

**What must be found.**

- ``unguarded``, as reported: FileNotFoundError.  (Also ENOTEMPTY, when rank 0 already writes into the new
  directory while a peer removes it.)
- ``ignore_errors``, the fix that suggests itself: the errors do not even go away.  ``mkdir(exist_ok=True)``
  that finds the name taken looks whether it *is* a directory; if a peer has deleted it in between, that is
  a FileExistsError.
- ``first_run``: the same code with nothing to overwrite.  Now hardly a rank fails, and that is worse: a
  late rank takes the *new* directory for an old one, and deletes what rank 0 has already written there.
- ``guarded`` (#969) and ``two_barriers`` (#908) hold.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import racecheck
from racecheck import DEFAULT, Op, Outcome, Raised, Rank, Verdict, Violation

RUN = "checkpoints/my_run"
RUN_ID = f"{RUN}/wandb_id.txt"


def old_run(path: Path) -> None:
    """What an older run has left."""
    (path / RUN).mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.pt"):
        (path / RUN / name).write_bytes(b"old")
    (path / RUN_ID).write_text("the old run")


def start(rank: Rank) -> None:
    """What training does next: rank 0 notes the id of the new run, for resuming; then a collective."""
    import torch.distributed as dist

    if rank.rank == 0:
        (rank.path / RUN_ID).write_text("the new run")
    dist.barrier()


def run_id_survives(outcome: Outcome) -> Iterator[Violation]:
    """What rank 0 has written for the new run stays.  Says nothing where rank 0 failed to write it."""
    first = outcome.results[0]
    if RUN_ID not in outcome.disk and (not isinstance(first, Raised) or first.echo):
        deletions = [
            (event.rank, index)
            for index, event in enumerate(outcome.trace)
            if isinstance(event, Op) and (event.call, event.path) == ("unlink", RUN_ID)
            if event.result is not None and not event.result.errno
        ]
        ranks, events = zip(*deletions[-1:], strict=True) if deletions else ((), ())
        yield Violation("run-id-survives", f"{RUN_ID} of the new run was deleted", ranks, events)


@racecheck.scenario(ranks=8, report="openpi #868", expected=Verdict.FAIL, breaks="no-file-errors")
def unguarded(rank: Rank) -> None:
    """As reported: all ranks look, delete and create."""
    directory = rank.path / RUN
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    start(rank)


@racecheck.scenario(ranks=8, report="openpi #868", expected=Verdict.FAIL, breaks="no-file-errors")
def ignore_errors(rank: Rank) -> None:
    """All ranks delete and create; what fails while deleting is passed over."""
    directory = rank.path / RUN
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    start(rank)


@racecheck.scenario(
    ranks=8,
    report="openpi #868",
    expected=Verdict.FAIL,
    breaks="run-id-survives",
    invariants=(run_id_survives,),
)
def first_run(rank: Rank) -> None:
    """The same where there is no older run; judged only by what is lost."""
    ignore_errors(rank)


@racecheck.scenario(ranks=8, report="openpi #969", invariants=(*DEFAULT, run_id_survives))
def guarded(rank: Rank) -> None:
    """The fix of #969: rank 0 does it all, and nobody goes on before it has."""
    import torch.distributed as dist

    directory = rank.path / RUN
    if rank.rank == 0:
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    start(rank)


@racecheck.scenario(ranks=8, report="openpi #908", invariants=(*DEFAULT, run_id_survives))
def two_barriers(rank: Rank) -> None:
    """The fix of #908: a barrier after the deletion and one after the creation.  The first is not needed."""
    import torch.distributed as dist

    directory = rank.path / RUN
    if rank.rank == 0 and directory.exists():
        shutil.rmtree(directory)
    dist.barrier()
    if rank.rank == 0:
        directory.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    start(rank)


unguarded.setup(old_run)
ignore_errors.setup(old_run)
guarded.setup(old_run)
two_barriers.setup(old_run)


def test_unguarded(racecheck: Any) -> None:
    racecheck.finds(unguarded, within=20)


def test_ignore_errors(racecheck: Any) -> None:
    racecheck.finds(ignore_errors, within=20)


def test_first_run(racecheck: Any) -> None:
    racecheck.finds(first_run, within=20)


def test_guarded(racecheck: Any) -> None:
    racecheck.check(guarded, schedules=20)


def test_two_barriers(racecheck: Any) -> None:
    racecheck.check(two_barriers, schedules=20)
