"""``racecheck.launch``: a launch command as a scenario, for pytest and the command line."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import racecheck as package
from racecheck.model.errors import UsageError
from racecheck.targets import resolve
from racecheck.targets.launched import Launched
from racecheck.targets.scenarios import Scenario
from tests.support.launching import ROOT, Racecheck
from tests.support.outside import snapshot

TEST = """
import racecheck as package
race = package.launch("torchrun --nproc-per-node=2 train.py --overwrite", watch="checkpoints", breaks="no-file-errors")
saves = package.launch(
    "torchrun --nproc-per-node=2 resumable.py", watch="out", faults=["kill-job on any nth=each"],
    resume_with="torchrun --nproc-per-node=1 resumable.py",
)
lost = package.launch(
    "torchrun --nproc-per-node=2 resumable.py --in-place", watch="out", faults=["kill-job on any nth=each"],
    resume_with="torchrun --nproc-per-node=1 resumable.py",
)
missing = package.launch("torchrun missing.py", watch="out")

def names_no_step(outcome):
    for path in outcome.disk:
        if path.endswith("model.pt"):
            yield package.Violation("names-no-step", f"{path} is there")

own = package.launch(
    "torchrun --nproc-per-node=2 resumable.py", watch="out", invariants=[package.no_file_errors, names_no_step]
)

def test_race(racecheck):
    assert racecheck.finds(race).violations[0].finding.is_file()

def test_saves(racecheck):
    report = racecheck.check(saves, schedules=12)
    assert report.schedules == 12
    assert report.observed == (2, 1)

def test_lost(racecheck):
    racecheck.finds(lost, "old-survives")

def test_missing(racecheck):
    racecheck.check(missing)

def test_own(racecheck):
    racecheck.finds(own, "names-no-step")

def test_schedule(racecheck):
    racecheck.check(saves, schedule=package.Switches())

def test_ranks(racecheck):
    racecheck.check(saves, ranks=3)
"""


@pytest.fixture
def tested(programs: Path) -> Path:
    (programs / "test_programs.py").write_text(TEST)
    (programs / "pytest.ini").write_text("[pytest]\naddopts = --strict-config\nfilterwarnings = error\n")
    return programs


def inner(directory: Path, *words: str) -> subprocess.Popen[str]:
    """Start pytest in a directory below the root of the tests: paths are relative to that."""
    (directory / "below").mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160"}
    for name in ("RACECHECK_FINDINGS", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "--rootdir", str(directory), *words]
    return subprocess.Popen(
        command, cwd=directory / "below", env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_tests_of_launch_commands(tested: Path) -> None:
    before = snapshot(tested)
    text, _ = inner(tested, "../test_programs.py", "--racecheck-explain", "0").communicate()
    for name in ("race", "saves", "lost", "own"):
        assert f"PASSED ../test_programs.py::test_{name}" in text, text
    assert "FAILED ../test_programs.py::test_missing - Failed: racecheck: no such file: missing.py" in text
    assert "test_schedule - Failed: racecheck: a launch command runs in a process of its own" in text
    assert "test_ranks - Failed: racecheck: ranks is decided by the launch command" in text
    after = snapshot(tested)
    assert {name: each for name, each in after.items() if name in before} == before
    assert {Path(name).relative_to(tested).parts[0] for name in after.keys() - before.keys()} <= {
        ".racecheck",
        "below",
        "__pycache__",
    }


def test_the_command_line_lists_and_runs_them(tested: Path, racecheck: Racecheck) -> None:
    status, text = racecheck("list", "--json", "test_programs.py")
    assert [each["target"].rpartition("::")[2] for each in json.loads(text)["scenarios"]] == [
        "race", "saves", "lost", "missing", "own",
    ]  # fmt: skip
    status, text = racecheck("run", "test_programs.py::saves", "--schedules", 3, "--json")
    assert (status, json.loads(text)["schedules"], len(json.loads(text)["world"]["faults"])) == (0, 3, 1)
    status, text = racecheck("run", "test_programs.py::own", "--json", "--explain", 0)
    found = json.loads(text)["violations"][0]
    assert (status, found["invariant"]) == (1, "names-no-step")
    status, text = racecheck("replay", found["finding"], "--trust")
    assert (status, "reproduced 20 of 20" in text) == (1, True)
    status, text = racecheck("run", "test_programs.py::race", "--fault", "kill-job on any", "--schedules", 1, "--full")
    assert "one order of the recovery's ops" in text, "a fault brings the same command as the recovery"


def test_ctrl_c_ends_it_and_leaves_no_process(tested: Path) -> None:
    (tested / "test_programs.py").write_text(TEST.replace("schedules=12", "schedules=100_000"))
    running = inner(tested, "-s", "../test_programs.py::test_saves")
    end = time.monotonic() + 60
    while not (ours := _started_by(running.pid)) and time.monotonic() < end:
        time.sleep(0.2)  # until racecheck's own process is there
    running.send_signal(signal.SIGINT)
    text, _ = running.communicate(timeout=60)
    assert "KeyboardInterrupt" in text
    assert running.returncode == 2
    assert ours
    assert not [each for each in ours if not _ends(each)]


def _started_by(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(each) for each in children.read_text().split()] if children.exists() else []


def _ends(pid: int) -> bool:
    """Return whether a process ends.  If Ctrl-C met it during its start, it ends when it reads the closed pipe."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    ready, _, _ = select.select([process], [], [], 20)
    os.close(process)
    return bool(ready)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"command": ""}, "name a launch command"),
        ({"ranks": 2}, "ranks is decided by the command"),
        ({"sizes": {"steps": 2}}, "sizes is decided by the command"),
        ({"invariants": [print]}, "print is no invariant of racecheck's, nor a function at the top of a file"),
        ({"invariants": [lambda outcome: []]}, "<lambda> is no invariant"),
    ],
)
def test_wrong_usage_is_reported_where_it_is_written(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        package.launch(**{"command": "torchrun a.py", "watch": "out", **arguments})


def test_the_suite_s_own_commands_are_scenarios() -> None:
    found = resolve.scenarios_in(resolve.load_file(ROOT / "scenarios" / "test_launch_commands.py"))
    assert all(isinstance(each, Scenario) and isinstance(each, Launched) for each in found)
    assert [each.target.rpartition("/")[2] for each in found] == [
        "test_launch_commands.py::racy", "test_launch_commands.py::guarded",
    ]  # fmt: skip
