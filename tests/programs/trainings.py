"""A training job that goes on after an interruption as if there had been none, and jobs that lose a part of it."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DATA = torch.arange(64 * 8.0).reshape(64, 8) / 512


class Sound:
    """Dropout, AdamW, a scheduler, and a shuffled order of the data; each rank saves its part into one directory."""

    lost: str = ""

    def __init__(self) -> None:
        torch.manual_seed(7)
        layers = torch.nn.Linear(8, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1)
        self.model = DistributedDataParallel(torch.nn.Sequential(*layers))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        torch.manual_seed(100 + dist.get_rank())
        self.place = 0

    def step(self) -> None:
        order = torch.randperm(64, generator=torch.Generator().manual_seed(5))
        batch = DATA[order[self.place * 4 : self.place * 4 + 4]]
        self.place += 1
        self.optimizer.zero_grad()
        self.model(batch).square().mean().backward()
        self.optimizer.step()
        self.scheduler.step()

    def state(self) -> dict[str, Any]:
        kept = {each: getattr(self, each).state_dict() for each in ("model", "optimizer", "scheduler")}
        return {**kept, "generator": torch.get_rng_state(), "place": self.place}

    def save(self, root: Path, step: int) -> None:
        target, fresh = root / f"step{step}", root / f"step{step}.tmp"
        if dist.get_rank() == 0:
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
        dist.barrier()
        with open(fresh / f"{dist.get_rank()}.pt", "wb") as file:
            torch.save(Sound.state(self), file)
            file.flush()
            os.fsync(file.fileno())
        dist.barrier()
        if dist.get_rank() == 0:
            _sync(fresh)
            shutil.rmtree(target, ignore_errors=True)
            fresh.rename(target)
            _sync(root)
        dist.barrier()

    def load(self, root: Path) -> int:
        done = max((int(each.name[4:]) for each in root.glob("step?")), default=0)
        dist.barrier()  # before one of the ranks removes what another one still looks for
        if done:
            kept = torch.load(root / f"step{done}" / f"{dist.get_rank()}.pt")
            for name in {"model", "optimizer", "scheduler"} - {self.lost}:
                getattr(self, name).load_state_dict(kept[name])
            if self.lost != "generator":
                torch.set_rng_state(kept["generator"])
            if self.lost != "place":
                self.place = kept["place"]
        return done


def _sync(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)


class WithoutModel(Sound):
    lost = "model"


class WithoutOptimizer(Sound):
    lost = "optimizer"


class WithoutScheduler(Sound):
    lost = "scheduler"


class WithoutGenerator(Sound):
    lost = "generator"


class WithoutPlace(Sound):
    lost = "place"


class Hidden(WithoutPlace):
    """Does not name the place in the data as a part of its state: the weights of the next step show it."""

    def state(self) -> dict[str, Any]:
        return {**super().state(), "place": 0}


class Older(Sound):
    """Resumes from the save before the newest."""

    def load(self, root: Path) -> int:
        every = sorted(root.glob("step?"))
        if every and dist.get_rank() == 0:
            shutil.rmtree(every[-1])
        dist.barrier()
        return super().load(root)


class Lucky(Sound):
    """Draws a part of its state from the kernel's random numbers."""

    def state(self) -> dict[str, Any]:
        return {**super().state(), "luck": random.SystemRandom().random()}


class Timed(Sound):
    """Counts the time of day as a part of its state."""

    def state(self) -> dict[str, Any]:
        return {**super().state(), "at": time.time()}


class Arrays(Sound):
    """Has arrays and bytes in its state, and an object that cannot be compared if that is ``lost``."""

    def state(self) -> dict[str, Any]:
        more = {"array": np.full(3, self.place), "number": np.int64(self.place), "bytes": b"x" * self.place}
        return {**super().state(), **more, **({"own": {1, 2}} if self.lost == "own" else {})}


class ArraysWithoutPlace(Arrays):
    lost = "place"


class Opaque(Arrays):
    lost = "own"


class Forgetful(Sound):
    """Returns nothing where the number of steps is due."""

    def load(self, root: Path) -> Any:
        super().load(root)
