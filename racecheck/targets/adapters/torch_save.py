"""``torch.save`` by rank 0 into one file, from the simplest way to one that is never seen half written.

The variants are those of public answers to "how do I save from rank 0": nothing, a barrier, a lock, another name.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

from racecheck.targets.suite.protocol import State


class InPlace:
    """Rank 0 writes the file and no rank waits."""

    def save(self, state: State, root: Path, step: int) -> None:
        import torch.distributed as dist

        if dist.get_rank() == 0:
            self.write({"state": state, "step": step}, root / "checkpoint.pt")

    def load(self, root: Path, state: State) -> tuple[State, int]:
        found = self._read(root)
        return found["state"], found["step"]

    def latest(self, root: Path) -> int | None:
        return self._read(root)["step"] if (root / "checkpoint.pt").exists() else None

    def write(self, content: Any, path: Path) -> None:
        """Write, on rank 0."""
        import torch

        with self.alone(path):
            torch.save(content, path)

    def alone(self, path: Path) -> AbstractContextManager[Any]:
        """Hold this while the file is written or read."""
        return nullcontext()

    def _read(self, root: Path) -> Any:
        import torch

        path = root / "checkpoint.pt"
        with self.alone(path):
            return torch.load(path, weights_only=True)


class Barrier(InPlace):
    """The same, and then all ranks wait for rank 0."""

    def save(self, state: State, root: Path, step: int) -> None:
        import torch.distributed as dist

        super().save(state, root, step)
        dist.barrier()


class Locked(InPlace):
    """Rank 0 writes and all ranks read under a lock (the package filelock); none waits."""

    requires = ("filelock",)

    def alone(self, path: Path) -> AbstractContextManager[Any]:
        from filelock import FileLock

        return FileLock(f"{path}.lock")


class Renamed(Barrier):
    """Rank 0 writes under another name and renames; then all wait.  Nothing is synced."""

    not_for: ClassVar = {
        "object(mountpoint-s3)": "it publishes with a rename, which Mountpoint for S3 has not (doc/SEMANTICS.md)"
    }

    def write(self, content: Any, path: Path) -> None:
        temporary = path.with_name(f"{path.name}.tmp")
        super().write(content, temporary)
        os.replace(temporary, path)
