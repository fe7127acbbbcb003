"""Scenarios that differ in some of their runs, which ``RACECHECK_ERRS`` counts in a file.  Not collected by pytest."""

import os
from pathlib import Path

from racecheck import Rank, scenario


def count() -> int:
    """The number of this run of rank 0, from 1."""
    path = Path(os.environ["RACECHECK_ERRS"])
    number = int(path.read_text()) + 1 if path.exists() else 1
    path.write_text(str(number))
    return number


def work(rank: Rank) -> None:
    for number in range(3):
        (rank.path / "shared").touch()
        (rank.path / f"{rank.rank}.{number}").touch()


@scenario(ranks=2)
def strays(rank: Rank) -> None:
    """Every ninth run begins with another op."""
    if rank.rank == 0 and count() % 9 == 0:
        (rank.path / "another").mkdir()
    work(rank)


@scenario(ranks=2)
def strays_and_races(rank: Rank) -> None:
    """That, and a race that few of its schedules show."""
    strays(rank)
    if rank.rank == 0:
        (rank.path / "data").touch()
        (rank.path / "data").unlink()
    elif (rank.path / "data").exists():
        raise ValueError("seen")


@scenario(ranks=2)
def fails_once(rank: Rank) -> None:
    """The ninth run alone fails."""
    work(rank)
    if rank.rank == 0 and count() == 9:
        raise ValueError("once")


@scenario(ranks=2)
def begins_badly(rank: Rank) -> None:
    """The first run that counts differs from all others (three make ready for it)."""
    if rank.rank == 0 and count() == int(os.environ["RACECHECK_ERRS_AT"]):
        (rank.path / "another").mkdir()
    work(rank)


@scenario(ranks=2)
def always_differs(rank: Rank) -> None:
    """No run is like another."""
    if rank.rank == 0:
        (rank.path / "count").write_text(f"run {count()}")
    work(rank)


@scenario(ranks=1)
def publishes(rank: Rank) -> None:
    for number in range(4):
        (rank.path / "new").write_text(f"{number}")
        (rank.path / "new").rename(rank.path / "file")


@publishes.recover(ranks=2)
def loads_by_luck(rank: Rank) -> None:
    """One of the recoveries fails."""
    if rank.rank == 0 and count() == int(os.environ["RACECHECK_ERRS_AT"]):
        raise ValueError("once")
