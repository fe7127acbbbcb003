"""megatron-core's ``dist_checkpointing``: ``save`` and ``load`` of sharded tensors, a directory for each step.

It runs without a GPU but for two calls, which wait for one and ask for its number.  And the results of its writing
processes come to a rank through a queue that a third process manages, which is started afresh and imports torch; a save
that its caller waits for needs no more than a queue of the rank's own.  Nothing that touches a file is replaced.
"""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

from racecheck.targets.suite.protocol import State


class Megatron:
    """The ``torch_dist`` format; the newest step is the newest that ``check_is_distributed_checkpoint`` accepts."""

    requires = ("megatron.core",)
    layout = "sharded"

    def __init__(self) -> None:
        _without_a_gpu()
        _without_a_manager()

    def save(self, state: State, root: Path, step: int) -> None:
        from megatron.core import dist_checkpointing

        directory = _directory(root, step)
        directory.mkdir(exist_ok=True)
        dist_checkpointing.save(_sharded(state), str(directory))

    def load(self, root: Path, state: State) -> tuple[State, int]:
        from megatron.core import dist_checkpointing

        from racecheck.targets.suite import state as states

        step = self.latest(root) or 0
        found = dist_checkpointing.load(_sharded(state), str(_directory(root, step)))
        for name, tensor in states.leaves(state).items():
            _local(tensor).copy_(found[name])
        return state, step

    def latest(self, root: Path) -> int | None:
        from megatron.core import dist_checkpointing

        there = sorted((int(each.name.removeprefix("iter_")) for each in root.glob("iter_*")), reverse=True)
        return next((n for n in there if dist_checkpointing.check_is_distributed_checkpoint(_directory(root, n))), None)


def _directory(root: Path, step: int) -> Path:
    return root / f"iter_{step:07d}"


def _sharded(state: State) -> dict[str, Any]:
    """Return each tensor as this rank's part of it: a part of the first dimension, or of scalars a replica."""
    import torch.distributed as dist
    from megatron.core.dist_checkpointing import ShardedTensor

    from racecheck.targets.suite import state as states

    rank, ranks = dist.get_rank(), dist.get_world_size()
    return {
        name: ShardedTensor.from_rank_offsets(name, _local(tensor), (0, rank, ranks))
        if tensor.dim()
        else ShardedTensor.from_rank_offsets(name, tensor, replica_id=rank)
        for name, tensor in states.leaves(state).items()
    }


def _local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _without_a_manager() -> None:
    from megatron.core.dist_checkpointing.strategies import filesystem_async

    vars(filesystem_async)["_results_queue"] = queue.SimpleQueue()


def _without_a_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        torch.cuda.synchronize = lambda *_: None
        torch.cuda.current_device = lambda: "cpu"
