"""Checkpointers that hold, as short as they can be: copy them.

1. A file that is being written has a name that no reader looks for yet.
2. It is flushed (from Python's buffer) and synced (to the disk), and then gets the name that people look for, by a
   rename: a reader finds the whole of it or nothing, and so does a restart after the power failed.
3. The name is on the disk only when the directory has been synced.  Not before that anybody counts on the checkpoint,
   and older ones go.
4. One rank does this.  All others wait until it is done, and hear how it went: if it failed, it failed for all.
5. One rank lists the directory, and tells the others: two nodes may see a directory differently.

Pillai et al., "All File Systems Are Not Created Equal" (OSDI '14), has the second and third; ``rename(2)`` and
``fsync(2)`` say that the name needs a sync of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from racecheck.targets.suite.protocol import State

T = TypeVar("T")

NO_RENAME = "it publishes with a rename, which Mountpoint for S3 does not support (doc/SEMANTICS.md)"
NOT_SHARED = "each rank writes its part to its own disk: dcp.load takes a file system that all ranks share"
SEEN_LATE = (
    "each rank looks for .metadata before dcp.save writes it, and gcsfuse remembers for 5 s that there is none"
    " (--metadata-cache-negative-ttl-secs); a restart finds it"
)


class RankZero:
    """The work that rank 0 does for all ranks."""

    def _on_rank_0(self, do: Callable[[], T]) -> T:
        """Have rank 0 do something: every rank gets its result, or an error.

        They receive it in any case, so that no rank waits in vain; and none continues before rank 0 is done.
        """
        import torch.distributed as dist

        told: list[Any] = [None, False]
        try:
            if dist.get_rank() == 0:
                told = [do(), True]
        finally:
            dist.broadcast_object_list(told, src=0)
        if not told[1]:
            raise RuntimeError("the operation failed on rank 0")
        given: T = told[0]
        return given

    def _sync(self, path: Path) -> None:
        """Have the bytes of a file, or the names in a directory, on the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Recipe(RankZero):
    """The state is the same on all ranks: rank 0 saves it with ``torch.save``, and at a restart gives it to all.

    A large state is better broadcast tensor by tensor, into the one that is there.
    """

    keep = 2
    not_for: ClassVar = {"object(mountpoint-s3)": NO_RENAME}

    def save(self, state: State, root: Path, step: int) -> None:
        self._on_rank_0(lambda: self._write(state, root, step))

    def load(self, root: Path, state: State) -> tuple[State, int]:
        return self._on_rank_0(lambda: self._read(root))

    def latest(self, root: Path) -> int | None:
        return self._on_rank_0(lambda: max(self._steps(root), default=None))

    def _write(self, state: State, root: Path, step: int) -> None:
        import torch

        temporary, path = root / "step.tmp", root / f"step-{step}.pt"
        with open(temporary, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        self._sync(root)
        for old in sorted(self._steps(root))[: -self.keep]:
            os.unlink(root / f"step-{old}.pt")

    def _read(self, root: Path) -> tuple[State, int]:
        import torch

        step = max(self._steps(root))
        return torch.load(root / f"step-{step}.pt", weights_only=True), step

    def _steps(self, root: Path) -> list[int]:
        return [int(name[5:-3]) for name in os.listdir(root) if name.startswith("step-")]


class SyncedDcp(RankZero):
    """Each rank has a part of the state: ``torch.distributed.checkpoint`` saves it, each time to a fresh directory.

    The file ``latest`` names the directory to load from.  It is written when all of that is on the disk; up to torch
    2.13 ``dcp.save`` syncs ``.metadata`` before that is written, and directories never (pytorch #183877).

    It takes a file system on which a rename is whole after a crash, as on ext4, XFS and btrfs; POSIX does not say so.
    """

    layout = "sharded"
    parts = ("model",)  # .metadata is then small enough to show what it takes: it fits into Python's buffer
    not_for: ClassVar = {
        "object(mountpoint-s3)": NO_RENAME, "node-local": NOT_SHARED, "load@object(gcsfuse)": SEEN_LATE
    }  # fmt: skip

    def save(self, state: State, root: Path, step: int) -> None:
        import torch.distributed.checkpoint as dcp

        path = self._on_rank_0(lambda: self._fresh(root, step))
        dcp.save(state, checkpoint_id=path)
        self._on_rank_0(lambda: self._publish(root, path))

    def load(self, root: Path, state: State) -> tuple[State, int]:
        import torch.distributed.checkpoint as dcp

        path = self._on_rank_0(lambda: self._published(root))
        assert path is not None, "there is no checkpoint"
        os.listdir(path)  # over NFS a rank forgets then that it has not seen .metadata when that was not there yet
        dcp.load(state, checkpoint_id=path)
        return state, self._step(path)

    def latest(self, root: Path) -> int | None:
        path = self._on_rank_0(lambda: self._published(root))
        return None if path is None else self._step(path)

    def _fresh(self, root: Path, step: int) -> Path:
        """Return a new directory name, also where an earlier save of the step was cut."""
        path = next(path for path in (root / f"step-{step}.{n}" for n in count()) if not path.exists())
        path.mkdir()
        return path

    def _publish(self, root: Path, path: Path) -> None:
        before, temporary = self._published(root), root / "latest.tmp"
        for each in (*path.iterdir(), path, root):
            self._sync(each)
        with open(temporary, "w") as pointer:
            pointer.write(path.name)
            pointer.flush()
            os.fsync(pointer.fileno())
        os.replace(temporary, root / "latest")
        self._sync(root)
        for old in root.glob("step-*"):
            if old not in (path, before):
                shutil.rmtree(old)

    def _published(self, root: Path) -> Path | None:
        try:
            return root / (root / "latest").read_text()
        except FileNotFoundError:
            return None

    def _step(self, path: Path) -> int:
        return int(path.name.removeprefix("step-").partition(".")[0])
