"""The scenarios that come with the package, as the README tells people to try them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from racecheck import examples
from racecheck.frontends.cli.main import main
from racecheck.targets import resolve

README = Path(__file__).parents[2] / "README.md"
TRIED = {
    "overwrite --strategy dpor": "no-file-errors",
    "save --fault 'kill nth=each'": "recovers",
    "save --fault crash": "recovers",
    "save --nodes 2 --storage nfs": "no-unexpected-errors",
}


@pytest.mark.parametrize("words", ["guarded", "save", *TRIED])
def test_an_example_ends_as_it_says(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *options = (each.strip("'") for each in re.findall(r"'[^']*'|\S+", words))
    status = main(["run", f"racecheck.examples:{name}", *options, "--json", "--explain", "0"])
    said = json.loads(capsys.readouterr().out)
    broken = [each["invariant"] for each in said["violations"]]
    assert (status, said["verdict"], broken[:1]) == ((1, "FAIL", [TRIED[words]]) if words in TRIED else (0, "PASS", []))


def test_the_readme_tries_them() -> None:
    tried = re.findall(r"`racecheck run racecheck\.examples:([^`]*)`", README.read_text())
    assert tried == [*TRIED]


def test_every_example_is_tried() -> None:
    names = {each.name for each in resolve.scenarios_in(examples)}
    assert names == {each.split()[0] for each in ("guarded", *TRIED)}
