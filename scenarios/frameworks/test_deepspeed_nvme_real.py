"""DeepSpeed #7549 in the installed DeepSpeed: all ranks copy their NVMe swap files into one directory.

**Report.**  deepspeedai/DeepSpeed #7549: ZeRO-3 with the optimizer offloaded to NVMe, 2 GPUs; ``save_checkpoint`` ends
in FileExistsError.

**Mechanism.**  ``DeepSpeedEngine.save_checkpoint`` (``deepspeed/runtime/engine.py``) of 0.13.0 to 0.17.6 calls
``shutil.copytree(swap_folder, <save_dir>/<tag>/offloaded_tensors, dirs_exist_ok=False)`` on every rank; one of them
makes the directory.  From 0.18.0 on each rank has a directory of its own in there.

**What must be found.**

- ``save``: FileExistsError in the affected releases; the others hold.
- ``dirs_exist_ok``, the fix that suggests itself: the swap files have the same names on all ranks, and so each rank
  loads what the last one wrote.  (It changes nothing where each rank has its own directory.)
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

VERSION = tuple(int(part) for part in importlib.metadata.version("deepspeed").split(".")[:2])
AFFECTED = (0, 13) <= VERSION < (0, 18)
EXPECTED = Verdict.FAIL if AFFECTED else Verdict.PASS
INVARIANTS = (*DEFAULT, consistent_weights)


@racecheck.scenario(
    ranks=2, report="DeepSpeed #7549", invariants=INVARIANTS, expected=EXPECTED, breaks="no-file-errors" * AFFECTED
)
def save(rank: Rank) -> None:
    """One save, by DeepSpeed as it is installed."""
    Driver(rank, Nvme).save(1)


@racecheck.scenario(
    ranks=2, report="DeepSpeed #7549", invariants=INVARIANTS, expected=EXPECTED, breaks="consistent-weights" * AFFECTED
)
def dirs_exist_ok(rank: Rank) -> None:
    """The same, but that the destination may exist already."""
    copy = shutil.copytree

    def tolerant(*given: Any, **named: Any) -> Any:
        return copy(*given, **(named | {"dirs_exist_ok": True}))

    with mock.patch("shutil.copytree", tolerant):
        Driver(rank, Nvme).save(1)


@save.recover
@dirs_exist_ok.recover
def load(rank: Rank) -> None:
    """A fresh job of as many ranks."""
    Driver(rank, Nvme).load()


def test_save(racecheck: Any) -> None:
    if AFFECTED:
        racecheck.finds(save, within=20)
    else:
        racecheck.check(save, schedules=20)


def test_dirs_exist_ok(racecheck: Any) -> None:
    if AFFECTED:
        racecheck.finds(dirs_exist_ok, within=20)
    else:
        racecheck.check(dirs_exist_ok, schedules=20)
