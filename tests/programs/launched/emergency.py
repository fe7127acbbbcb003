"""Rank 0 fails while the others wait; they save when the launcher ends them."""

from __future__ import annotations

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


def wait(how: str) -> None:
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "queue":
        queue.Queue[int]().get()
    while True:
        time.sleep(8)  # SIGTERM interrupts it; under racecheck it takes no time
        os.path.exists("out/never")


signal.signal(signal.SIGTERM, save)
dist.init_process_group("gloo")
open(f"out/{dist.get_rank()}", "x").close()
dist.barrier()
if dist.get_rank() == 0:
    sys.exit(3)
wait(sys.argv[1])
