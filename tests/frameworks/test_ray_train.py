"""The adapters of Ray Train, in an environment that has it (``ray[train]==2.60.0``)."""

from __future__ import annotations

from typing import Any

import pytest

from racecheck.targets import resolve


@pytest.mark.parametrize("name", ["ray[save]", "ray[grow]", "ray-dcp[save]"])
def test_what_was_saved_is_loaded(racecheck: Any, name: str) -> None:
    racecheck.check(resolve.load(name), schedules=2)
