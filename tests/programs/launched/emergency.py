"""Rank 0 fails while the others wait; they save when the launcher ends them.

They sleep so that SIGTERM has something to interrupt.  Racecheck runs sleeps in virtual time: no test waits.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import sys
import time
from types import FrameType

import torch.distributed as dist


def save(number: int, frame: FrameType | None) -> None:
    del number, frame
    with open("out/emergency", "w") as file:
        file.write("x")
    sys.exit(143)


def note(number: int, frame: FrameType | None) -> None:
    del number, frame
    open("out/noted", "x").close()


def wait(how: str) -> None:
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how in _SLEEPS:
        signal.signal(signal.SIGTERM, note)
        _SLEEPS[how]()
        open("out/rested", "x").close()
        sys.exit(1)
    if how == "queue":
        queue.Queue[int]().get()
    while True:
        time.sleep(8)
        os.path.exists("out/never")


def nanosleep() -> None:
    """Sleep for 8 s, as a C program does: an interrupted call stores the time that is left."""
    libc, time_left = ctypes.CDLL(None), (ctypes.c_long * 2)(8, 0)
    while libc.nanosleep(time_left, time_left):
        pass


_SLEEPS = {"rest": lambda: time.sleep(8), "nanosleep": nanosleep}

signal.signal(signal.SIGTERM, save)
dist.init_process_group("gloo")
open(f"out/{dist.get_rank()}", "x").close()
dist.barrier()
if dist.get_rank() == 0:
    sys.exit(3)
wait(sys.argv[1])
