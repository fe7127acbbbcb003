"""openpi #868: with ``--overwrite``, every rank deletes the checkpoint directory and makes it anew.

**Report.**  Physical-Intelligence/openpi #868: ``torchrun --nproc_per_node=8 scripts/train_pytorch.py ... --overwrite``
over an older run ends in FileNotFoundError out of ``shutil.rmtree`` on one rank or more.  PRs #908 and #969 let rank 0
alone delete and create, with barriers.  #969 was verified by looping: 140 errors in 20 attempts before, none in 50
attempts after.

**Mechanism.**  Whether the directory exists, what is in it, and its removal are many calls, and all ranks make them at
once: a rank that has seen a file comes to remove it when a peer has done so.

**What must be found.**

- ``unguarded``, as reported: FileNotFoundError.  It has a second failure that nobody has reported, for it makes no
  noise: a rank that is late (a slow import is enough) finds the *new* directory and deletes what rank 0 has already
  written there.  Every rank returns, and the id of the run is gone: no resuming.  `run_id_survives` tells.
- ``ignore_errors``, the fix that suggests itself: the errors do not even go away.  ``mkdir(exist_ok=True)`` finds
  the directory there, looks whether it *is* a directory, and if a peer has deleted it in between, raises
  FileExistsError.  And the late rank still deletes the new run.
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
    """What an older run has left in the directory."""
    (path / RUN).mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.pt"):
        (path / RUN / name).write_bytes(b"old")
    (path / RUN_ID).write_text("the old run")


def start(rank: Rank) -> None:
    """What training does next: rank 0 notes the id of the new run, then comes the first collective."""
    import torch.distributed as dist

    if rank.rank == 0:
        (rank.path / RUN_ID).write_text("the new run")
    dist.barrier()


def run_id_survives(outcome: Outcome) -> Iterator[Violation]:
    """What rank 0 has written for the new run stays.  Says nothing where rank 0 could not write it."""
    first = outcome.results[0]
    if RUN_ID in outcome.disk or (isinstance(first, Raised) and not first.echo):
        return
    deleted = [
        (event.rank, index)
        for index, event in enumerate(outcome.trace)
        if isinstance(event, Op) and event.call == "unlink" and event.path == RUN_ID
        if event.result is not None and not event.result.errno
    ][-1:]
    ranks, events = tuple(rank for rank, _ in deleted), tuple(index for _, index in deleted)
    yield Violation("run-id-survives", f"{RUN_ID} of the new run was deleted", ranks, events)


INVARIANTS = (*DEFAULT, run_id_survives)


@racecheck.scenario(
    ranks=8, report="openpi #868", invariants=INVARIANTS, expected=Verdict.FAIL, breaks="no-file-errors"
)
def unguarded(rank: Rank) -> None:
    """As reported: all ranks check, delete and create."""
    directory = rank.path / RUN
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    start(rank)


@racecheck.scenario(
    ranks=8, report="openpi #868", invariants=INVARIANTS, expected=Verdict.FAIL, breaks="no-file-errors"
)
def ignore_errors(rank: Rank) -> None:
    """All ranks delete and create, and what goes wrong while deleting is passed over."""
    directory = rank.path / RUN
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    start(rank)


@racecheck.scenario(ranks=8, report="openpi #969", invariants=INVARIANTS)
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


@racecheck.scenario(ranks=8, report="openpi #908", invariants=INVARIANTS)
def two_barriers(rank: Rank) -> None:
    """The fix of #908: as #969, with a barrier after the deletion too, which does no harm and is not needed."""
    import torch.distributed as dist

    directory = rank.path / RUN
    if rank.rank == 0 and directory.exists():
        shutil.rmtree(directory)
    dist.barrier()
    if rank.rank == 0:
        directory.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    start(rank)


for each in (unguarded, ignore_errors, guarded, two_barriers):
    each.setup(old_run)


def test_unguarded(racecheck: Any) -> None:
    """Every schedule tried so far failed (see tests/bench): 20 are plenty."""
    racecheck.finds(unguarded, within=20)


def test_ignore_errors(racecheck: Any) -> None:
    racecheck.finds(ignore_errors, within=20)


def test_guarded(racecheck: Any) -> None:
    racecheck.check(guarded)


def test_two_barriers(racecheck: Any) -> None:
    racecheck.check(two_barriers)
