"""A job that saves once more when it is told to end: ``preempted.py HOW``.

``good``: the ranks agree at each step whether one of them was told.  ``evaluation``: they do so, but an evaluation of
an hour comes between two steps.  ``behind``: the last save has the number of the step before.  ``deaf``: rank 1 does
not handle the signal, and rank 0 takes ten seconds to end.  Its sleeps take virtual time.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sound_loops import reduce, write
from torch import nn

STEPS, EVERY = 8, 4
FILE = Path("out/job.pt")
HOW = sys.argv[1]
told = False


def note(*_: object) -> None:
    global told
    told = True


def save(step: int) -> None:
    dist.barrier()
    if dist.get_rank() == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        write(state, FILE)
    dist.barrier()


def is_over() -> bool:
    flag = torch.tensor(int(told))
    dist.all_reduce(flag)
    return bool(flag)


signal.signal(signal.SIGTERM, note)
dist.init_process_group("gloo")
FILE.parent.mkdir(exist_ok=True)
if HOW == "deaf":
    if dist.get_rank() == 1:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    dist.barrier()
    if dist.get_rank() == 0:
        (FILE.parent / "begun").touch()
    time.sleep(10)  # in virtual time: rank 0 uses a part of its grace
    sys.exit()
torch.manual_seed(1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
step = 0
if FILE.exists():
    job = torch.load(FILE)
    model.load_state_dict(job["model"])
    optimizer.load_state_dict(job["optimizer"])
    step = job["step"]
dist.barrier()
while step < STEPS:
    optimizer.zero_grad()
    model(torch.full((4,), float(step))).sum().backward()
    reduce(model)
    optimizer.step()
    step += 1
    if HOW == "evaluation" and step == 6:
        time.sleep(3600)
    over = is_over()
    if over or step % EVERY == 0:
        save(step - (HOW == "behind" and over and step % EVERY != 0))
    if over:
        break
dist.destroy_process_group()
