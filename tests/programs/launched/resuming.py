"""A training loop that restores all that it is made of, but for the part that it is told to lose.

Two ranks train a small network with dropout by Adam, with a scheduler, a gradient scaler and a shuffled loader, for two
epochs of four batches.  Rank 0 saves the job after every second step, and each rank its random numbers.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

LOST = sys.argv[1] if len(sys.argv) > 1 else ""
EPOCHS, EVERY = 2, 2
HERE = Path("out")


def replace(state: object, path: Path) -> None:
    with open(path.with_suffix(".tmp"), "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path.with_suffix(".tmp"), path)
    directory = os.open(HERE, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(7)
random.seed(7)
HERE.mkdir(exist_ok=True)

data = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
sampler: DistributedSampler[int] = DistributedSampler(data, seed=3)
loader = DataLoader(data, batch_size=2, sampler=sampler)
layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
model = torch.nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
step = epoch = done = 0

if (HERE / "job.pt").exists():
    job = torch.load(HERE / "job.pt", weights_only=False)
    layers.load_state_dict(job["model"])
    step, done = job["step"], job["done"]
    if LOST != "optimizer":
        optimizer.load_state_dict(job["optimizer"])
    if LOST != "scheduler":
        scheduler.load_state_dict(job["scheduler"])
    if LOST != "scaler":
        scaler.load_state_dict(job["scaler"])
    if LOST != "epoch":
        epoch = job["epoch"]
    if LOST == "loader":
        done = 0
    if LOST != "random":
        torch.set_rng_state(torch.load(HERE / f"random{rank}-{step}.pt"))

while epoch < EPOCHS:
    sampler.set_epoch(epoch)
    generator = torch.get_rng_state()
    batches = iter(loader)  # draws a seed
    torch.set_rng_state(generator)
    for number, (inputs, wanted) in enumerate(batches):
        if number < done:
            continue
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scheduler.step()
        step, done = step + 1, number + 1
        if step % EVERY == 0:
            replace(torch.get_rng_state(), HERE / f"random{rank}-{step}.pt")
            dist.barrier()
            if rank == 0:
                state = {"model": layers.state_dict(), "optimizer": optimizer.state_dict(), "time": time.time()}
                state |= {"scheduler": scheduler.state_dict(), "scaler": scaler.state_dict()}
                replace({**state, "step": step, "epoch": epoch, "done": done}, HERE / "job.pt")
            dist.barrier()
    epoch, done = epoch + 1, 0
dist.destroy_process_group()
