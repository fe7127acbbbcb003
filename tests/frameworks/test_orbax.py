"""The adapter of orbax, in an environment that has it (``orbax-checkpoint==0.12.8``, ``jax==0.10.2``)."""

from __future__ import annotations

from typing import Any

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.model import config
from racecheck.model.compare import first_difference
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.session import Session
from racecheck.targets import resolve


@pytest.mark.parametrize("check", ["save", "load"])
def test_what_was_saved_is_loaded(racecheck: Any, check: str) -> None:
    racecheck.check(resolve.load(f"orbax[{check}]"), schedules=2)


def test_a_schedule_repeats_with_the_threads_of_tensorstore() -> None:
    """They wait with time limits, and what they draw is in the files."""
    saves = resolve.load("orbax[save]")
    with Session(config.read().runs) as session:
        runner.warm_up(session, RunRequest.of(saves, saves.world, Replay(()), seed="0"))
        first = runner.run(session, RunRequest.of(saves, saves.world, Replay(()), seed="0"))
        again = runner.run(session, RunRequest.of(saves, saves.world, Replay(first.schedule), seed="0", stacks=False))
    assert not first.coverage.holes
    assert first_difference(first, again) == ""
