"""Savers that do not stand what goes wrong, each with one that does.

Sleeps are in virtual time and take none, but in free mode.  Not collected by pytest.
"""

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from torch import distributed

from racecheck import Rank, scenario

OLD, NEW = json.dumps({"step": 1}), json.dumps({"step": 2})


def old(path: Path) -> None:
    (path / "latest").write_text(OLD)


def load(rank: Rank) -> int:
    return int(json.loads((rank.path / "latest").read_text())["step"])


@scenario(ranks=2)
def in_place(rank: Rank) -> None:
    """Anything that stops it leaves neither the old nor the new one."""
    if rank.rank == 0:
        (rank.path / "latest").write_text(NEW)
    distributed.barrier()


@scenario(ranks=2)
def renamed(rank: Rank) -> None:
    if rank.rank == 0:
        (rank.path / "new").write_text(NEW)
        (rank.path / "new").replace(rank.path / "latest")
    distributed.barrier()


@scenario(ranks=2)
def unchecked(rank: Rank) -> None:
    """How much was written is not looked at, nor whether anything was."""
    if rank.rank == 0:
        with (rank.path / "new").open("wb") as file:
            ctypes.CDLL(None).write(file.fileno(), NEW.encode(), len(NEW))
        (rank.path / "new").replace(rank.path / "latest")
    distributed.barrier()


@scenario(ranks=2)
def impatient(rank: Rank) -> int:
    """The reader gives the writer five seconds."""
    if rank.rank == 0:
        (rank.path / "new").write_text(NEW)
        (rank.path / "new").replace(rank.path / "published")
        return 2
    for _ in range(5):
        if (rank.path / "published").exists():
            break
        time.sleep(1)
    return int(json.loads((rank.path / "published").read_text())["step"])


@scenario(ranks=2)
def patient(rank: Rank) -> int:
    if rank.rank == 0:
        (rank.path / "new").write_text(NEW)
        (rank.path / "new").replace(rank.path / "published")
    distributed.barrier()
    return int(json.loads((rank.path / "published").read_text())["step"])


@scenario(ranks=2, nodes=2)
def early(rank: Rank) -> None:
    """Rank 0 publishes when its own part is there."""
    _shard(rank)
    if rank.rank == 0:
        _publish(rank)
    distributed.barrier()


@scenario(ranks=2, nodes=2)
def in_time(rank: Rank) -> None:
    _shard(rank)
    distributed.barrier()
    if rank.rank == 0:
        _publish(rank)


def _shard(rank: Rank) -> None:
    (rank.path / f"2.part{rank.rank}").write_text("a shard")


def _publish(rank: Rank) -> None:
    (rank.path / "new").write_text(NEW)
    (rank.path / "new").replace(rank.path / "latest")


def load_parts(rank: Rank) -> int:
    step = load(rank)
    assert step == 1 or all((rank.path / f"{step}.part{each}").read_text() == "a shard" for each in range(2))
    return step


@scenario(ranks=1)
def saves_late(rank: Rank) -> None:
    """Asked to end, it first finishes what takes longer than it has."""
    _train(rank, busy=60)


@scenario(ranks=1)
def saves_at_once(rank: Rank) -> None:
    _train(rank, busy=0)


def _train(rank: Rank, busy: float) -> None:
    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        time.sleep(busy)
        _publish(rank)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    for step in range(5):
        os.stat(rank.path / "latest")
        time.sleep(step)
    _publish(rank)


def load_newest(rank: Rank) -> None:
    assert load(rank) == 2, "what the end was announced for is lost"


for each in (in_place, renamed, unchecked, early, in_time, saves_late, saves_at_once):
    each.setup(old)
for each in (in_place, renamed, unchecked):
    each.recover(ranks=1)(load)
for each in (early, in_time):
    each.recover(ranks=1, nodes=1)(load_parts)
for each in (saves_late, saves_at_once):
    each.recover(load_newest)


@scenario(ranks=2)
def syncs_again(rank: Rank) -> None:
    """If fsync fails, it is tried again: the second one succeeds."""
    if rank.rank == 0:
        with (rank.path / "new").open("w") as file:
            file.write(NEW)
            file.flush()
            try:
                os.fsync(file.fileno())
            except OSError:
                os.fsync(file.fileno())
        _put(rank)
    distributed.barrier()


@scenario(ranks=2)
def writes_again(rank: Rank) -> None:
    """If fsync fails, all is written again."""
    if rank.rank == 0:
        for name in ("new", "newer"):
            with (rank.path / name).open("w") as file:
                file.write(NEW)
                file.flush()
                try:
                    os.fsync(file.fileno())
                except OSError:
                    continue
            _put(rank, name)
            break
    distributed.barrier()


def _put(rank: Rank, name: str = "new") -> None:
    (rank.path / name).replace(rank.path / "latest")
    directory = os.open(rank.path, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


for each in (syncs_again, writes_again):
    each.setup(old)
    each.recover(ranks=1)(load)
