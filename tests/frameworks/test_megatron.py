"""The adapter of megatron-core, in an environment that has it (``megatron-core==0.16.1 psutil``)."""

from __future__ import annotations

from typing import Any

from racecheck.targets import resolve


def test_what_was_saved_is_loaded(racecheck: Any) -> None:
    racecheck.check(resolve.load("megatron[save]"), schedules=2)
