"""``torch.distributed.checkpoint``: its checkpointers, as its documentation has them used.

Each step has a directory of its own, and the newest one that has its metadata counts: that is written last.
"""

from __future__ import annotations

import re
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar

from racecheck.targets.suite.protocol import State

_EMPTY = (
    'torch.distributed.checkpoint.FileSystemWriter: "This implementation makes the following assumptions: '
    'The checkpoint path is an empty or non-existing directory"'
)
OVERWRITES = {"overwrite": _EMPTY, "kill-overwrite": _EMPTY}
RENAMES = {"object(mountpoint-s3)": "it renames its metadata, which Mountpoint for S3 has not (doc/SEMANTICS.md)"}
_ONCE = ("saves", "load", "kill", "power-loss", "kill-rank", "error", "no-space", "slow", "shrink", "grow")
_STORAGES = ("nfs", "node-local", "incoherent-fuse", "object(mountpoint-s3)", "object(gcsfuse)")


def newest(root: Path, mark: str) -> int | None:
    """Return the highest step whose directory has the file ``mark``: rank 0 looks and tells the others."""
    import torch.distributed as dist

    found: list[int | None] = [None]
    if dist.get_rank() == 0:
        steps = [int(each.parent.name.removeprefix("step-")) for each in root.glob(f"step-*/{mark}")]
        found = [max(steps, default=None)]
    dist.broadcast_object_list(found, src=0)
    return found[0]


class Dcp:
    """``dcp.save`` into a directory for each step."""

    not_for: ClassVar = {**OVERWRITES, **RENAMES}

    def save(self, state: State, root: Path, step: int) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.save(state, checkpoint_id=root / f"step-{step}")

    def load(self, root: Path, state: State) -> tuple[State, int]:
        import torch.distributed.checkpoint as dcp

        step = self._newest(root)
        dcp.load(state, checkpoint_id=root / f"step-{step}")
        return state, step

    def latest(self, root: Path) -> int | None:
        return newest(root, ".metadata")

    def _newest(self, root: Path) -> int:
        step = self.latest(root)
        if step is None:
            raise FileNotFoundError(f"no step below {root} has its metadata")
        return step


class Reused:
    """``dcp.save`` into one directory, again and again."""

    not_for: ClassVar = {**OVERWRITES, **dict.fromkeys((*_ONCE, *_STORAGES), _EMPTY)}

    def save(self, state: State, root: Path, step: int) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.save({**state, "step": step}, checkpoint_id=root / "checkpoint")

    def load(self, root: Path, state: State) -> tuple[State, int]:
        import torch.distributed.checkpoint as dcp

        found: dict[str, Any] = {**state, "step": 0}
        dcp.load(found, checkpoint_id=root / "checkpoint")
        return {part: found[part] for part in state}, found["step"]

    def latest(self, root: Path) -> int | None:
        import torch.distributed.checkpoint as dcp

        if not (root / "checkpoint" / ".metadata").exists():
            return None
        found = {"step": 0}
        dcp.load(found, checkpoint_id=root / "checkpoint")
        return found["step"]


class Threads(Dcp):
    """``dcp.save`` by four threads in each rank."""

    def save(self, state: State, root: Path, step: int) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.save(state, storage_writer=dcp.FileSystemWriter(root / f"step-{step}", thread_count=4))


class Async(Dcp):
    """``dcp.async_save`` by a thread, with a process group of its own.

    A save begins when the one before is done, as in PyTorch's recipe for asynchronous saving ("avoiding queuing more
    than one checkpoint request at a time").
    """

    executor = "THREAD"

    def __init__(self) -> None:
        import torch.distributed as dist

        self._group = dist.new_group(backend="gloo")
        self._before: Future[Any] | None = None

    def save(self, state: State, root: Path, step: int) -> None:
        self.save_async(state, root, step).result()

    def save_async(self, state: State, root: Path, step: int) -> Future[Any]:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

        if self._before is not None:
            self._before.result()
        self._before = dcp.async_save(
            state,
            checkpoint_id=root / f"step-{step}",
            process_group=self._group,
            async_checkpointer_type=AsyncCheckpointerType[self.executor],
        )
        return self._before


class AsyncProcess(Async):
    """The same by a process that each rank starts, which imports torch."""

    executor = "PROCESS"
    timeout = 120.0


class ToTorch:
    """``dcp.save``, then rank 0 converts it by ``dcp_to_torch_save``, and ``torch.load``."""

    not_for: ClassVar = {**OVERWRITES, **RENAMES}

    def save(self, state: State, root: Path, step: int) -> None:
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

        path = root / f"step-{step}"
        dcp.save(state, checkpoint_id=path)
        if dist.get_rank() == 0:
            dcp_to_torch_save(path, path.with_suffix(".pt"))
        dist.barrier()

    def load(self, root: Path, state: State) -> tuple[State, int]:
        import torch

        step = self.latest(root)
        return torch.load(root / f"step-{step}.pt", weights_only=True), step or 0

    def latest(self, root: Path) -> int | None:
        steps = [int(found[1]) for each in root.iterdir() if (found := re.fullmatch(r"step-(\d+)\.pt", each.name))]
        return max(steps, default=None)
