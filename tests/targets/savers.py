"""Small scenarios for the tests of the command line.  Not collected by pytest."""

import os

from racecheck import Rank, Verdict, scenario

print("imported")


@scenario(ranks=2, report="example/repo#1", expected=Verdict.FAIL, breaks="no-file-errors")
def racing(rank: Rank) -> None:
    """Both may see that there is no directory."""
    if not (rank.path / "ckpt").exists():
        (rank.path / "ckpt").mkdir()


@scenario(ranks=2)
def guarded(rank: Rank) -> None:
    (rank.path / "ckpt").mkdir(exist_ok=True)


@scenario(ranks=2)
def differing(rank: Rank) -> None:
    """The trace names the process: no two runs are the same."""
    (rank.path / str(os.getpid())).mkdir()


@scenario(ranks=2)
def broken_setup(rank: Rank) -> None:
    pass


@broken_setup.setup
def fail(path: object) -> None:
    raise ValueError("no such checkpoint")
