"""Fixtures of the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

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
def racecheck(programs: Path) -> Racecheck:
    return racecheck_in(programs)
