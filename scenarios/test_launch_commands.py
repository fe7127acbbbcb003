"""openpi #868 once more, as a program: a launch command is a scenario like any other, and needs no line of racecheck.

**Mechanism.**  ``train.py --overwrite`` removes and makes the directory of its run on every rank;
``train_guarded.py`` does it on rank 0, with a barrier (`test_openpi_overwrite`).

**What must be found.**  ``racy``: a rank fails because another one has removed what it was about to remove or write.
``guarded`` holds, in every order.
"""

from __future__ import annotations

from typing import Any

import racecheck
from racecheck import Verdict

TORCHRUN = "torchrun --nproc-per-node=2"

OLD = "scenarios/old_run"
"""What ``checkpoints`` holds at the start of each run."""

racy = racecheck.launch(
    f"{TORCHRUN} scenarios/train.py --overwrite", watch="checkpoints", start=OLD, report="openpi #868",
    expected=Verdict.FAIL, breaks="no-file-errors",
)  # fmt: skip
guarded = racecheck.launch(
    f"{TORCHRUN} scenarios/train_guarded.py --overwrite", watch="checkpoints", start=OLD, report="openpi #969"
)


def test_racy(racecheck: Any) -> None:
    racecheck.finds(racy)


def test_guarded(racecheck: Any) -> None:
    assert racecheck.check(guarded).exhaustive
