"""A scenario that hands out descriptors, and uses files in many ways.  Not collected by pytest."""

import os

from racecheck import Rank, scenario


@scenario(ranks=2)
def files(rank: Rank) -> int:
    """Writes, reserves, locks, copies, renames, lists and reads."""
    import filelock
    import torch

    mine = rank.path / f"part{rank.rank}"
    with filelock.FileLock(rank.path / "lock"), open(mine, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
        torch.save({"weight": torch.ones(64)}, file)
        file.truncate()
        copy = os.dup(file.fileno())
        os.close(copy)
    os.replace(mine, rank.path / f"final{rank.rank}")
    found = sorted(each for each in os.listdir(rank.path) if each.startswith("final"))
    loaded = [torch.load(rank.path / each) for each in found]
    return len(loaded)
