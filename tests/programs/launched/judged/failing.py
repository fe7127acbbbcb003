"""Saves that fail; the first argument says how the script takes the error."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, how = dist.get_rank(), sys.argv[1]
state, path = {"w": torch.ones(3) * rank}, f"out/r{rank}.pt"


def publish() -> None:
    torch.save(state, f"{path}.tmp")
    os.replace(f"{path}.tmp", path)


if how == "dropped":
    with ThreadPoolExecutor(1) as pool:
        pool.submit(torch.save, state, path)
elif how == "swallowed":
    torch.save(state, f"{path}.tmp")
    try:
        os.replace(f"{path}.tmp", path)
    except OSError as error:
        print("ignored:", error)
elif how == "retried":
    for _ in range(3):
        try:
            publish()
            break
        except (OSError, RuntimeError) as error:
            print("again:", error)
    else:
        raise SystemExit(1)
elif how == "raised":
    publish()
else:
    try:
        torch.save(state, path)
    except RuntimeError as error:
        print("ignored:", error)
    dist.barrier()
    if rank == 0:
        assert all(os.path.getsize(f"out/r{each}.pt") > 500 for each in range(2)), "too short"
dist.barrier()
dist.destroy_process_group()
