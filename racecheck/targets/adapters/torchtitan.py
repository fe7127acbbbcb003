"""torchtitan's ``CheckpointManager``, synchronous and asynchronous, with its removal of old checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from racecheck.targets.adapters.dcp import OVERWRITES, newest
from racecheck.targets.suite.protocol import State


class Titan:
    """As torchtitan's trainer uses it; two checkpoints are kept, the fewest that it allows.

    Model, optimizer and number of steps are small objects with ``state_dict`` and ``load_state_dict``; there is no
    data loader and no scheduler.
    """

    requires = ("torchtitan",)
    layout = "sharded"
    not_for: ClassVar = OVERWRITES
    async_mode = "disabled"

    def __init__(self) -> None:
        self._manager: Any = None

    def save(self, state: State, root: Path, step: int) -> None:
        self._ready(root, state, step).save(step)

    def load(self, root: Path, state: State) -> tuple[State, int]:
        manager = self._ready(root, state, 0)
        if not manager.load():
            raise FileNotFoundError(f"CheckpointManager.load found nothing below {root}")
        return state, manager.states["train_state"].tensors["step"]

    def latest(self, root: Path) -> int | None:
        return newest(root / "checkpoint", ".metadata")

    def _ready(self, root: Path, state: State, step: int) -> Any:
        """Return the job's manager; ``state`` is what there is to save, or to load into."""
        from torchtitan.components.checkpoint import CheckpointManager, ModelWrapper

        if self._manager is None:
            config = CheckpointManager.Config(enable=True, interval=1, keep_latest_k=2, async_mode=self.async_mode)
            self._manager = CheckpointManager(
                config, dataloader=None, model_parts=[], optimizers=None, lr_schedulers=None, states={},
                sd_adapter=None, base_folder=str(root),
            )  # fmt: skip
        self._manager.states |= {
            "model": ModelWrapper([_HeldState(state["model"])]),
            "optimizer": _HeldState(state["optimizer"]),
            "train_state": _HeldState({"step": step}),
        }
        return self._manager


class TitanAsync(Titan):
    """The same with ``async_mode="async"``: a thread saves, and the next save waits for it."""

    async_mode = "async"

    def save(self, state: State, root: Path, step: int) -> None:
        self.save_async(state, root, step).result()

    def save_async(self, state: State, root: Path, step: int) -> _Saving:
        manager = self._ready(root, state, step)
        manager.save(step)
        return _Saving(manager)


class _Saving:
    def __init__(self, manager: Any) -> None:
        self._manager = manager

    def result(self) -> None:
        self._manager.maybe_wait_for_saving()


class _HeldState:
    """A part of the state: tensors are loaded in place, anything else is taken."""

    def __init__(self, tensors: dict[str, Any]) -> None:
        self.tensors = tensors

    def state_dict(self) -> dict[str, Any]:
        return self.tensors

    def load_state_dict(self, found: dict[str, Any], strict: bool = True) -> None:
        self.tensors |= {key: each for key, each in found.items() if key in self.tensors}
