"""Scenarios that poll without a pause.  Not collected by pytest.

The sleeps are what is waited for, and the subject of the tests; they are in virtual time, of the program too, and take
none.
"""

import ctypes
import os
import subprocess
import sys
import time

from racecheck import Rank, scenario

_PROGRAM = """
import os, time
pid = os.fork()
if pid == 0:
    time.sleep(1)
    os._exit(3)
while os.waitpid(pid, os.WNOHANG) == (0, 0):
    pass
"""


@scenario(ranks=1)
def its_child(rank: Rank) -> None:
    """A rank asks whether its child has ended."""
    pid = os.fork()
    if pid == 0:
        time.sleep(1)
        os._exit(0)
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        pass
    (rank.path / "done").touch()


@scenario(ranks=1)
def in_a_program(rank: Rank) -> None:
    """A program does, whose clocks are real."""
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True)
    (rank.path / "done").touch()


@scenario(ranks=3)
def for_a_file(rank: Rank) -> None:
    """Two ranks look for a file that the third makes after a while."""
    if rank.rank == 2:
        time.sleep(1)
        (rank.path / "made").touch()
    while not (rank.path / "made").exists():
        pass


@scenario(ranks=2)
def empties_a_file(rank: Rank) -> None:
    """A rank calls creat(2) for the same file again and again."""
    for _ in range(15 if rank.rank == 0 else 1):
        os.close(ctypes.CDLL(None).creat(os.fsencode(rank.path / f"of{rank.rank}"), 0o600))


@scenario(ranks=2, max_ops=50)
def forever(rank: Rank) -> None:
    """Nobody makes the file."""
    while not (rank.path / "made").exists():
        pass
