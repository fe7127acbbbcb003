"""The state that checkpointers are given: a small model with AdamW, the same on every machine for a step.

Runs in ranks, where torch is imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from racecheck.targets.suite.protocol import State

SHAPES = {"0.weight": (16, 8), "0.bias": (16,), "2.weight": (8, 16), "2.bias": (8,)}
"""The parameters of ``Sequential(Linear(8, 16), ReLU(), Linear(16, 8))``."""
MOMENTS = ("exp_avg", "exp_avg_sq")

Fill = Callable[[str, tuple[int, ...]], Any]
"""Returns the tensor of a name and a shape."""


def made(step: int, save: str = "", parts: tuple[str, ...] = ("model", "optimizer")) -> State:
    """Return the whole state of a step: float32, each tensor drawn from its name, the step and which ``save`` it is.

    No two tensors are equal, also of two saves of one step: a job that saves a step again has trained again.
    """

    def draw(name: str, shape: tuple[int, ...]) -> Any:
        seed = int.from_bytes(hashlib.sha256(f"{step}:{save}:{name}".encode()).digest()[:6], "big")
        return torch.rand(shape, generator=torch.Generator().manual_seed(seed))

    return _state(draw, lambda: _scalar(float(step)), parts)


def empty(parts: tuple[str, ...] = ("model", "optimizer")) -> State:
    """Return the same names and shapes with zeros: the state of a fresh job before it loads."""
    return _state(lambda _, shape: torch.zeros(shape), lambda: _scalar(0.0), parts)


def sharded(state: State) -> State:
    """Return the same state as DTensors: this rank has its part of the first dimension, as ``torch.chunk`` splits it.

    Takes no collective.
    """
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    found: State = _mapped(state, lambda tensor: _part(tensor, mesh))
    return found


def whole(state: State) -> State:
    """Return the same state with whole tensors; every rank has to call it."""
    found: State = _mapped(state, lambda tensor: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor)
    return found


def train(state: State) -> None:
    """Change every tensor in place, as the next training step does."""
    for tensor in leaves(state).values():
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        local.add_(1.0)


def leaves(state: Any, name: str = "") -> dict[str, Any]:
    """Return the tensors of a nested state by their names, joined with dots."""
    if not isinstance(state, dict):
        return {name: state}
    found: dict[str, Any] = {}
    for key, each in state.items():
        found |= leaves(each, f"{name}.{key}" if name else str(key))
    return found


def model(state: State) -> Any:
    """Return a ``torch.nn.Module`` with the weights of a state, for frameworks that save modules."""
    made_ = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
    made_.load_state_dict(state["model"])
    return made_


def optimizer(module: Any, state: State) -> Any:
    """Return an AdamW over the module's parameters with the moments of a state."""
    made_ = torch.optim.AdamW(module.parameters(), lr=1e-3)
    fill(module, made_, state)
    return made_


def fill(module: Any, optimizer_: Any, state: State) -> None:
    """Give a module and its optimizer the values of a state, in place: the other way round than `taken`."""
    module.load_state_dict(state["model"])
    for name, parameter in module.named_parameters():
        optimizer_.state[parameter] = {key: each.clone() for key, each in state["optimizer"][name].items()}


def taken(module: Any, optimizer_: Any = None) -> State:
    """Return the state of a module and its optimizer, the inverse of `model` and `optimizer`."""
    found: State = {"model": {name: each.detach().clone() for name, each in module.state_dict().items()}}
    if optimizer_ is not None:
        kept = {name: optimizer_.state[parameter] for name, parameter in module.named_parameters()}
        found["optimizer"] = {
            name: {key: each[key].clone() for key in (*MOMENTS, "step")} for name, each in kept.items()
        }
    return found


def _state(fill: Fill, step: Callable[[], Any], parts: tuple[str, ...]) -> State:
    every: dict[str, Callable[[], Any]] = {
        "model": lambda: {name: fill(name, shape) for name, shape in SHAPES.items()},
        "optimizer": lambda: {
            name: {**{key: fill(f"{key}.{name}", shape) for key in MOMENTS}, "step": step()}
            for name, shape in SHAPES.items()
        },
    }
    return {part: every[part]() for part in parts}


def _scalar(value: float) -> Any:

    return torch.tensor(value)


def _part(tensor: Any, mesh: Any) -> Any:

    if tensor.dim() == 0:
        return tensor
    parts, rank = tensor.chunk(mesh.size()), mesh.get_local_rank()
    own = parts[rank].clone() if rank < len(parts) else tensor[:0].clone()
    return DTensor.from_local(own, mesh, [Shard(0)], run_check=False, shape=tensor.shape, stride=tensor.stride())


def _mapped(state: Any, change: Callable[[Any], Any]) -> Any:
    return {key: _mapped(each, change) for key, each in state.items()} if isinstance(state, dict) else change(state)
