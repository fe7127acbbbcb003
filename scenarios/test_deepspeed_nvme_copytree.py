"""DeepSpeed #7549: all ranks copy their NVMe swap files into one directory of the checkpoint.

These are the documented steps of ``DeepSpeedEngine.save_checkpoint``, not the real DeepSpeed.

**Report.**  deepspeedai/DeepSpeed #7549: ZeRO-3 with the optimizer offloaded to NVMe, 2 GPUs.  All ranks
call ``save_checkpoint``, as they must, and its ``shutil.copytree`` into
``<save_dir>/<tag>/offloaded_tensors`` ends in FileExistsError.  Versions 0.13.0 to 0.17.6 do that: with the
real 0.16.9 and 0.17.6 all ranks but one fail, every time.  From 0.18.0 each rank has a directory of its own
in there.

**Mechanism.**  ``copytree`` makes its destination, which is the same on all ranks.  What the error hides is
worse: swap files are named after the parameter, so they have the *same names on all ranks*, while their
content is each rank's own partition of the optimizer's state.

**What must be found.**

- ``racy``, as reported: FileExistsError.
- ``dirs_exist_ok``, the fix that suggests itself: no error, and the ranks overwrite one another's tensors.
- ``one_rank_copies``, the usual fix where all ranks do something: it keeps the tensors of that rank only.
  (No race: it fails in every schedule.)
- ``directory_per_rank``, what DeepSpeed does from 0.18.0 on, holds.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import racecheck
from racecheck import DEFAULT, Outcome, Rank, Returned, Verdict, Violation

SAVED = "checkpoints/global_step10/offloaded_tensors"
TENSORS = ("0_3.tensor.swp", "exp_avg-0_3.tensor.swp")
GRADIENT = "0_3.gradient.swp"
MOST_RANKS = 16


def content(rank: int, name: str) -> bytes:
    """What training has swapped out: of the same size on all ranks, and never the same."""
    return f"rank {rank:2}'s partition of {name}".encode() * 100


def swap_folder(path: Path, rank: int) -> Path:
    return path / f"nvme/zero_stage_3/optimizer/rank{rank}"


def swapped_out(path: Path) -> None:
    """The swap files of every rank, on the node's NVMe, and the directory of the checkpoint."""
    for rank in range(MOST_RANKS):
        folder = swap_folder(path, rank)
        folder.mkdir(parents=True)
        for name in (*TENSORS, GRADIENT):
            (folder / name).write_bytes(content(rank, name))
    (path / SAVED).parent.mkdir(parents=True)


def consolidate(rank: Rank, destination: Path, *, dirs_exist_ok: bool = False) -> None:
    """Copy this rank's swap files, all but the gradients."""
    if rank.world_size > MOST_RANKS:
        raise ValueError(f"setup makes the swap files of {MOST_RANKS} ranks: use no more")
    shutil.copytree(
        swap_folder(rank.path, rank.rank),
        destination,
        ignore=shutil.ignore_patterns("*gradient*"),
        dirs_exist_ok=dirs_exist_ok,
    )


def every_tensor_saved(outcome: Outcome) -> Iterator[Violation]:
    """Once all ranks have returned, each rank's tensors are in the checkpoint, wherever, unchanged."""
    if not all(isinstance(result, Returned) for result in outcome.results):
        return
    saved = {(Path(path).name, entry.digest) for path, entry in outcome.disk.items() if path.startswith(SAVED)}
    for rank in range(outcome.world.ranks):
        wanted = {name: hashlib.sha256(content(rank, name)).hexdigest() for name in TENSORS}
        lost = [name for name, digest in wanted.items() if (name, digest) not in saved]
        if lost:
            yield Violation("every-tensor-saved", f"lost: {', '.join(lost)} of rank {rank}", (rank,))


INVARIANTS = (*DEFAULT, every_tensor_saved)


@racecheck.scenario(ranks=2, report="DeepSpeed #7549", expected=Verdict.FAIL, breaks="no-file-errors")
def racy(rank: Rank) -> None:
    """As reported: one destination for all ranks."""
    import torch.distributed as dist

    consolidate(rank, rank.path / SAVED)
    dist.barrier()


@racecheck.scenario(
    ranks=2,
    report="DeepSpeed #7549",
    invariants=INVARIANTS,
    expected=Verdict.FAIL,
    breaks="every-tensor-saved",
)
def dirs_exist_ok(rank: Rank) -> None:
    """The destination may exist already."""
    import torch.distributed as dist

    consolidate(rank, rank.path / SAVED, dirs_exist_ok=True)
    dist.barrier()


@racecheck.scenario(
    ranks=2,
    report="DeepSpeed #7549",
    invariants=INVARIANTS,
    expected=Verdict.FAIL,
    breaks="every-tensor-saved",
)
def one_rank_copies(rank: Rank) -> None:
    """All ranks have swapped out their tensors, and rank 0 copies."""
    import torch.distributed as dist

    dist.barrier()
    if rank.rank == 0:
        consolidate(rank, rank.path / SAVED)
    dist.barrier()


@racecheck.scenario(ranks=2, report="DeepSpeed #7549", invariants=INVARIANTS)
def directory_per_rank(rank: Rank) -> None:
    """The fix in DeepSpeed 0.18.0: a destination for each rank."""
    import torch.distributed as dist

    consolidate(rank, rank.path / SAVED / f"rank{rank.rank:02}")
    dist.barrier()


racy.setup(swapped_out)
dirs_exist_ok.setup(swapped_out)
one_rank_copies.setup(swapped_out)
directory_per_rank.setup(swapped_out)


def test_racy(racecheck: Any) -> None:
    racecheck.finds(racy, within=20)


def test_dirs_exist_ok(racecheck: Any) -> None:
    racecheck.finds(dirs_exist_ok, within=20)


def test_one_rank_copies(racecheck: Any) -> None:
    racecheck.finds(one_rank_copies, within=20)


def test_directory_per_rank(racecheck: Any) -> None:
    racecheck.check(directory_per_rank, schedules=20)
