"""DCP saves at every step, into one directory or into several; a later start continues from the last that is whole."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

dist.init_process_group("gloo")
weights: Any = torch.arange(8.0).reshape(4, 2)
if "--sharded" in sys.argv:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    weights = distribute_tensor(weights, init_device_mesh("cpu", (dist.get_world_size(),)), [Shard(0)])
state = {"weights": weights, "step": 0}
whole = [each for each in sorted(os.listdir("out")) if os.path.exists(f"out/{each}/.metadata")]
dist.barrier()
if whole:
    dcp.load(state, checkpoint_id=f"out/{whole[-1]}")
for step in range(state["step"] + 1, state["step"] + 3):
    with torch.no_grad():
        state["weights"].add_(1)
    state["step"] = step
    dcp.save(state, checkpoint_id="out/only" if "--one" in sys.argv else f"out/{step:03}")
if "--prune" in sys.argv and dist.get_rank() == 1:
    os.unlink("out/002/__1_0.distcp")
if "--foreign" in sys.argv and dist.get_rank() == 0:
    torch.save({"module": torch.nn.Linear(2, 2)}, "out/002/module.pt")
