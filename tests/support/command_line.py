"""The command line, called in this process or as a command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from racecheck.frontends.cli.main import main
from tests.support.targets import TARGETS

RACECHECK = (sys.executable, "-m", "racecheck")
FILE = TARGETS / "savers.py"


class Cli:
    """Runs commands and keeps what they printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: object) -> int:
        status = main([str(each) for each in arguments])
        self.out, self.err = self._capsys.readouterr()
        return status

    @property
    def data(self) -> Any:
        """The one object that ``--json`` prints."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)


def finding_of(cli: Cli, name: str = "racing") -> Path:
    """The finding that a search makes, in this directory."""
    assert cli("run", f"{FILE}::{name}", "--json") == 1
    return Path(cli.data["violations"][0]["finding"])
