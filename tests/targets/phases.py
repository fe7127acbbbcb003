"""Scenarios for property tests.  Not collected by pytest."""

from pathlib import Path

from racecheck import Rank, scenario


@scenario(ranks=2)
def overwrite(rank: Rank) -> None:
    if (rank.path / "ckpt").exists():
        (rank.path / "ckpt").rmdir()


@overwrite.setup
def old(path: Path) -> None:
    (path / "ckpt").mkdir()


@scenario(ranks=2)
def guarded(rank: Rank) -> None:
    (rank.path / f"ckpt{rank.rank}").mkdir()


def checkpoints(rank: Rank) -> list[Path]:
    return sorted(rank.path.glob("step*"))


@scenario(ranks=2)
def save(rank: Rank) -> None:
    if rank.rank == 0:
        number = len(checkpoints(rank))
        (rank.path / f"step{number}").mkdir()
        (rank.path / "latest").write_text(f"step{number}")


@scenario(ranks=2)
def rotate(rank: Rank) -> None:
    """Deletes the newest, and not the oldest."""
    if rank.rank == 0 and checkpoints(rank):
        checkpoints(rank)[-1].rmdir()


@scenario(ranks=2)
def resume(rank: Rank) -> None:
    latest = rank.path / "latest"
    if latest.exists():
        [*(rank.path / latest.read_text()).iterdir()]
