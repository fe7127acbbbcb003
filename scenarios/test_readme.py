"""The README's first example: two ranks clear the same directory, and the fix."""

import shutil
from pathlib import Path

import racecheck as rc


@rc.scenario(ranks=2, report="openpi #868", expected=rc.Verdict.FAIL, breaks="no-file-errors")
def overwrite(rank: rc.Rank) -> None:  # every rank runs this; its process group is up
    checkpoint = rank.path / "ckpt"
    if checkpoint.exists():
        shutil.rmtree(checkpoint)
    checkpoint.mkdir(exist_ok=True)


@rc.scenario(ranks=2, report="openpi #969")
def guarded(rank: rc.Rank) -> None:
    import torch.distributed as dist

    checkpoint = rank.path / "ckpt"
    if rank.rank == 0:
        shutil.rmtree(checkpoint)
        checkpoint.mkdir()
    dist.barrier()


@overwrite.setup
@guarded.setup
def an_old_checkpoint(path: Path) -> None:  # before the ranks start
    (path / "ckpt").mkdir()
    (path / "ckpt" / "model.pt").write_text("old")
