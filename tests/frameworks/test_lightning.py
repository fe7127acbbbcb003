"""The adapters of Lightning, in an environment that has it (``lightning==2.6.6``)."""

from __future__ import annotations

from typing import Any

import pytest

import racecheck as package
from racecheck import Rank
from racecheck.targets import resolve
from racecheck.targets.suite.driver import Driver


@pytest.mark.parametrize("name", ["lightning[save]", "lightning-async[async]"])
def test_what_was_saved_is_loaded(racecheck: Any, name: str) -> None:
    racecheck.check(resolve.load(name), schedules=3)


@package.scenario(ranks=2)
def keeping(rank: Rank) -> None:
    job = Driver(rank, resolve.checkpointer("lightning"))
    for step in (1, 2):
        job.save(step)


def test_the_newest_and_the_last_are_kept(racecheck: Any) -> None:
    """By rank 0 alone: written in its TMPDIR, then renamed."""
    outcome = racecheck.run(keeping)
    assert set(outcome.disk) == {"step=2.ckpt", "last.ckpt"}
    written = {(op.rank, op.path.partition("/")[0]) for op in outcome.ops if op.call == "write"}
    assert written == {(0, "TMPDIR")}


def test_the_old_one_goes_before_the_new_one_is_there(racecheck: Any) -> None:
    """A write that a thread does later, and a removal that does not wait for it."""
    racecheck.finds(resolve.load("lightning-async[async-kill]"), "old-survives", within=60)
