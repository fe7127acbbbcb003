"""The README's first example: two ranks clear the same directory, and the fix."""

import shutil

import racecheck as rc


@rc.scenario(ranks=2, report="openpi #868", expected=rc.Verdict.FAIL, breaks="no-file-errors")
def overwrite(rank: rc.Rank) -> None:  # every rank runs this; its process group is up
    checkpoint = rank.path / "ckpt"
    if checkpoint.exists():
        shutil.rmtree(checkpoint)
    checkpoint.mkdir(exist_ok=True)
