"""What the tests of controlled worlds share: one session for a test process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

from racecheck.model import config
from racecheck.sessions.doctor.examination import Starting
from racecheck.sessions.session import Session
from tests.support.command_line import Cli

pytest_plugins = ["pytester"]
LENT = Starting.lent

os.environ.setdefault("RACECHECK_JOBS", "1")  # a test asks for workers if it is about them
settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
settings.load_profile("fixed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fresh seeds only where they are asked for: no other run depends on luck."""
    if "soak" in config.option.markexpr:
        return
    fresh = [each for each in items if each.get_closest_marker("soak")]
    if fresh:
        config.hook.pytest_deselected(items=fresh)
        items[:] = [each for each in items if not each.get_closest_marker("soak")]


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    with Session(config.read().runs) as opened:
        yield opened


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs in a directory of its own, where a scenario file may be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(config, "_root", Path())
    monkeypatch.delenv("RACECHECK_FINDINGS", raising=False)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Cli:
    """The command line in this process; commands share the session of the tests."""

    @contextmanager
    def lent(_: Starting) -> Iterator[Session]:
        yield request.getfixturevalue("session")

    monkeypatch.setattr(Starting, "lent", lent)
    return Cli(capsys)


@pytest.fixture
def alone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line in this process; each command has a session of its own, as it has elsewhere."""
    monkeypatch.setattr(Starting, "lent", LENT)
    return cli
