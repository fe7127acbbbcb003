"""Savers that hold but for one thing, for the checks of the suite."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from racecheck.targets.suite.controls import Recipe
from racecheck.targets.suite.protocol import State


class ByName(Recipe):
    """Takes the newest to be the last by name: step-9 comes after step-10."""

    keep = 4

    def _newest(self, root: Path) -> int | None:
        return max(self._steps(root), key=str, default=None)

    def latest(self, root: Path) -> int | None:
        return self._on_rank_0(lambda: self._newest(root))

    def _read(self, root: Path) -> tuple[State, int]:
        import torch

        step = self._newest(root)
        assert step is not None
        return torch.load(root / f"step-{step}.pt", weights_only=True), step


class EachForItself(Recipe):
    """Each rank looks for the newest, and reads it; only that one is kept."""

    keep = 1

    def latest(self, root: Path) -> int | None:
        return max(self._steps(root), default=None)

    def load(self, root: Path, state: State) -> tuple[State, int]:
        return self._read(root)


class RemovesFirst(EachForItself):
    """Before a step is saved again it is removed, for a minute; rank 1 is a second late to load (of virtual time)."""

    def load(self, root: Path, state: State) -> tuple[State, int]:
        import torch.distributed as dist

        time.sleep(dist.get_rank())
        return super().load(root, state)

    def _write(self, state: State, root: Path, step: int) -> None:
        (root / f"step-{step}.pt").unlink(missing_ok=True)
        time.sleep(60)
        super()._write(state, root, step)


class Once(Recipe):
    """Refuses to save a step again, and says so."""

    not_for: ClassVar = {**Recipe.not_for, "overwrite": "a step is saved once"}

    def _write(self, state: State, root: Path, step: int) -> None:
        if step in self._steps(root):
            raise FileExistsError(step)
        super()._write(state, root, step)


class Parts(Recipe):
    """Each rank writes a part; a load takes the step from the last part that there is."""

    layout = "sharded"

    def save(self, state: State, root: Path, step: int) -> None:
        import torch
        import torch.distributed as dist

        dist.barrier()
        torch.save({"state": _whole(state), "step": step}, root / f"part-{dist.get_rank()}.pt")
        dist.barrier()

    def load(self, root: Path, state: State) -> tuple[State, int]:
        import torch

        last = max(each for each in os.listdir(root))
        found = torch.load(root / last, weights_only=True)
        return _like(found["state"], state), found["step"]

    def latest(self, root: Path) -> int | None:
        import torch

        found = sorted(os.listdir(root))
        return torch.load(root / found[-1], weights_only=True)["step"] if found else None


class Skips(Recipe):
    """Leaves a step as it is that is there."""

    def _write(self, state: State, root: Path, step: int) -> None:
        if step not in self._steps(root):
            super()._write(state, root, step)


class OldParts(Recipe):
    """Each rank writes some of the tensors, and a load takes all parts that there are, also those of a larger world."""

    def save(self, state: State, root: Path, step: int) -> None:
        import torch
        import torch.distributed as dist

        names = sorted(state["model"])
        own = {name: state["model"][name] for name in names[dist.get_rank() :: dist.get_world_size()]}
        part = {"model": own, "optimizer": state["optimizer"], "step": step}
        torch.save(part, root / f"step-{step}-{dist.get_rank()}.part")
        dist.barrier()

    def load(self, root: Path, state: State) -> tuple[State, int]:
        import torch

        step = self.latest(root)
        parts = [torch.load(each, weights_only=True) for each in sorted(root.glob(f"step-{step}-*.part"))]
        model = {name: tensor for part in parts for name, tensor in part["model"].items()}
        return {"model": model, "optimizer": parts[0]["optimizer"]}, parts[0]["step"]

    def latest(self, root: Path) -> int | None:
        return max((int(each.name.split("-")[1]) for each in root.glob("*.part")), default=None)


class Copied(Recipe):
    """Writes a file elsewhere and copies it to its place."""

    def _write(self, state: State, root: Path, step: int) -> None:
        import torch

        torch.save(state, root / "step.tmp")
        shutil.copyfile(root / "step.tmp", root / f"step-{step}.pt")


class Quiet(Recipe):
    """Says of every asynchronous save that it went well."""

    def save_async(self, state: State, root: Path, step: int) -> Any:
        done: Future[None] = Future()
        with suppress(OSError, RuntimeError):
            self.save(state, root, step)
        done.set_result(None)
        return done


def _whole(state: State) -> Any:
    from racecheck.targets.suite import state as states

    return states.whole(state)


def _like(found: State, wanted: State) -> Any:
    from racecheck.targets.suite import state as states

    del wanted
    return states.sharded(found)
