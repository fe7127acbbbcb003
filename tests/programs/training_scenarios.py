"""Scenarios that declare their training steps."""

from __future__ import annotations

import os
from pathlib import Path

import torch

import racecheck

INVARIANTS = (*racecheck.DEFAULT, racecheck.resume_equals)


class _Job:
    """Momentum on one number; the file holds the number, and the momentum if that is ``whole``."""

    def __init__(self, rank: racecheck.Rank, *, whole: bool) -> None:
        self.rank, self.file, self.whole = rank, rank.path / "state.pt", whole
        self.state = {"weight": torch.ones(()), "momentum": torch.zeros(())}

    def train(self, steps: range) -> None:
        for step in steps:
            self.state["momentum"] = self.state["momentum"] * 0.9 + self.state["weight"]
            self.state["weight"] = self.state["weight"] - 0.1 * self.state["momentum"]
            self.rank.trained(self.state, step=step)
            kept = self.state if self.whole else {"weight": self.state["weight"]}
            _write(self.file, {"step": step, **kept})

    def resume(self) -> None:
        done = 0
        if self.file.exists():
            kept = torch.load(self.file)
            done = kept.pop("step")
            self.state |= kept
            self.rank.trained(self.state, step=done)
        self.train(range(done + 1, 4))


def _write(file: Path, state: object) -> None:
    with open(f"{file}.tmp", "wb") as opened:
        torch.save(state, opened)
        opened.flush()
        os.fsync(opened.fileno())
    os.rename(f"{file}.tmp", file)


@racecheck.scenario(ranks=1, invariants=INVARIANTS)
def whole(rank: racecheck.Rank) -> None:
    _Job(rank, whole=True).train(range(1, 4))


@whole.recover
def goes_on(rank: racecheck.Rank) -> None:
    _Job(rank, whole=True).resume()


@racecheck.scenario(ranks=1, invariants=INVARIANTS)
def lossy(rank: racecheck.Rank) -> None:
    _Job(rank, whole=False).train(range(1, 4))


@lossy.recover
def goes_on_without(rank: racecheck.Rank) -> None:
    _Job(rank, whole=False).resume()
