"""Rank 0 saves a step after another, in place or atomically; a later start continues from the file, or fails."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

FILE = "out/model.pt"


def save(step: int) -> None:
    target = FILE if "--in-place" in sys.argv else f"{FILE}.tmp"
    with open(target, "wb") as file:
        torch.save({"weights": torch.full((4,), float(step))}, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(target, FILE)
    directory = os.open("out", os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


dist.init_process_group("gloo")
if "--fail" in sys.argv:
    sys.exit(7)
if "--wait" in sys.argv:
    while time.monotonic() > 0:  # it might give up some day
        time.sleep(5)
        os.path.exists(FILE)
if "--hang" in sys.argv:
    while True:
        time.sleep(5)  # in virtual time: the test needs a recovery that never ends
        os.path.exists(FILE)
step = int(torch.load(FILE)["weights"][0]) if os.path.exists(FILE) else 0
dist.barrier()
for number in range(step + 1, step + 3):
    if dist.get_rank() == 0:
        save(number)
    dist.barrier()
