"""Programs whose threads share what the kernel keeps for a process: descriptors, working directory, umask.

Not collected by pytest.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

from racecheck import Rank, scenario


def beside(other: Callable[[], object], own: Callable[[], Any]) -> Any:
    """Return what ``own`` returns while a thread runs ``other``."""
    thread = threading.Thread(target=other)
    thread.start()
    found = own()
    thread.join()
    return found


def writes(descriptor: int) -> str:
    try:
        return str(os.write(descriptor, b"x"))
    except OSError:
        return "closed"


def opened(rank: Rank, name: str) -> int:
    return os.open(rank.path / name, os.O_CREAT | os.O_RDWR)


@scenario(ranks=1)
def closed(rank: Rank) -> str:
    """A descriptor is closed while a write through it is pending."""
    descriptor = opened(rank, "a")
    return str(beside(lambda: os.close(descriptor), lambda: writes(descriptor)))


@scenario(ranks=1)
def number_used_again(rank: Rank) -> str:
    descriptor = opened(rank, "a")

    def reopens() -> None:
        os.close(descriptor)
        opened(rank, "b")

    beside(reopens, lambda: writes(descriptor))
    return str([(rank.path / name).stat().st_size for name in "ab"])


@scenario(ranks=1)
def number_taken_over(rank: Rank) -> str:
    descriptor, other = opened(rank, "a"), opened(rank, "b")
    beside(lambda: os.dup2(other, descriptor), lambda: writes(descriptor))
    return str([(rank.path / name).stat().st_size for name in "ab"])


@scenario(ranks=1)
def shared_offset(rank: Rank) -> str:
    descriptor = opened(rank, "a")
    beside(lambda: os.write(descriptor, b"1"), lambda: os.write(descriptor, b"2"))
    return (rank.path / "a").read_text()


@scenario(ranks=1)
def working_directory(rank: Rank) -> str:
    (rank.path / "d").mkdir()
    os.chdir(rank.path)
    beside(lambda: os.chdir(rank.path / "d"), lambda: os.mkdir("x"))
    os.chdir("/")
    return str((rank.path / "x").exists())
