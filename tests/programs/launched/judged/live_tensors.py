"""A thread saves what training goes on to change, unless it gets a copy (``copy``)."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import torch
import torch.distributed as dist


def write(state: Any, path: str) -> None:
    with open(path, "wb") as file:
        torch.save(state, file)


dist.init_process_group("gloo")
w = torch.zeros(4)
if dist.get_rank() == 0:
    state = {"w": w.clone() if "copy" in sys.argv else w}
    saver = threading.Thread(target=write, args=(state, "out/s0.pt"))
    saver.start()
    os.stat("out")
    w.add_(1)
    os.stat("out")
    saver.join()
dist.barrier()
dist.destroy_process_group()
