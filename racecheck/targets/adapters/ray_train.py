"""Ray Train: what its workers and its controller do to files when a worker calls ``ray.train.report(checkpoint=...)``.

Ray starts the workers and the controller as processes of its own, which racecheck does not control.  So each rank is a
worker, and rank 0 the controller, too; collectives of the group stand for the calls between them.  What touches files
is Ray's own: ``StorageContext.persist_current_checkpoint`` in each worker that reports a checkpoint, then
``CheckpointManager.register_checkpoint``, which writes ``checkpoint_manager_snapshot.json`` and deletes old ones. Both
are internal (``ray.train.v2._internal``): there is no public way to them without a cluster.

A save is a report, and returns when the controller has registered it, for which users wait by
``ray.train.get_all_reported_checkpoints()``.  A failure in one worker or the controller is one for all, as Ray has it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from racecheck.targets.suite.controls import RankZero
from racecheck.targets.suite.protocol import State

os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")  # or ranks could not be forked with pyarrow
os.environ.setdefault("ARROW_IO_THREADS", "1")  # which of several C++ threads copies which file is not controlled

_SHARED = (
    "StorageContext refuses it: 'Check that all nodes in the cluster have read/write access to the configured storage"
    " path. `RunConfig(storage_path)` should be set to a cloud storage URI or a shared filesystem path'"
)


class Ray(RankZero):
    """Rank 0 writes with ``torch.save`` into a temporary directory, and reports that; two checkpoints are kept."""

    requires = ("ray", "pyarrow")
    not_for: ClassVar = {"node-local": _SHARED}

    def __init__(self) -> None:
        self._storage: Any = None
        self._manager: Any = None

    def save(self, state: State, root: Path, step: int) -> None:
        self._begin(root)
        name = self._on_rank_0(self._storage.make_default_checkpoint_dir_name)
        persisted = self._persist(state, name)
        self._on_rank_0(lambda: asyncio.run(self._register(persisted, step)))

    def load(self, root: Path, state: State) -> tuple[State, int]:
        checkpoint, step = self._newest(root)
        with checkpoint.as_directory() as directory:
            return self._read(state, directory), step

    def latest(self, root: Path) -> int | None:
        found = self._newest(root)
        return found[1] if found else None

    def _write(self, state: State, directory: str) -> bool:
        """Write this rank's part; returns whether it has one."""
        import torch
        import torch.distributed as dist

        if dist.get_rank() != 0:
            return False
        torch.save(state, Path(directory, "state.pt"))
        return True

    def _read(self, state: State, directory: str) -> State:
        import torch

        found: State = torch.load(Path(directory, "state.pt"), weights_only=True)
        return found

    def _begin(self, root: Path) -> None:
        """Let the controller look for the files of an earlier job; workers get its storage."""
        from ray.train import CheckpointConfig
        from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
        from ray.train.v2._internal.execution.storage import StorageContext

        def begin() -> Any:
            storage = StorageContext(root, "run")
            self._manager = CheckpointManager(CheckpointConfig(num_to_keep=2), storage)
            return storage

        if self._storage is None:
            self._storage = self._on_rank_0(begin)

    def _persist(self, state: State, name: str) -> Any:
        """Copy each worker's part to storage; returns the first of their checkpoints, as all are one."""
        import torch.distributed as dist
        from ray.train import Checkpoint

        reports: list[Any] = [None] * dist.get_world_size()
        told: Any = "failed"
        try:
            with tempfile.TemporaryDirectory() as directory:
                written = Checkpoint.from_directory(directory) if self._write(state, directory) else None
                told = self._storage.persist_current_checkpoint(written, name) if written else None
        finally:
            dist.all_gather_object(reports, told)
        if "failed" in reports:
            raise RuntimeError("a worker failed: Ray stops all workers")
        return next(each for each in reports if each is not None)

    async def _register(self, checkpoint: Any, step: int) -> None:
        from ray.train.v2._internal.execution.training_report import _TrainingReport

        self._manager.register_checkpoint(_TrainingReport(checkpoint, {"step": step}, validation=False))

    def _newest(self, root: Path) -> Any:
        """Return the latest checkpoint that the controller knows, with its step; None if there is none."""
        self._begin(root)

        def latest() -> Any:
            found = self._manager.latest_checkpoint_result
            return found and (found.checkpoint, found.metrics["step"])

        return self._on_rank_0(latest)


class RayDcp(Ray):
    """Every rank has ``dcp.save`` write its part into a temporary directory of its own, and reports that."""

    layout = "sharded"

    def _write(self, state: State, directory: str) -> bool:
        import torch.distributed.checkpoint as dcp

        dcp.save(state, checkpoint_id=directory)
        return True

    def _read(self, state: State, directory: str) -> State:
        import torch.distributed.checkpoint as dcp

        dcp.load(state, checkpoint_id=directory)
        return state
