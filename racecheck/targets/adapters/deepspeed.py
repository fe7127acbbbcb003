"""DeepSpeed's ``save_checkpoint`` and ``load_checkpoint``, with the state in a real ZeRO engine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from racecheck.targets.suite.protocol import State

_SIZE = (
    "DeepSpeedEngine._load_zero_checkpoint refuses it, with an error that names both sizes; universal checkpoints are "
    "for that (deepspeed.ai/tutorials/universal-checkpointing)"
)


class Zero1:
    """ZeRO stage 1: each rank has a part of the optimizer's state, rank 0 also writes the weights and ``latest``.

    The saved state goes into the engine, and out of it, by ``deepspeed.utils.safe_set_full_optimizer_state`` and its
    kin.  The number of steps, for which there is no such function, is the client's state.
    """

    requires = ("deepspeed",)
    not_for: ClassVar = {"shrink": _SIZE, "grow": _SIZE}
    stage = 1

    def __init__(self) -> None:
        self._engine: Any = None

    def save(self, state: State, root: Path, step: int) -> None:
        if self._engine is None:
            self._engine, _ = self._made()
            _train(self._engine)
        self._put(state)
        self._engine.save_checkpoint(str(root), tag=f"step{step}", client_state={"step": step})

    def load(self, root: Path, state: State) -> tuple[State, int]:
        self._engine, optimizer = self._made()
        path, client = self._engine.load_checkpoint(str(root))
        if path is None:
            raise FileNotFoundError(f"load_checkpoint found nothing in {root}")
        optimizer.step = lambda *_, **__: None
        _train(self._engine)
        return self._state(client["step"]), client["step"]

    def latest(self, root: Path) -> int | None:
        pointer = root / "latest"
        return int(pointer.read_text().removeprefix("step") or 0) if pointer.exists() else None

    def _made(self) -> tuple[Any, Any]:
        """Return a new engine, and the optimizer in it."""
        import deepspeed
        import torch

        from racecheck.targets.suite import state

        module = state.model(state.empty(("model",)))
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
        return deepspeed.initialize(model=module, optimizer=optimizer, config=self._config())[0], optimizer

    def _config(self) -> dict[str, Any]:
        return {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": self.stage}}

    def _put(self, state: State) -> None:
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        from racecheck.targets.suite.state import MOMENTS

        for name, parameter in self._engine.module.named_parameters():
            self._put_weights(parameter, state["model"][name])
            safe_set_full_fp32_param(parameter, state["model"][name])
            for key in MOMENTS:
                safe_set_full_optimizer_state(parameter, state["optimizer"][name][key], key)

    def _put_weights(self, parameter: Any, tensor: Any) -> None:
        parameter.data.copy_(tensor)

    def _state(self, step: int) -> State:
        import torch
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        from racecheck.targets.suite.state import MOMENTS

        found: State = {"model": {}, "optimizer": {}}
        for name, parameter in self._engine.module.named_parameters():
            found["model"][name] = safe_get_full_fp32_param(parameter)
            found["optimizer"][name] = {key: safe_get_full_optimizer_state(parameter, key) for key in MOMENTS}
            found["optimizer"][name]["step"] = torch.tensor(float(step))
        return found


class Zero3(Zero1):
    """ZeRO stage 3: each rank has a part of everything and writes two files, rank 0 also ``latest``."""

    stage = 3

    def _put_weights(self, parameter: Any, tensor: Any) -> None:
        import deepspeed

        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
            parameter.data.copy_(tensor)


class Nvme(Zero3):
    """ZeRO stage 3 with the optimizer offloaded to NVMe, as in deepspeedai/DeepSpeed #7549.

    The engine, its ``save_checkpoint`` and ``load_checkpoint`` are the real ones.  The swapper is not: that needs a
    compiled extension and writes by libaio.  In its place stands one that keeps this rank's part of the weights and
    moments in a directory of its own, in files that have the same names on all ranks, as those of the real one have
    (``runtime/swap_tensor/optimizer_utils.py``).  ``load_checkpoint`` has them from there alone.
    """

    def _made(self) -> tuple[Any, Any]:
        engine, optimizer = super()._made()
        _train(engine)
        folder = Path(tempfile.mkdtemp(prefix="nvme"))
        engine.zero_nvme_offload_optimizer = lambda: True
        engine.optimizer.optimizer_swapper = SimpleNamespace(swap_folder=str(folder))
        engine.optimizer.reset_swap_buffers = lambda: _swap_in(engine, folder)
        return engine, optimizer

    def _put(self, state: State) -> None:
        super()._put(state)
        _swap_out(self._engine, Path(self._engine.optimizer.optimizer_swapper.swap_folder))


def _train(engine: Any) -> None:
    """Make one step of training: before the first one, the optimizer's state can be neither read nor set."""
    import torch

    engine.backward(engine(torch.ones(1, 8)).sum())
    engine.step()


def _swap_out(engine: Any, folder: Path) -> None:
    import torch
    from deepspeed.utils import safe_get_local_fp32_param, safe_get_local_optimizer_state

    for parameter, key, file in _swapped(engine, folder):
        part = safe_get_local_optimizer_state(parameter, key) if key else safe_get_local_fp32_param(parameter)
        torch.save(part.clone(), file)


def _swap_in(engine: Any, folder: Path) -> None:
    import torch
    from deepspeed.utils import safe_set_local_fp32_param, safe_set_local_optimizer_state

    for parameter, key, file in _swapped(engine, folder):
        if key:
            safe_set_local_optimizer_state(parameter, torch.load(file), key)
        else:
            safe_set_local_fp32_param(parameter, torch.load(file))


def _swapped(engine: Any, folder: Path) -> Iterator[tuple[Any, str, Path]]:
    """Return the swapped-out tensors: the weights (whose key is "") and the moments."""
    from racecheck.targets.suite.state import MOMENTS

    for name, parameter in engine.module.named_parameters():
        for key in ("", *MOMENTS):
            yield parameter, key, folder / f"{key}-{name}.tensor.swp".removeprefix("-")
