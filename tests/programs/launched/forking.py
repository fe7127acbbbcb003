"""Two ranks that the script forks; the first argument says what they do."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

OUT = Path("out")
SETTINGS: dict[str, int] = {}
KEPT: list[Any] = []


def work(rank: int, what: str, channel: Any = None) -> None:
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29511")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    assert SETTINGS == {"rate": 1}, "a forked process has the memory of its parent"
    if what == "race" or rank == 0:
        (OUT / "step").mkdir()
    if what == "loader":
        for (batch,) in DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2, num_workers=1):
            assert batch.sum() == 4
    if what == "queue":
        channel.put(rank)
    dist.barrier()
    state = {"rank": torch.tensor(rank)}
    if what == "resumes" and (OUT / f"{rank}.pt").exists():
        assert torch.load(OUT / f"{rank}.pt")["rank"] == rank
    torch.save(state, OUT / f"{rank}.tmp")
    (OUT / f"{rank}.tmp").rename(OUT / f"{rank}.pt")
    if what == "fails" and rank == 1:
        raise ValueError("on purpose")
    if what == "leaves" and rank == 1:
        sys.exit(3)


def start(what: str) -> None:
    shutil.rmtree(OUT / "step", ignore_errors=True)
    if what == "torch":
        mp.start_processes(work, args=(what,), nprocs=2, start_method="fork")
        return
    if what == "thread":
        threading.Thread(target=time.sleep, args=(1,)).start()
    if what == "pool":
        KEPT.append(multiprocessing.get_context("fork").Pool(1))
    if what == "recovers" and OUT.joinpath("0.pt").exists():
        raise RuntimeError("there is a checkpoint")
    channel = multiprocessing.get_context("fork").Queue() if what == "queue" else None
    context = multiprocessing.get_context("fork")
    made = [context.Process(target=lambda rank=rank: work(rank, what, channel)) for rank in range(2)]
    for each in made:
        each.start()
    if channel is not None:
        assert sorted(channel.get() for _ in made) == [0, 1]
    for each in made:
        each.join()
    assert [each.exitcode for each in made] == ([0, 3] if what == "leaves" else [0, 0])
    assert [int(torch.load(OUT / f"{rank}.pt")["rank"]) for rank in range(2)] == [0, 1]


if __name__ == "__main__":
    SETTINGS["rate"] = 1
    OUT.mkdir(exist_ok=True)
    start(sys.argv[1])
