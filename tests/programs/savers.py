"""Small scenarios for the tests of the command line.  Not collected by pytest."""

import os
from collections.abc import Iterator

from racecheck import Outcome, Rank, Verdict, Violation, scenario

print("imported")


@scenario(ranks=2, report="example/repo#1", expected=Verdict.FAIL, breaks="no-file-errors")
def racing(rank: Rank) -> None:
    """Both may see that there is no directory."""
    if not (rank.path / "ckpt").exists():
        (rank.path / "ckpt").mkdir()


@scenario(ranks=2)
def guarded(rank: Rank) -> None:
    import torch

    (rank.path / "ckpt").mkdir(exist_ok=True)
    assert torch.is_tensor(torch.ones(1))


@scenario(ranks=2)
def differing(rank: Rank) -> None:
    """What is written names the process: no two runs are the same."""
    (rank.path / f"log{rank.rank}").write_text(f"process {os.getpid()}")


@scenario(ranks=2)
def raising(rank: Rank) -> None:
    """Fails without any control, too."""
    if rank.rank == 1:
        raise ValueError("no checkpoint")


@scenario(ranks=3, sizes={"steps": 4, "shards": 3}, faults=("slow on write seconds=1",))
def sized(rank: Rank) -> None:
    """From the second step on ranks race for the directory; neither shards nor the fault matter."""
    import torch.distributed as dist

    for step in range(rank.sizes["steps"]):
        directory = rank.path / f"step{step}"
        if not directory.exists():
            directory.mkdir(exist_ok=step == 0)
        for shard in range(rank.sizes["shards"]):
            (directory / f"shard{rank.rank}-{shard}").write_text("x")
        dist.barrier()


@scenario(ranks=1, sizes={"steps": 2})
def named_by_pid(rank: Rank) -> None:
    """From the second step on names differ from run to run."""
    for step in range(rank.sizes["steps"]):
        (rank.path / (f"log{os.getpid()}" if step else "log")).touch()


@scenario(ranks=2)
def broken_setup(rank: Rank) -> None:
    pass


@broken_setup.setup
def fail(path: object) -> None:
    raise ValueError("no such checkpoint")


def nothing_made(outcome: Outcome) -> Iterator[Violation]:
    """An invariant that no scenario here names, and that all break."""
    if outcome.disk:
        yield Violation("nothing-made", f"made {', '.join(outcome.disk)}")
