"""Nothing that is wrong with the standard streams or the current directory changes an exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("project")

SCENARIOS = """
import racecheck

@racecheck.scenario(ranks=2)
def good(rank):
    (rank.path / str(rank.rank)).touch()

@racecheck.scenario(ranks=2)
def bad(rank):
    if not (rank.path / "ckpt").exists():
        (rank.path / "ckpt").mkdir()
"""
STREAMS = (">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full 2>/dev/full", "| true")
CANNED = "tests.programs.canned"


def shell(line: str, module: str = "racecheck") -> tuple[int, str, str]:
    """Run a line in which R is the command; returns its status, also before a pipe, and what it printed."""
    script = f'R="{sys.executable} -m {module}"; {line}; exit ${{PIPESTATUS[0]}}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def test_with_all_streams_closed_a_fail_exits_with_1() -> None:
    Path("mine.py").write_text(SCENARIOS)
    assert shell("$R run mine.py::bad --explain 0 <&- >&- 2>&-")[0] == 1


@pytest.mark.parametrize("streams", STREAMS)
def test_only_a_fail_exits_with_1(streams: str) -> None:
    """The report is canned; the command prints it as it prints a real one."""
    Path("mine.py").write_text(SCENARIOS)
    run = "$R run mine.py::{name} --explain 0 {streams}"
    found = {name: shell(run.format(name=name, streams=streams), CANNED) for name in ("good", "bad", "missing")}
    assert {name: each[0] for name, each in found.items()} == {"good": 0, "bad": 1, "missing": 2}
    assert not any("Traceback" in text for each in found.values() for text in each[1:])


def test_a_full_device_is_reported_where_that_is_possible() -> None:
    _, _, said = shell("$R guide >/dev/full")
    assert said == "racecheck: cannot write to standard output: No space left on device; see the exit status\n"


def test_a_current_directory_that_is_gone_is_reported() -> None:
    gone = Path("gone").resolve()
    status, _, said = shell(f"mkdir {gone}; cd {gone}; rmdir {gone}; $R list")
    assert (status, said) == (2, "racecheck: the current directory no longer exists: change to another one\n")


def test_a_current_directory_that_goes_during_the_run_changes_no_verdict() -> None:
    folder, findings = Path("folder").resolve(), Path("findings").resolve()
    folder.mkdir()
    Path("mine.py").write_text(
        SCENARIOS.replace("if not", f"__import__('shutil').rmtree({str(folder)!r}, True)\n    if not")
    )
    target = Path("mine.py").resolve()
    status, out, said = shell(f"export RACECHECK_FINDINGS={findings}; cd {folder}; $R run {target}::bad --explain 0")
    assert (status, out[:4]) == (1, "FAIL"), out + said
    assert "Traceback" not in said


IMPORTING = """
import sys

module, code = sys.argv[1:]

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            exec(code)

sys.meta_path.insert(0, Interrupting())
from racecheck.__main__ import entry
sys.argv[1:] = ["list", "nowhere"]
sys.exit(entry())
"""


@pytest.mark.parametrize("module", ["racecheck.frontends.cli.main", "racecheck.frontends.cli.list"])
def test_an_interrupt_of_an_import_is_one_line(module: str) -> None:
    """Also within exec(), as in a dataclass: Python remembers that one, and would end by SIGINT."""
    command = [sys.executable, "-c", IMPORTING, module, "raise KeyboardInterrupt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "racecheck: interrupted")
