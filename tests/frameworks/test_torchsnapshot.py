"""The adapter of torchsnapshot, in an environment that has it (``torchsnapshot==0.1.0``)."""

from __future__ import annotations

from typing import Any

import pytest

from racecheck.targets import resolve


@pytest.mark.parametrize("check", ["save", "async"])
def test_what_was_saved_is_loaded(racecheck: Any, check: str) -> None:
    racecheck.check(resolve.load(f"torchsnapshot[{check}]"), schedules=2)
