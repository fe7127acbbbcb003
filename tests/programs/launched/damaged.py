"""Two ranks train, save each second step into a directory of its own, and resume from the newest: in the way named.

The second word is the number of steps.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

HOW, STEPS = sys.argv[1], int(sys.argv[2])
HERE = Path("out")

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(3)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def state(step: int) -> dict[str, Any]:
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}


def restore(job: dict[str, Any]) -> int:
    model.load_state_dict(job["model"])
    optimizer.load_state_dict(job["optimizer"])
    return int(job["step"])


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def save(step: int, directory: Path) -> None:
    if HOW == "dcp":
        dcp.save({"model": model.state_dict(), "step": torch.tensor(step)}, checkpoint_id=str(directory))
    elif HOW == "a_file_for_each_rank":
        torch.save(state(step), directory / f"rank{rank}.pt")
    elif rank == 0 and HOW == "safetensors":
        save_file(model.state_dict(), directory / "model.safetensors")
        (directory / "state.json").write_text(json.dumps({"step": step}))
    elif rank == 0:
        torch.save(state(step), directory / "job.pt")


def load(directory: Path) -> int:
    if HOW == "dcp":
        job: dict[str, Any] = {"model": model.state_dict(), "step": torch.tensor(0)}
        dcp.load(job, checkpoint_id=str(directory))
        model.load_state_dict(job["model"])
        return int(job["step"])
    if HOW == "a_file_for_each_rank":
        return restore(torch.load(directory / f"rank{rank}.pt"))
    if HOW == "safetensors":
        model.load_state_dict(load_file(directory / "model.safetensors"))
        return int(json.loads((directory / "state.json").read_text())["step"])
    return restore(torch.load(directory / "job.pt"))


def saved() -> Iterator[Path]:
    """Yield the directories of whole saves, the newest first; if digests are kept, those with the right ones."""
    done = [each.parent for each in HERE.glob("step-*/done")]
    for each in sorted(done, key=lambda path: int(path.name[5:]), reverse=True):
        if HOW != "digests" or is_right(each):
            yield each
        elif rank == 0:
            print(f"{each} is damaged: the save before it is loaded")


def is_right(directory: Path) -> bool:
    try:
        return (directory / "done").read_text() == digest(directory / "job.pt")
    except FileNotFoundError:
        return False


HERE.mkdir(exist_ok=True)
dist.barrier()
newest = next(saved(), None)
for step in range(load(newest) + 1 if newest is not None else 1, STEPS + 1):
    optimizer.zero_grad()
    model(torch.full((2, 8), float(step + rank))).square().mean().backward()
    for each in model.parameters():
        dist.all_reduce(each.grad)
    optimizer.step()
    if step % 2 == 0:
        directory = HERE / f"step-{step}"
        directory.mkdir(exist_ok=True)
        save(step, directory)
        dist.barrier()
        if rank == 0:
            (directory / "done").write_text(digest(directory / "job.pt") if HOW == "digests" else "")
        dist.barrier()
dist.destroy_process_group()
