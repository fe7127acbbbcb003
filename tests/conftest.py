"""What the tests of controlled worlds share: one session for a test process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from racecheck.model import config
from racecheck.processes.session import Session
from racecheck.targets import resolve
from racecheck.targets.scenarios import Scenario

pytest_plugins = ["pytester"]

settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
settings.load_profile("fixed")

TARGETS = Path(__file__).parent / "programs"


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    with Session(config.read().runs) as opened:
        yield opened


def target(file: str, name: str) -> Scenario:
    """A scenario below tests/programs."""
    return resolve.load(f"{TARGETS / file}.py::{name}")
