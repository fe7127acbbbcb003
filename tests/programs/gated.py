"""Checkpointers for the gate, good and bad.  They save JSON, so that a run takes little time."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

import racecheck


def text(state: dict[str, Any], step: int) -> str:
    return json.dumps({"step": step, "model": {name: each.tolist() for name, each in state["model"].items()}})


class InPlace:
    """Rank 0 writes over the last checkpoint."""

    parts = ("model",)

    def save(self, state, root: Path, step: int) -> None:
        import torch.distributed as dist

        if dist.get_rank() == 0:
            self.write(root / "checkpoint.json", text(state, step))
        dist.barrier()

    def write(self, path: Path, text: str) -> None:
        path.write_text(text)

    def load(self, root: Path, state):
        import torch

        found = json.loads((root / "checkpoint.json").read_text())
        return {"model": {name: torch.tensor(each) for name, each in found["model"].items()}}, found["step"]

    def latest(self, root: Path) -> int | None:
        path = root / "checkpoint.json"
        return json.loads(path.read_text())["step"] if path.exists() else None


class Careful(InPlace):
    """Another name, fsync, rename, fsync of the directory."""

    def write(self, path: Path, text: str) -> None:
        fresh = path.with_suffix(".tmp")
        with fresh.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)


class Failing(InPlace):
    def write(self, path: Path, text: str) -> None:
        raise TypeError("a bytes-like object is required")


class Forgetful(InPlace):
    def save(self, state, root: Path, step: int) -> None: ...


class Lying(InPlace):
    def latest(self, root: Path) -> int | None:
        return None if super().latest(root) is None else 1


class Configured(InPlace):
    def __init__(self, path: Path) -> None: ...


class Excused(InPlace):
    not_for: ClassVar = {"kill": "the manual says: not while it is killed"}


class NoLatest:
    def save(self, state, root: Path, step: int) -> None: ...

    def load(self, root: Path, state): ...


class Unmade(InPlace):
    def __init__(self) -> None:
        raise ValueError("no settings\nanywhere")


class OnDevice(InPlace):
    def save(self, state, root: Path, step: int) -> None:
        raise RuntimeError("Found no NVIDIA driver on your system.")


class Uninstalled(InPlace):
    requires = ("there_is_no_such_package",)


class OtherShapes(InPlace):
    def load(self, root: Path, state):
        loaded, step = super().load(root, state)
        return {"model": {name: each.flatten() for name, each in loaded["model"].items()}}, step


class NoPair(InPlace):
    def load(self, root: Path, state):
        return super().load(root, state)[0]


class Polling(InPlace):
    def save(self, state, root: Path, step: int) -> None:
        while not (root / "never").exists():
            time.sleep(1)  # of virtual time: it costs nothing


class Outside(InPlace):
    def write(self, path: Path, text: str) -> None:
        super().write(path, text)
        Path(__file__).open("a").close()


class Beside(Careful):
    """Also marks in a directory beside the root that there is something to load."""

    def write(self, path: Path, text: str) -> None:
        super().write(path, text)
        marks = path.parent.parent / "marks"
        marks.mkdir(exist_ok=True)
        (marks / path.name).touch()


class InTemporary(Careful):
    """Makes the file in TMPDIR first, as Lightning does."""

    def write(self, path: Path, text: str) -> None:
        with tempfile.NamedTemporaryFile("w+") as staged:
            staged.write(text)
            staged.seek(0)
            super().write(path, staged.read())


class TestCareful(racecheck.CheckpointerSuite):
    checkpointer = Careful
    checks = ("save", "kill")
