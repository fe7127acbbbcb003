"""Fixtures of the command line."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.covered import Covered
from tests.support.launching import LAUNCHED, Racecheck, racecheck_in


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A user's directory with programs, an earlier checkpoint and a file of notes."""
    made = tmp_path / "project"
    shutil.copytree(LAUNCHED, made, ignore=shutil.ignore_patterns("__pycache__", "__init__.py"))
    (made / "package" / "__init__.py").touch()
    (made / "checkpoints" / "my_run").mkdir(parents=True)
    (made / "checkpoints" / "my_run" / "old.pt").write_bytes(b"old")
    (made / "notes.txt").write_text("notes")
    (made / "out").mkdir()
    return made


@pytest.fixture
def findings(found: Path, request: pytest.FixtureRequest) -> Path:
    """Where the findings of a test are kept: nothing else that a launch command writes is real."""
    return found / hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:10]


@pytest.fixture
def racecheck(programs: Path, findings: Path, covered: Covered) -> Racecheck:
    """Run a command of racecheck in the directory of programs, in a process that other tests use, too."""

    def run(*words: Any) -> tuple[int, str]:
        return covered.run(words, programs, findings)

    return run


@pytest.fixture
def command(programs: Path, findings: Path) -> Racecheck:
    """Run a command of racecheck in the directory of programs, as a user does."""
    return racecheck_in(programs, findings)


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of all findings of launch commands."""
    return tmp_path_factory.mktemp("findings")


@pytest.fixture(scope="session")
def covered(found: Path) -> Iterator[Covered]:
    with closing(Covered(found)) as made:
        yield made
