import shutil

import racecheck


@racecheck.scenario(ranks=2, report="openpi #868", expected=racecheck.Verdict.FAIL, breaks="no-file-errors")
def overwrite(rank):  # every rank runs this; its process group is up
    checkpoint = rank.path / "ckpt"
    if checkpoint.exists():
        shutil.rmtree(checkpoint)
    checkpoint.mkdir(exist_ok=True)


@overwrite.setup
def an_old_checkpoint(path):  # before the ranks start
    (path / "ckpt").mkdir()
    (path / "ckpt" / "model.pt").write_text("old")


@racecheck.scenario(ranks=2, report="openpi #969")
def guarded(rank):
    import torch.distributed as dist

    checkpoint = rank.path / "ckpt"
    if rank.rank == 0:
        shutil.rmtree(checkpoint)
        checkpoint.mkdir()
    dist.barrier()


guarded.setup(an_old_checkpoint)


def test_overwrite(racecheck):
    racecheck.finds(overwrite)


def test_guarded(racecheck):
    racecheck.check(guarded)
