"""The adapter of torchtune, in an environment that has it (``torchtune==0.6.1 torchao==0.9.0``)."""

from __future__ import annotations

from typing import Any

from racecheck.targets import resolve


def test_what_was_saved_is_loaded(racecheck: Any) -> None:
    racecheck.check(resolve.load("torchtune[save]"), schedules=4)
