"""Paths that the user cannot use: one line each, wherever they are given, and never "a bug in racecheck"."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from racecheck.targets import listing
from tests.support.command_line import FILE, Cli

pytestmark = pytest.mark.usefixtures("project")

LONG = "x" * 300
SCENARIO = f"{FILE}::racing"


@pytest.mark.parametrize(
    "words",
    [
        ["run", f"{LONG}.py::name"],
        ["run", SCENARIO, "--html", LONG],
        ["run", SCENARIO, f"--html={LONG}/race.html"],
        ["run", SCENARIO, "--resume", LONG],
        ["run", "--watch", LONG, "--", "torchrun", "train.py"],
        ["run", "--watch", "out", "--from", LONG, "--", "torchrun", "train.py"],
        ["gate", "torch-rename", "--baseline", LONG],
        ["gate", "torch-rename", "--junit", LONG],
        ["list", LONG],
        ["report", LONG],
        ["replay", LONG],
        ["trace", LONG],
    ],
)
def test_a_name_that_is_too_long(cli: Cli, words: list[str]) -> None:
    assert cli(*words) == 2
    (said,) = (line for line in cli.err.splitlines() if line.startswith("racecheck: "))
    assert LONG in said
    assert "File name too long" in said or "no such file" in said
    assert "Traceback" not in cli.err


@pytest.mark.parametrize("variable", ["RACECHECK_FINDINGS", "RACECHECK_RUNS"])
def test_a_directory_of_ours_with_a_name_that_is_too_long(
    alone: Cli, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, LONG)
    assert alone("run", SCENARIO, "--schedules", 1) == (2 if variable == "RACECHECK_FINDINGS" else 3)
    assert LONG in alone.err + alone.out
    assert "bug" not in alone.err


@pytest.mark.parametrize(
    ("file", "status"), [("mine/file", 2), ("mine", 2), ("/ours", 3), ("/dev/shm/racecheck-0000/x", 3)]
)
@pytest.mark.parametrize("number", [errno.EACCES, errno.ELOOP, errno.ENOTDIR, errno.EROFS])
def test_an_error_of_a_path_of_the_user_is_wrong_input_and_one_of_ours_a_bug(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, number: int, file: str, status: int
) -> None:
    def fail(_: object) -> None:
        raise OSError(number, os.strerror(number), file)

    monkeypatch.setattr(listing, "scenarios", fail)
    assert cli("list", "mine/file") == status
    assert ("this is a bug in racecheck" in cli.err) == (status == 3)


def test_an_empty_path(cli: Cli) -> None:
    assert cli("report", "") == 2
    assert cli.err == "racecheck: name a finding: its path is empty\n"


@pytest.mark.parametrize("words", [("replay",), ("report",), ("run",), ("gate", "torch-rename", "--baseline")])
def test_a_file_that_cannot_be_what_it_is_given_as(cli: Cli, words: tuple[str, ...]) -> None:
    """It is not waited for, and does not fill the memory."""
    os.mkfifo("pipe.json")
    Path("endless.json").symlink_to("/dev/zero")
    Path("deep.json").write_text('{"format": "racecheck-launch", "version": 1, "a": ' + "[" * 100_000 + "]" * 100_000)
    for name, why in (("pipe", "no regular file"), ("endless", "no regular file"), ("deep", "nested too deeply")):
        assert cli(*words, f"{name}.json") == 2
        assert why in cli.err
        assert len(cli.err.splitlines()) == 1


def test_a_list_of_a_directory_leaves_out_what_is_no_file(cli: Cli) -> None:
    Path("below").mkdir()
    os.mkfifo("below/test_pipe.py")
    Path("below/test_endless.py").symlink_to("/dev/zero")
    assert cli("list", "below") == 0
    assert "no scenarios in below" in cli.err + cli.out
