"""A rank that gets signals while it makes calls that must not happen twice.  Not collected by pytest."""

from __future__ import annotations

import fcntl
import os
import signal
from typing import Any

from racecheck import Rank, scenario

ARMED = "armed"
"""Its name in the watched directory: from when it is made on, signals may come; until then they would kill."""


def work(rank: Rank, *, interrupt: bool) -> Any:
    """Gives how many signals came, and what is in the file."""
    caught = []
    signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
    signal.siginterrupt(signal.SIGUSR1, interrupt)
    os.chdir(rank.path)
    os.mkdir(ARMED)
    os.mkdir("directory")
    file = os.open("file", os.O_CREAT | os.O_EXCL | os.O_RDWR)
    for number in range(5):
        assert os.write(file, b"%d" % number) == 1
    os.link("file", "linked")
    os.symlink("file", "symbolic")
    os.rename("linked", "renamed")
    os.mknod("node")
    os.mkdir("directory/inner")
    fcntl.flock(file, fcntl.LOCK_EX)
    os.rename("directory/inner", "moved")
    assert sorted(os.listdir()) == [ARMED, "directory", "file", "moved", "node", "renamed", "symbolic"]
    assert os.read(os.open("renamed", os.O_RDONLY), 3) == b"012"
    os.setxattr(file, "user.once", b"x", os.XATTR_CREATE)
    os.truncate("node", 3)
    os.close(os.dup(file))
    os.rmdir("moved")
    os.unlink("symbolic")
    text = os.pread(file, 100, 0).decode()
    os.rmdir(ARMED)
    os.close(file)
    return [len(caught), text]


@scenario(ranks=1)
def restarting(rank: Rank) -> Any:
    """Calls go on after the handler, as the C library's ``signal`` has it."""
    return work(rank, interrupt=False)


@scenario(ranks=1)
def interrupting(rank: Rank) -> Any:
    """Calls end with EINTR, as Python's ``signal.signal`` has it."""
    return work(rank, interrupt=True)
