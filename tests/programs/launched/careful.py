"""The same by rank 0 alone, with a log outside of the watched directory; asks for NCCL, and for a group of its own."""

from __future__ import annotations

import os
import shutil
import sys

import torch
import torch.distributed as dist

OUT = "checkpoints/my_run"

dist.init_process_group("nccl", init_method="env://")
pair = dist.new_group([0, 1], backend="nccl")
assert __name__ == "__main__"
assert sys.modules["__main__"].__file__ == os.path.abspath(__file__)
assert int(os.environ["RANK"]) == dist.get_rank()
if dist.get_rank() == 0:
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    with open("log.txt", "a") as log:
        log.write("started\n")
    os.rename("notes.txt", "old_notes.txt")
dist.barrier(pair)
if dist.get_rank() == 0:
    torch.save({"w": torch.ones(3)}, f"{OUT}/model.pt.tmp")
    os.replace(f"{OUT}/model.pt.tmp", f"{OUT}/model.pt")
dist.barrier()
assert torch.load(f"{OUT}/model.pt")["w"].sum() == 3
dist.destroy_process_group()
dist.init_process_group("nccl", "tcp://127.0.0.1:29400", rank=int(os.environ["RANK"]), world_size=2, group_name="again")
ones = torch.ones(1)
dist.all_reduce(ones)
assert ones == 2
dist.destroy_process_group()
