"""The scenarios below tests/programs."""

from __future__ import annotations

from pathlib import Path

from racecheck.targets import resolve
from racecheck.targets.scenarios import Scenario

TARGETS = Path(__file__).parents[1] / "programs"


def target(file: str, name: str) -> Scenario:
    """A scenario below tests/programs."""
    return resolve.load(f"{TARGETS / file}.py::{name}")
