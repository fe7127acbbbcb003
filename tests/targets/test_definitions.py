"""A finding fits a file as long as what its scenario uses has not changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from racecheck.targets.definitions import used
from tests.support.command_line import Cli

FILE = '''
"""About this file."""
import os
import shutil as files

import racecheck

LIMIT = 3
OTHER = 4


def mine(outcome):
    yield from ()


def helper(path):
    """Makes it."""
    return path / "ckpt"  # a comment


class Base:
    size = LIMIT


@racecheck.scenario(ranks=2, invariants=[mine, racecheck.no_file_errors])
def racing(rank):
    made: Base = helper(rank.path)
    if not made.exists():
        made.mkdir()


@racing.recover
def resume(rank):
    os.stat(rank.path)


@racecheck.scenario(ranks=2)
def another(rank):
    files.rmtree(rank.path / str(OTHER))


if __name__ == "__main__":
    print("not imported")
'''


def parts(tmp_path: Path, text: str = FILE, name: str = "racing") -> dict[str, str]:
    (tmp_path / "mine.py").write_text(text)
    return used(tmp_path / "mine.py", name)


def test_what_a_scenario_uses_is_found(tmp_path: Path) -> None:
    assert {*parts(tmp_path)} == {"racecheck", "os", "LIMIT", "mine", "helper", "Base", "racing", "resume"}
    assert {*parts(tmp_path, name="another")} == {"racecheck", "files", "OTHER", "another"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""About this file."""', '"""About something else."""'),
        ('    """Makes it."""\n', ""),
        ("  # a comment", ""),
        ("LIMIT = 3", "LIMIT = (\n    3\n)"),
        ("OTHER = 4", "OTHER = 5"),
        ("files.rmtree", "files.move"),
        ('print("not imported")', "pass"),
        ("class Base", "@racecheck.scenario()\ndef third(rank):\n    pass\n\n\nclass Base"),
    ],
)
def test_the_rest_does_not_count(tmp_path: Path, old: str, new: str) -> None:
    assert old in FILE
    assert parts(tmp_path) == parts(tmp_path, FILE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("LIMIT = 3", "LIMIT = 4", {"LIMIT"}),
        ('"ckpt"', '"other"', {"helper"}),
        ("yield from ()", "yield from []", {"mine"}),
        ("os.stat", "os.lstat", {"resume"}),
        ("ranks=2, invariants", "ranks=3, invariants", {"racing"}),
        ("import os\n", "import os as os\n", {"os"}),
        ("import os\n", "import os\nos.umask(0)\n", {"what the file does when it is imported"}),
        ("import os\n", "import os\nfrom os.path import *\n", {"what the file does when it is imported"}),
        ("import os\n", "import os\nLIMIT += 1\n", {"LIMIT", "what the file does when it is imported"}),
        ("def racing", "def renamed", {"the file", "racing"}),
    ],
)
def test_what_it_uses_counts(tmp_path: Path, old: str, new: str, changed: set[str]) -> None:
    before, now = parts(tmp_path), parts(tmp_path, FILE.replace(old, new))
    assert {each for each in {*before, *now} if before.get(each) != now.get(each)} >= changed
    assert before != now


@pytest.mark.parametrize("text", ["def racing(:", "x = '\\ud800\n", ""])
def test_what_cannot_be_read_counts_as_a_whole(tmp_path: Path, text: str) -> None:
    assert [*parts(tmp_path, text)] == ["the file"]


@pytest.mark.usefixtures("project")
def test_a_replay_says_what_has_changed(cli: Cli) -> None:
    Path("mine.py").write_text(FILE)
    assert cli("run", "mine.py::racing", "--explain", 0) == 1
    finding = re.findall(r"Finding: (\S+)", cli.out)[0]
    Path("mine.py").write_text(FILE.replace("# a comment", "# said otherwise") + "\n\ndef more():\n    pass\n")
    assert cli("replay", finding, "--times", 1) == 1
    Path("mine.py").write_text(FILE.replace("LIMIT = 3", "LIMIT = 4").replace("os.stat", "os.lstat"))
    assert cli("replay", finding, "--times", 1) == 2
    assert "mine.py (LIMIT, resume) has changed since the finding was created: create a new one with" in cli.err
