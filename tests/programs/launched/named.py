"""A job whose ranks know themselves by Slurm's variables, or by an argument; with "race", all make one directory."""

import os
import sys

import torch.distributed as dist

IN_SLURM = "SLURM_PROCID" in os.environ
if IN_SLURM:
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR"} & os.environ.keys(), dict(os.environ)
    assert os.environ["SLURM_LOCALID"] == str(
        int(os.environ["SLURM_PROCID"]) % int(os.environ["SLURM_NTASKS_PER_NODE"])
    )
    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
else:
    assert sys.argv[1] == f"--local-rank={os.environ['LOCAL_RANK']}", sys.argv
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group(
    "gloo", init_method="env://" if not IN_SLURM else "tcp://127.0.0.1:29512", rank=rank, world_size=size
)
if "race" in sys.argv or rank == 0:
    os.makedirs("out/step")
dist.barrier()
with open(f"out/step/{rank}", "w") as file:
    file.write(f"node {os.environ.get('SLURM_NODEID')} of {os.environ.get('SLURM_NNODES')}")
dist.destroy_process_group()
