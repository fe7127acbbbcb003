"""Savers that do not stand what goes wrong, each with one that does.

Sleeps are in virtual time and take none, but in free mode.  Not collected by pytest.
"""

import ctypes
import errno
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
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
def longer_in_place(rank: Rank) -> None:
    """The new file needs more room than the old one frees."""
    if rank.rank == 0:
        (rank.path / "latest").write_text(" " * 20 + NEW)
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


for each in (in_place, longer_in_place, renamed, unchecked, early, in_time, saves_late, saves_at_once):
    each.setup(old)
for each in (in_place, longer_in_place, renamed, unchecked):
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


SIZE = 100


def _tries(function: Callable[[], object]) -> int:
    """Return the errno of a call, 0 for none."""
    try:
        function()
    except OSError as error:
        return error.errno or -1
    return 0


@scenario(ranks=1)
def removes_and_writes(rank: Rank) -> list[int]:
    """What is removed makes room for what comes."""
    (rank.path / "old").unlink()
    found = [_tries(lambda: (rank.path / "new").write_bytes(b"n" * SIZE))]
    (rank.path / "new").write_bytes(b"o" * SIZE)
    os.truncate(rank.path / "new", SIZE // 2)
    with (rank.path / "new").open("r+b") as file:
        file.truncate(0)
    return [*found, _tries(lambda: (rank.path / "newer").write_bytes(b"n" * SIZE))]


@scenario(ranks=1)
def overwrites(rank: Rank) -> int:
    """The new bytes are where the old ones were."""

    def write() -> None:
        with (rank.path / "old").open("r+b", buffering=0) as file:
            file.write(b"n" * SIZE)

    return _tries(write)


@scenario(ranks=1)
def renames_over(rank: Rank) -> list[int]:
    (rank.path / "new").write_bytes(b"n" * 10)
    found = [_tries(lambda: (rank.path / "more").write_bytes(b"m"))]
    (rank.path / "new").replace(rank.path / "old")
    return [*found, _tries(lambda: (rank.path / "newer").write_bytes(b"n" * SIZE))]


@scenario(ranks=1)
def removes_what_is_open(rank: Rank) -> int:
    with (rank.path / "old").open():
        (rank.path / "old").unlink()
        return _tries(lambda: (rank.path / "new").write_bytes(b"n" * SIZE))


@scenario(ranks=1)
def copies(rank: Rank) -> list[int]:
    found = [_tries(lambda: shutil.copyfile(rank.path / "old", rank.path / "copy"))]
    with (rank.path / "old").open("rb") as source, (rank.path / "range").open("wb") as target:
        found.append(_tries(lambda: os.copy_file_range(source.fileno(), target.fileno(), SIZE) == SIZE or _full()))
    return [*found, (rank.path / "copy").stat().st_size]


def _full() -> None:
    raise OSError(errno.ENOSPC, "short")


@scenario(ranks=1)
def allocates(rank: Rank) -> list[int]:
    file = os.open(rank.path / "new", os.O_CREAT | os.O_RDWR)
    found = [_tries(lambda: os.posix_fallocate(file, 0, SIZE)), _tries(lambda: os.posix_fallocate(file, 0, 10))]
    os.close(file)
    return [*found, (rank.path / "new").stat().st_size]


@scenario(ranks=2)
def one_removes_and_one_writes(rank: Rank) -> int:
    if rank.rank == 0:
        return _tries((rank.path / "old").unlink)
    return _tries(lambda: (rank.path / "new").write_bytes(b"n" * SIZE))


def _fill(path: Path) -> None:
    (path / "old").write_bytes(b"o" * SIZE)


for each in (
    removes_and_writes, overwrites, renames_over, removes_what_is_open, copies, allocates, one_removes_and_one_writes,
):  # fmt: skip
    each.setup(_fill)
