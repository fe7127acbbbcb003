"""The adapters of torchtitan, in an environment that has it (``torchtitan==0.3.0``)."""

from __future__ import annotations

from typing import Any

import pytest

from racecheck.targets import resolve


@pytest.mark.parametrize("name", ["torchtitan[save]", "torchtitan-async[async]"])
def test_what_was_saved_is_loaded(racecheck: Any, name: str) -> None:
    racecheck.check(resolve.load(name), schedules=4)
