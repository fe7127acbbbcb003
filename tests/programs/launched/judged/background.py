"""Each rank saves in the background; with ``waits`` it waits for the save before, else two threads share a name."""

from __future__ import annotations

import os
import sys
import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
PATH = f"out/r{dist.get_rank()}.pt"


def write(state: dict[str, torch.Tensor]) -> None:
    torch.save(state, f"{PATH}.tmp")
    os.replace(f"{PATH}.tmp", PATH)


threads: list[threading.Thread] = []
for step in range(2):
    if "waits" in sys.argv and threads:
        threads[-1].join()
    threads.append(threading.Thread(target=write, args=({"w": torch.full((2,), float(step))},)))
    threads[-1].start()
for each in threads:
    each.join()
