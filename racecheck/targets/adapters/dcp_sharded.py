"""``torch.distributed.checkpoint`` of sharded models: FSDP2, its full state, and files of safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from racecheck.targets.adapters.dcp import OVERWRITES, Dcp, newest
from racecheck.targets.suite.protocol import State


class Fsdp2(Dcp):
    """A model under ``fully_shard`` with its AdamW: ``get_state_dict``, and each rank saves its own part."""

    layout = "sharded"
    full = False

    def save(self, state: State, root: Path, step: int) -> None:
        super().save(self._taken(*self._trained(state)), root, step)

    def load(self, root: Path, state: State) -> tuple[State, int]:
        from torch.distributed.checkpoint.state_dict import set_state_dict

        from racecheck.targets.suite.state import taken

        module, optimizer = self._trained(state)
        found, step = super().load(root, self._taken(module, optimizer))
        set_state_dict(
            module,
            optimizer,
            model_state_dict=found["model"],
            optim_state_dict=found["optimizer"],
            options=self._options(),
        )
        return taken(module, optimizer), step

    def _trained(self, state: State) -> tuple[Any, Any]:
        """Return a sharded model and its optimizer with the values of a state."""
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        from racecheck.targets.suite.state import optimizer

        module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
        fully_shard(module, mesh=init_device_mesh("cpu", (torch.distributed.get_world_size(),)))
        module.load_state_dict(state["model"])
        return module, optimizer(module, state)

    def _taken(self, module: Any, optimizer: Any) -> State:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        weights, moments = get_state_dict(module, optimizer, options=self._options())
        return {"model": weights, "optimizer": moments}

    def _options(self) -> Any:
        from torch.distributed.checkpoint.state_dict import StateDictOptions

        return StateDictOptions(full_state_dict=self.full)


class FullState(Fsdp2):
    """The same with ``full_state_dict=True``: every rank gathers the whole state, and one copy is saved."""

    full = True


class Safetensors(Dcp):
    """``HuggingFaceStorageWriter``: each rank saves its shards of the model, and rank 0 makes one file of them.

    The index of that file is written last, and so it says that a step is there.
    """

    layout = "sharded"
    parts = ("model",)
    requires = ("safetensors",)
    not_for: ClassVar = OVERWRITES

    def save(self, state: State, root: Path, step: int) -> None:
        import torch.distributed.checkpoint as dcp

        writer = dcp.HuggingFaceStorageWriter(
            str(root / f"step-{step}"), save_distributed=True, enable_consolidation=True
        )
        dcp.save(state["model"], storage_writer=writer)

    def load(self, root: Path, state: State) -> tuple[State, int]:
        import torch.distributed.checkpoint as dcp

        step = self._newest(root)
        dcp.load(state["model"], storage_reader=dcp.HuggingFaceStorageReader(str(root / f"step-{step}")))
        return state, step

    def latest(self, root: Path) -> int | None:
        return newest(root, "model.safetensors.index.json")
