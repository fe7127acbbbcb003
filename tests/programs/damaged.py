"""Savers whose files are damaged after the run.  Not collected by pytest."""

import hashlib
import json
from pathlib import Path
from typing import Any

import racecheck
from racecheck import Rank, consistent_weights, damage_refused, no_unexpected_errors


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def save(rank: Rank) -> None:
    """Save two steps, in directories of their own, with two files for each rank: weights, and their digest."""
    import torch

    for step in (1, 2):
        directory = rank.path / f"step-{step}"
        directory.mkdir(exist_ok=True)
        state = {"w": torch.arange(8.0) + 10 * step + rank.rank, "b": torch.ones(2) * step}
        file = directory / f"rank{rank.rank}.pt"
        torch.save(state, file)
        (directory / f"rank{rank.rank}.json").write_text(json.dumps({"step": step, "digest": digest(file)}))
        rank.saved(state, step=step)


def load(rank: Rank) -> None:
    import torch

    directory = max(rank.path.glob("step-*"))
    state: dict[str, Any] = torch.load(directory / f"rank{rank.rank}.pt")
    rank.loaded(state)


def compare(rank: Rank) -> None:
    """Refuse a file whose digest is another one, and one of another step."""
    directory = max(rank.path.glob("step-*"))
    about = json.loads((directory / f"rank{rank.rank}.json").read_text())
    if about["digest"] != digest(directory / f"rank{rank.rank}.pt") or directory.name != f"step-{about['step']}":
        raise RuntimeError("the checkpoint is damaged")
    load(rank)


@racecheck.scenario(ranks=2, invariants=(consistent_weights,))
def trusting(rank: Rank) -> None:
    save(rank)


trusting.recover(load)


@racecheck.scenario(ranks=2, invariants=(consistent_weights,))
def comparing(rank: Rank) -> None:
    save(rank)


comparing.recover(compare)


@racecheck.scenario(ranks=2, nodes=2, storage="node-local", invariants=(consistent_weights,))
def on_two_nodes(rank: Rank) -> None:
    save(rank)


on_two_nodes.recover(load)


@racecheck.scenario(ranks=1, invariants=(consistent_weights, damage_refused))
def alone(rank: Rank) -> None:
    save(rank)


alone.recover(load, ranks=1)


@racecheck.scenario(ranks=1, invariants=(consistent_weights,))
def of_pages(rank: Rank) -> None:
    import torch

    state = {"w": torch.ones(10_000)}
    torch.save(state, rank.path / "w.pt")
    rank.saved(state)


@of_pages.recover
def load_pages(rank: Rank) -> None:
    import torch

    rank.loaded(torch.load(rank.path / "w.pt"))


@racecheck.scenario(ranks=1, invariants=(no_unexpected_errors,))
def loading_in_silence(rank: Rank) -> None:
    save(rank)


@loading_in_silence.recover(ranks=1)
def read(rank: Rank) -> None:
    (rank.path / "step-2" / "rank0.pt").read_bytes()


@racecheck.scenario(ranks=1, invariants=(consistent_weights,))
def without_recovery(rank: Rank) -> None:
    save(rank)
