"""The adapters of DeepSpeed, in an environment that has it (``tests/frameworks/environment deepspeed==0.17.6``)."""

from __future__ import annotations

import importlib.metadata
import tempfile
from typing import Any

import pytest

import racecheck as package
from racecheck import DEFAULT, Rank, nothing_outside
from racecheck.targets import resolve
from racecheck.targets.adapters.deepspeed import Zero3
from racecheck.targets.suite.driver import Driver

VERSION = tuple(int(part) for part in importlib.metadata.version("deepspeed").split(".")[:2])
AFFECTED = (0, 13) <= VERSION < (0, 18)


class Swapping(Zero3):
    """The real swapper, of which the race needs no more than that it is there: so small a state is not swapped out."""

    def _config(self) -> dict[str, Any]:
        config = super()._config()
        config["zero_optimization"]["offload_optimizer"] = {"device": "nvme", "nvme_path": tempfile.gettempdir()}
        return {**config, "zero_force_ds_cpu_optimizer": False}


@package.scenario(ranks=2, invariants=[each for each in DEFAULT if each is not nothing_outside])
def swapping(rank: Rank) -> None:
    Driver(rank, Swapping).save(1)


@pytest.mark.parametrize("name", ["deepspeed-zero1", "deepspeed-zero3"])
def test_what_was_saved_is_loaded(racecheck: Any, name: str) -> None:
    racecheck.check(resolve.load(f"{name}[save]"), schedules=4)


@pytest.mark.slow
def test_the_real_swapper(racecheck: Any) -> None:
    """With the extension that DeepSpeed compiles for it, which takes libaio-dev and some minutes (DS_BUILD_AIO=1, or
    once, before this, in its cache: loaded from there it takes a lock outside of the watched directory).
    """
    if AFFECTED:
        racecheck.finds(swapping, "no-file-errors", within=20)
    else:
        racecheck.check(swapping, schedules=4)
