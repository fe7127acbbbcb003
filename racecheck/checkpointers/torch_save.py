"""``torch.save`` by rank 0, from the plainest way to the one that holds."""

from __future__ import annotations

from pathlib import Path

from racecheck.checkpointers.protocol import State


class InPlace:
    """Rank 0 writes ``step-N.pt`` and nobody waits."""

    def save(self, state: State, root: Path, step: int) -> None:
        import torch
        import torch.distributed as dist

        if dist.get_rank() == 0:
            torch.save({"state": state, "step": step}, root / "checkpoint.pt")

    def load(self, root: Path, state: State) -> tuple[State, int]:
        import torch

        found = torch.load(root / "checkpoint.pt", weights_only=True)
        return found["state"], found["step"]

    def latest(self, root: Path) -> int | None:
        import torch

        path = root / "checkpoint.pt"
        return torch.load(path, weights_only=True)["step"] if path.exists() else None
