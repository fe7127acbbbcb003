"""Scenarios from one run of which others are predicted.  Not collected by pytest."""

import threading
import time

from racecheck import Rank, scenario


@scenario(ranks=2)
def issued_early(rank: Rank) -> None:
    """What is made after a barrier was issued is not ordered by it, on either side; a thread of rank 1 looks."""
    import torch.distributed as dist

    if rank.rank == 0:
        (rank.path / "before").mkdir()
    work = dist.barrier(async_op=True)
    assert work is not None
    (rank.path / f"between{rank.rank}").mkdir()
    work.wait()
    if rank.rank == 1:
        looks = threading.Thread(target=lambda: [(rank.path / name).exists() for name in ("before", "between0")])
        looks.start()
        looks.join()


@scenario(ranks=2)
def late(rank: Rank) -> None:
    """Rank 1 looks an hour later for what rank 0 makes."""
    if rank.rank == 0:
        (rank.path / "made").mkdir()
    else:
        time.sleep(3600)
        assert (rank.path / "made").exists()
