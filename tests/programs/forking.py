"""Processes that share a lock with the one that forked them, kills of children, and files that are moved."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TextIO

import racecheck
from racecheck import Rank


def _is_free(path: Path) -> bool:
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _locked(path: Path) -> TextIO:
    file = path.open("a")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


@racecheck.scenario(ranks=1)
def kept_by_a_fork(rank: Rank) -> list[bool]:
    """Whether the lock is free: after the parent has closed its file, and after the child has ended."""
    file = _locked(rank.path / "lock")
    if os.fork() == 0:
        time.sleep(10)
        os._exit(0)
    file.close()
    before = _is_free(rank.path / "lock")
    os.wait()
    return [before, _is_free(rank.path / "lock")]


@racecheck.scenario(ranks=1)
def kept_by_a_worker(rank: Rank) -> list[bool]:
    """The same with multiprocessing."""
    file = _locked(rank.path / "lock")
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(10,))
    worker.start()
    file.close()
    before = _is_free(rank.path / "lock")
    worker.join()
    return [before, _is_free(rank.path / "lock")]


@racecheck.scenario(ranks=2)
def one_child_inside(rank: Rank) -> int:
    """A child works under the lock that its parent took and closed."""
    file = _locked(rank.path / "lock")
    child = os.fork()
    if child == 0:
        try:
            (rank.path / "inside").mkdir()
            (rank.path / "inside").rmdir()
        except OSError:
            os._exit(1)
        os._exit(0)
    file.close()
    return os.waitpid(child, 0)[1]


@racecheck.scenario(ranks=1)
def kills(rank: Rank) -> None:
    """A child that sleeps is killed."""
    child = os.fork()
    if child == 0:
        time.sleep(1000)
        os._exit(0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    (rank.path / "file").touch()


@racecheck.scenario(ranks=1)
def moves(rank: Rank) -> None:
    """A file comes from TMPDIR."""
    with tempfile.NamedTemporaryFile("w", delete=False) as file:
        file.write("x")
    shutil.move(file.name, rank.path / "file")
