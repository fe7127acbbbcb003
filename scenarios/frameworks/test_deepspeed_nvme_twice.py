"""The installed DeepSpeed cannot save a tag twice where the optimizer is offloaded to NVMe.

**Mechanism.**  At the end of ``DeepSpeedEngine.save_checkpoint`` (``deepspeed/runtime/engine.py``, 0.19.8) each rank
copies its swap files by ``shutil.copytree`` to ``<save_dir>/<tag>/offloaded_tensors/rank<N>``, which must not be there.
When the tag is (``best``, or the step to which a restarted job comes once more) that is a FileExistsError: by then the
other files of the checkpoint have been written again, the swap files have not, and what is on disk is of two steps.
Without offload the same call saves the tag again.

**What must be found.**

- ``twice``: FileExistsError (in one process, with the real swapper and without racecheck, too).
- ``merging``: with ``dirs_exist_ok=True`` what was saved last is loaded, since 0.18 has a directory for each rank.
"""

from __future__ import annotations

import importlib.metadata
import shutil
from typing import Any
from unittest import mock

import racecheck
from racecheck import DEFAULT, Rank, Verdict, consistent_weights
from racecheck.targets.adapters.deepspeed import Nvme
from racecheck.targets.suite.driver import Driver

ONE_FOR_ALL = tuple(int(part) for part in importlib.metadata.version("deepspeed").split(".")[:2]) < (0, 18)
"""The ranks have one directory: already the first save fails, or loses something (``test_deepspeed_nvme_real.py``)."""
INVARIANTS = (*DEFAULT, consistent_weights)


def saves(rank: Rank) -> None:
    job = Driver(rank, Nvme)
    job.save(1)
    job.train()
    job.save(1)


@racecheck.scenario(ranks=2, invariants=INVARIANTS, expected=Verdict.FAIL, breaks="no-file-errors")
def twice(rank: Rank) -> None:
    """DeepSpeed as it is installed."""
    saves(rank)


@racecheck.scenario(
    ranks=2, invariants=INVARIANTS, expected=Verdict.FAIL if ONE_FOR_ALL else Verdict.PASS,
    breaks="consistent-weights" * ONE_FOR_ALL,
)  # fmt: skip
def merging(rank: Rank) -> None:
    """The repair."""
    copy = shutil.copytree

    def tolerant(*given: Any, **named: Any) -> Any:
        return copy(*given, **(named | {"dirs_exist_ok": True}))

    with mock.patch("shutil.copytree", tolerant):
        saves(rank)


@twice.recover
@merging.recover
def load(rank: Rank) -> None:
    """A fresh job of as many ranks."""
    Driver(rank, Nvme).load()


def test_twice(racecheck: Any) -> None:
    found = racecheck.finds(twice, within=20)
    assert ONE_FOR_ALL or any("offloaded_tensors/rank0" in each.violation.message for each in found.violations)


def test_merging(racecheck: Any) -> None:
    if ONE_FOR_ALL:
        racecheck.finds(merging, within=20)
    else:
        racecheck.check(merging, schedules=5)
