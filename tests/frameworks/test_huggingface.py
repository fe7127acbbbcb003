"""The checkpointers of the Hugging Face stack, in an environment that has them (``transformers==5.23.0``)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import racecheck as package
from racecheck import Rank
from racecheck.targets import resolve
from racecheck.targets.suite.driver import Driver


@pytest.mark.parametrize("name", ["accelerate", "accelerate-limit", "safetensors", "trainer"])
def test_what_was_saved_is_loaded(racecheck: Any, name: str) -> None:
    racecheck.check(resolve.load(f"{name}[save]"), schedules=3)


def test_accelerate_loads_what_is_not_there_yet(racecheck: Any) -> None:
    racecheck.finds(resolve.load("accelerate[load]"), "no-file-errors", within=10)


@package.scenario(ranks=2)
def rotating(rank: Rank) -> list[str]:
    job = Driver(rank, resolve.checkpointer("trainer"))
    for step in (1, 2):
        job.save(step)
    return sorted(each.name for each in rank.path.iterdir())


def test_the_trainer_rotates_by_itself(racecheck: Any) -> None:
    """It keeps the newest, with the random states of both ranks."""
    outcome = racecheck.run(rotating)
    kept = {path for path in outcome.disk if path.startswith("checkpoint-")}
    assert {path.partition("/")[0] for path in kept} == {"checkpoint-2"}
    assert {f"checkpoint-2/rng_state_{rank}.pth" for rank in (0, 1)} <= kept
    assert {f"checkpoint-2/{name}" for name in ("model.safetensors", "optimizer.pt", "trainer_state.json")} <= kept


SAVES = """
import torch
from accelerate import Accelerator

accelerator = Accelerator()
model = torch.nn.Linear(4, 4)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
accelerator.backward(model(torch.ones(1, 4)).sum())
optimizer.step()
accelerator.save_state("out/state")
"""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--multi_gpu", "--num_processes", "2"], "of 2 ranks"),
        (["--cpu", "--num_processes", "3"], "notes: accelerate starts one process on CPUs; here it is as many ranks"),
    ],
)
def test_a_script_runs_under_accelerate_launch(tmp_path: Path, options: list[str], said: str) -> None:
    (tmp_path / "train.py").write_text(SAVES)
    command = ["run", "--watch", "out", "--schedules", "5", "--", "accelerate", "launch", *options, "train.py"]
    done = subprocess.run(
        [sys.executable, "-m", "racecheck", *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert said in done.stdout
    assert "\nobserved: 3 saves, 0 loads" in done.stdout
