"""torchtune's ``DistributedCheckpointer``, which recipes use between epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from racecheck.targets.adapters.dcp import OVERWRITES
from racecheck.targets.suite.protocol import State


class TorchTune:
    """``save_checkpoint`` and ``load_checkpoint``; a step of ours is an epoch of torchtune's."""

    requires = ("torchtune", "torchao")
    not_for: ClassVar = OVERWRITES

    def __init__(self) -> None:
        import torch.distributed as dist

        self._group = dist.new_group(backend="gloo")
        self._checkpointer: Any = None

    def save(self, state: State, root: Path, step: int) -> None:
        self._for(root).save_checkpoint({**state, "epoch": step}, epoch=step)

    def load(self, root: Path, state: State) -> tuple[State, int]:
        found = self._for(root).load_checkpoint({**state, "epoch": 0})
        return {part: found[part] for part in state}, found["epoch"]

    def latest(self, root: Path) -> int | None:
        steps = [int(each.parent.name.rpartition("_")[2]) for each in root.glob("dist_epoch_*/.metadata")]
        return max(steps, default=None)

    def _for(self, root: Path) -> Any:
        from torchtune.training.checkpointing import DistributedCheckpointer

        if self._checkpointer is None:
            self._checkpointer = DistributedCheckpointer(str(root), str(root), process_group=self._group)
        return self._checkpointer
