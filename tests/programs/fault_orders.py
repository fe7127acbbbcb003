"""Programs in which it depends on an order which op a fault hits.  Not collected by pytest."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from torch import distributed

from racecheck import Rank, scenario


def errno_of(do: Callable[[], object]) -> int:
    try:
        do()
    except OSError as error:
        return error.errno or 0
    return 0


@scenario(ranks=1)
def two_threads_write(rank: Rank) -> list[int]:
    """Returns the errno of each write."""
    found = [0, 0]

    def write(number: int) -> None:
        found[number] = errno_of(lambda: os.write(files[number], b"12345"))

    files = [os.open(rank.path / name, os.O_CREAT | os.O_WRONLY) for name in ("a", "b")]
    thread = threading.Thread(target=write, args=(1,))
    thread.start()
    write(0)
    thread.join()
    return found


@scenario(ranks=1)
def parent_and_child_write(rank: Rank) -> list[int]:
    files = [os.open(rank.path / name, os.O_CREAT | os.O_WRONLY) for name in ("a", "b")]
    child = os.fork()
    if not child:
        os._exit(errno_of(lambda: os.write(files[1], b"12345")))
    own = errno_of(lambda: os.write(files[0], b"12345"))
    return [own, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


@scenario(ranks=2)
def two_ranks_write(rank: Rank) -> int:
    file = os.open(rank.path / str(rank.rank), os.O_CREAT | os.O_WRONLY)
    return errno_of(lambda: os.write(file, b"12345"))


@scenario(ranks=2)
def two_ranks_sync(rank: Rank) -> int:
    file = os.open(rank.path / str(rank.rank), os.O_CREAT | os.O_WRONLY)
    return errno_of(lambda: os.fsync(file))


@scenario(ranks=2)
def directory_is_renamed(rank: Rank) -> int:
    """Rank 0 opens a file and then syncs it, while rank 1 renames its directory."""
    if rank.rank:
        distributed.barrier()
        (rank.path / "old").rename(rank.path / "new")
        return 0
    (rank.path / "old").mkdir()
    file = os.open(rank.path / "old" / "file", os.O_CREAT | os.O_WRONLY)
    distributed.barrier()
    return errno_of(lambda: os.fsync(file))
