"""orbax, of JAX's world: ``Checkpointer`` with a PyTree handler, a directory for each step.

Its processes find one another through JAX's own coordinator, not through ``torch.distributed``; so rank 0 saves for
all, as with data parallel training, and tells the others how it went.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from racecheck.targets.suite.controls import RankZero
from racecheck.targets.suite.protocol import State


class Orbax(RankZero):
    """Written to a temporary directory with everything synced, then renamed."""

    requires = ("orbax.checkpoint", "jax")
    timeout = 120.0

    def save(self, state: State, root: Path, step: int) -> None:
        self._on_rank_0(lambda: self._write(state, root, step))

    def load(self, root: Path, state: State) -> tuple[State, int]:
        step = self.latest(root) or 0
        with _checkpointer() as saver:
            return _tensors(saver.restore((root / f"step_{step}").absolute())), step

    def _write(self, state: State, root: Path, step: int) -> None:
        with _checkpointer() as saver:
            saver.save((root / f"step_{step}").absolute(), _arrays(state), force=True)

    def latest(self, root: Path) -> int | None:
        from orbax.checkpoint import utils

        return max(utils.checkpoint_steps(str(root)), default=None) if root.exists() else None


def _checkpointer() -> Any:
    from orbax.checkpoint import Checkpointer, PyTreeCheckpointHandler

    return Checkpointer(PyTreeCheckpointHandler())


def _arrays(state: Any) -> Any:
    return {key: _arrays(each) for key, each in state.items()} if isinstance(state, dict) else state.numpy()


def _tensors(tree: Any) -> Any:
    import torch

    if isinstance(tree, dict):
        return {key: _tensors(each) for key, each in tree.items()}
    return torch.from_numpy(tree.copy())
