"""Paths that the user cannot use: one line each, wherever they are given, and never "a bug in racecheck"."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from racecheck import World
from racecheck.explore import keeping
from racecheck.model.errors import CannotRun, UsageError
from racecheck.sessions.session import Session
from racecheck.targets import listing
from tests.support.command_line import FILE, Cli
from tests.support.launching import environment

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
    assert cli.err == "racecheck: name a finding; racecheck run prints its path if it finds a failure\n"


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


def test_a_failure_whose_finding_cannot_be_kept_says_why(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise UsageError("cannot write to there: No space left on device; set RACECHECK_FINDINGS")

    monkeypatch.setattr(keeping, "save", full)
    assert cli("run", SCENARIO) == 1
    assert "No finding was kept: cannot write to there: No space left on device" in cli.out
    assert cli("run", SCENARIO, "--json") == 1
    (found,) = json.loads(cli.out)["violations"]
    assert (found["finding"], found["unkept"].partition(":")[0]) == (None, "cannot write to there")


def test_a_finding_that_is_too_large_for_the_limit_of_files(tmp_path: Path) -> None:
    """The kernel ends a process for that, unless the process ignores the signal."""
    command = f"ulimit -f 1; exec {sys.executable} -m racecheck run {SCENARIO} --explain 0"
    done = subprocess.run(
        ["bash", "-c", command], env=environment(tmp_path / "findings"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "No finding was kept: cannot write to " in done.stdout
    assert "File too large" in done.stdout


@pytest.mark.parametrize(("number", "says"), [(errno.ENOSPC, "No space left"), (errno.EMFILE, "Too many open files")])
def test_what_the_machine_lacks_is_unknown_and_no_bug(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, number: int, says: str
) -> None:
    def lacking(*_: object) -> None:
        raise OSError(number, os.strerror(number), "/dev/shm/racecheck-0/output")

    monkeypatch.setattr(listing, "files", lacking)
    assert cli("list", "--json") == 3
    (reason,) = json.loads(cli.out)["reasons"]
    assert reason.startswith(f"/dev/shm/racecheck-0/output: {says}")
    assert "bug" not in cli.err


def test_a_full_workspace(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {"failed": "Traceback\nOSError: [Errno 28] No space left on device: 'a'"}
    monkeypatch.setattr(session, "request", lambda *_, **__: failed)
    with pytest.raises(CannotRun, match="No space left on device: 'a'; free space there, or set RACECHECK_RUNS"):
        session.make_ready("a.py::prepared", World(ranks=1))


def test_a_directory_with_colons_in_its_name(cli: Cli) -> None:
    Path("a::b").mkdir()
    Path("a::b/with_colons.py").write_text(FILE.read_text())
    assert cli("run", "a::b/with_colons.py::racing", "--json") == 1
    (finding,) = {each["finding"] for each in json.loads(cli.out)["violations"]}
    assert cli("replay", finding, "--times", "1") == 1
