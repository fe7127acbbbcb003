"""A job whose batches are loaded by workers, and that saves once more when it is told to end: ``loading.py HOW``.

``bare``: the workers do not handle the signal, and their rank fails when they end.  ``shielded``: they ignore it.
"""

from __future__ import annotations

import signal
import sys

import torch
import torch.distributed as dist
from sound_loops import OUT, data, network, reduce, resumed, save
from torch import nn
from torch.utils.data import DataLoader

told = False


def note(*_: object) -> None:
    global told
    told = True


def shield(number: int) -> None:
    del number
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


signal.signal(signal.SIGTERM, note)
dist.init_process_group("gloo")
OUT.mkdir(exist_ok=True)
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
done = resumed(model, optimizer)
loader = DataLoader(data(), batch_size=4, num_workers=2, worker_init_fn=shield if sys.argv[1] == "shielded" else None)
for step, (inputs, wanted) in enumerate(loader, 1):
    if step <= done:
        continue
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), wanted).backward()
    reduce(model)
    optimizer.step()
    over = torch.tensor(int(told))
    dist.all_reduce(over)
    if over or step == 2:
        save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
    if over:
        break
dist.destroy_process_group()
