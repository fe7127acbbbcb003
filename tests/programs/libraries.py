"""Real checkpointers, with nothing wrong in how they are used.  Not collected by pytest."""

import hashlib
import os
from pathlib import Path
from typing import Any

from racecheck import Rank, scenario


def digest(tensor: Any) -> str:
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()[:8]


@scenario(ranks=2)
def dcp_save_load(rank: Rank) -> list[str]:
    """Saved and loaded again by the same ranks."""
    import torch
    import torch.distributed.checkpoint as dcp

    torch.manual_seed(rank.rank)
    state = {f"own{rank.rank}": torch.rand(64), "common": torch.ones(8)}
    dcp.save(state, checkpoint_id=rank.path / "ckpt")
    again = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    dcp.load(again, checkpoint_id=rank.path / "ckpt")
    return [digest(again[name]) == digest(state[name]) and digest(state[name]) for name in sorted(state)]


def sharded() -> Any:
    """A small model under FSDP2, with a state that the seed alone decides."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


@scenario(ranks=2)
def fsdp2(rank: Rank) -> list[str]:
    """A training step, the sharded state saved, and loaded into another model."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    model = sharded()
    model(torch.ones(2, 8)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    state = get_model_state_dict(model)
    dcp.save({"model": state}, checkpoint_id=rank.path / "ckpt")
    other = sharded()
    loaded = {"model": get_model_state_dict(other)}
    dcp.load(loaded, checkpoint_id=rank.path / "ckpt")
    set_model_state_dict(other, loaded["model"])
    found = [digest(each.full_tensor().detach()) for each in other.parameters()]
    assert found == [digest(each.full_tensor().detach()) for each in model.parameters()]
    return found


@scenario(ranks=2)
def dtensor(rank: Rank) -> str:
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (rank.world_size,))
    whole = torch.arange(32.0).reshape(8, 4)
    state = {"w": distribute_tensor(whole, mesh, [Shard(0)])}
    dcp.save(state, checkpoint_id=rank.path / "ckpt")
    again = {"w": distribute_tensor(torch.zeros(8, 4), mesh, [Shard(1)])}
    dcp.load(again, checkpoint_id=rank.path / "ckpt")
    full = again["w"].full_tensor()
    assert torch.equal(full, whole)
    return digest(full)


@scenario(ranks=2)
def async_threads(rank: Rank) -> list[str]:
    """Two saves one after the other, each while the weights change."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    group, weights = dist.new_group(), torch.full((16,), 1.0)
    found = []
    for step in (1, 2):
        future = dcp.async_save({"w": weights}, checkpoint_id=rank.path / str(step), process_group=group)
        weights = weights + 1
        future.result()
        again = {"w": torch.zeros(16)}
        dcp.load(again, checkpoint_id=rank.path / str(step))
        found.append(str(again["w"][0].item()))
    return found


@scenario(ranks=2, timeout=120.0)
def async_process(rank: Rank) -> list[str]:
    """Saved by a daemon process of each rank."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    state = {f"own{rank.rank}": torch.full((16,), float(rank.rank))}
    future = dcp.async_save(
        state, checkpoint_id=rank.path / "ckpt", async_checkpointer_type=AsyncCheckpointerType.PROCESS
    )
    future.result()
    return sorted(os.listdir(rank.path / "ckpt"))


@scenario(ranks=2)
def safetensors_files(rank: Rank) -> str:
    import torch
    from safetensors.torch import load_file, save_file

    path = str(rank.path / f"model{rank.rank}.safetensors")
    save_file({"w": torch.arange(8.0)}, path)
    return digest(load_file(path)["w"])


@scenario(ranks=2)
def accelerate_thrice(rank: Rank) -> list[str]:
    """``save_state`` three times, of which one is kept; ranks wait for each other in between."""
    import torch
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

    naming = ProjectConfiguration(project_dir=str(rank.path), automatic_checkpoint_naming=True, total_limit=1)
    accelerator = Accelerator(cpu=True, project_config=naming)
    model = torch.nn.Linear(4, 4)
    model, _ = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for _ in range(3):
        accelerator.save_state()
        accelerator.wait_for_everyone()
    return sorted(os.listdir(Path(rank.path) / "checkpoints"))
