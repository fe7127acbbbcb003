"""Starts its other rank itself, as Lightning does: the same script once more, with LOCAL_RANK."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import torch
import torch.distributed as dist

SIZE = 3 if "--too-few" in sys.argv else 2

if "--helper" in sys.argv:
    subprocess.run([sys.executable, "-c", "open('out/helped', 'w')"], check=True)
children = []
if "LOCAL_RANK" not in os.environ:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571", NODE_RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(SIZE))
    others = [{**os.environ, "LOCAL_RANK": str(number)} for number in range(1, SIZE - ("--too-few" in sys.argv))]
    children = [subprocess.Popen([sys.executable, *sys.argv], env=each) for each in others]
rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("gloo", rank=rank, world_size=SIZE)
if "--race" in sys.argv:
    shutil.rmtree("out/run", ignore_errors=True)
    os.makedirs("out/run")
elif rank == 0:
    os.makedirs("out/run", exist_ok=True)
dist.barrier()
torch.save({"weights": torch.full((2,), 1.0)}, f"out/run/{rank}.pt")
for each in children:
    each.wait()
