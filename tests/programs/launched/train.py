"""A training script whose ranks all remove and make the directory of the run."""

from __future__ import annotations

import argparse
import os
import shutil

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="checkpoints/my_run")
parser.add_argument("--overwrite", action="store_true")
options = parser.parse_args()


def main() -> None:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    if os.path.exists(options.out) and options.overwrite:
        shutil.rmtree(options.out)
    os.makedirs(options.out)
    model(torch.ones(2, 4)).sum().backward()
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), f"{options.out}/step_0.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
