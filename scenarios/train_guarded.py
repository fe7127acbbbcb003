import argparse
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--overwrite", action="store_true")
options = parser.parse_args()

dist.init_process_group("gloo")
checkpoint = Path("checkpoints/my_run")
if dist.get_rank() == 0 and options.overwrite and checkpoint.exists():
    shutil.rmtree(checkpoint)
dist.barrier()
checkpoint.mkdir(parents=True, exist_ok=True)

model = DistributedDataParallel(torch.nn.Linear(4, 4))
model(torch.ones(1, 4)).sum().backward()
if dist.get_rank() == 0:
    torch.save(model.state_dict(), checkpoint / "model.pt")
dist.barrier()
dist.destroy_process_group()
