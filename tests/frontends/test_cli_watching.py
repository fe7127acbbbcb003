"""Which directory of a launch command is watched, and programs of which a search can say nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.launching import TORCHRUN, Racecheck
from tests.support.outside import snapshot
from tests.support.timeless import timeless

SAVES = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
os.makedirs("logs", exist_ok=True)
open(f"logs/{dist.get_rank()}.a", "w").close()
open(f"logs/{dist.get_rank()}.b", "w").close()
where = sys.argv[1]
os.makedirs(where, exist_ok=True)
torch.save({}, os.path.join(where, f"{dist.get_rank()}.pt"))
"""


def watched(text: str) -> str:
    """Return what is watched in the finding of a report."""
    finding = Path(json.loads(text)["violations"][0]["finding"])
    return str(json.loads(finding.read_text())["launch"]["watched"])


def test_without_a_directory_the_one_with_the_checkpoints_is_watched(programs: Path, racecheck: Racecheck) -> None:
    before = snapshot(programs)
    status, text = racecheck("run", "--json", "--explain", 0, *TORCHRUN, "train.py", "--overwrite")
    assert status == 1, text
    assert watched(text) == str(programs / "checkpoints")
    assert snapshot(programs) == before


@pytest.mark.parametrize("named", [False, True])
def test_the_directory_is_below_the_working_directory_or_in_the_command(
    programs: Path, racecheck: Racecheck, tmp_path: Path, named: bool
) -> None:
    where = str(tmp_path / "elsewhere") if named else "deep/below"
    (programs / "saves.py").write_text(f"{SAVES}\nos.mkdir(f'{{where}}/same')\n")
    status, text = racecheck("run", "--json", "--explain", 0, "--", *TORCHRUN, "saves.py", where)
    assert status == 1, text
    assert watched(text) == (where if named else str(programs / "deep"))


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("import nosuchmodule", "ModuleNotFoundError on rank 0: No module named 'nosuchmodule' (by_itself.py:1)"),
        ("import sys; sys.exit(4)", "rank 0 exited with status 4 before it returned"),
        ("open('out/x', 'a').close(); raise ValueError('no data')", "ValueError on rank 0: no data (by_itself.py:1)"),
    ],
)
def test_a_program_that_fails_by_itself(programs: Path, racecheck: Racecheck, script: str, says: str) -> None:
    """One rank of one: with two, opening one file would be a race."""
    (programs / "by_itself.py").write_text(script)
    status, text = racecheck("run", "--watch", "out", "--", "torchrun", "--nproc-per-node=1", "by_itself.py")
    assert (status, text) == (2, f"racecheck: your program fails without any race: {says}\n")


LATE = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    time.sleep(1)
    torch.save({}, "out/x.pt")
else:
    torch.load("out/x.pt")
"""


def test_a_rank_that_was_cut_might_have_been_in_time(programs: Path, racecheck: Racecheck) -> None:
    """No two ops of the first run could go the other way: rank 0 is ended before it saves."""
    (programs / "late.py").write_text(LATE)
    command = ["--", *TORCHRUN, "late.py"]
    status, text = racecheck("run", "--watch", "out", "--explain", 0, *command)
    assert (status, text.startswith("FAIL  no-file-errors: FileNotFoundError on rank 1")) == (1, True), text
    status, text = racecheck("run", "--watch", "elsewhere", *command)
    assert status == 2, text
    assert text.startswith("racecheck: your program fails before it does anything in elsewhere: FileNotFoundError on ")
    status, text = racecheck("run", *command)
    assert status == 2, text
    assert text.startswith("racecheck: your program fails before it writes a file in the working directory: ")
    assert text.endswith("; if another rank makes it fail, name the directory with --watch DIR\n")


def test_a_failure_after_ops_that_could_go_the_other_way_is_judged(programs: Path, racecheck: Racecheck) -> None:
    (programs / "racing.py").write_text("open('out/one', 'a').close(); raise ValueError('no data')")
    status, text = racecheck("run", "--watch", "out", "--explain", 0, "--", *TORCHRUN, "racing.py")
    assert (status, "no-unexpected-errors: ValueError on rank 0: no data" in text) == (1, True), text


def test_the_wrong_directory(programs: Path, racecheck: Racecheck) -> None:
    (programs / "saves.py").write_text(SAVES)
    status, text = racecheck("run", "--watch", "wrong", "--", *TORCHRUN, "saves.py", "right/step")
    assert status == 2, text
    wrote = "the program wrote to right/step/ (2 files): did you mean --watch right/step?"
    assert text == f"racecheck: nothing happened in wrong; {wrote}\n"
    (programs / "here.py").write_text(SAVES.replace("sys.argv[1]", "'.'"))
    status, text = racecheck("run", "--", *TORCHRUN, "here.py")
    assert (
        status,
        "files in the working directory that the first run left as they were are not controlled" in text,
    ) == (0, True)
    (programs / "idle.py").write_text("pass")
    status, text = racecheck("run", "--watch", "wrong", "--", *TORCHRUN, "idle.py")
    assert status == 2, text
    assert text == "racecheck: nothing happened in wrong, and the program wrote no file of its own elsewhere\n"
    status, text = racecheck("run", "--", *TORCHRUN, "idle.py")
    assert status == 2, text
    assert "the program wrote no file in the working directory: name its directory with --watch DIR" in text


CHECKS = """
import racecheck

def three_files(outcome):
    if len(outcome.disk) != 3:
        yield racecheck.Violation("three-files", f"there are {len(outcome.disk)} files")
"""


def test_an_invariant_of_the_user(programs: Path, racecheck: Racecheck) -> None:
    (programs / "checks.py").write_text(f"print('to standard error')\n{CHECKS}")
    (programs / "exits.py").write_text("import sys; sys.exit(5)")
    (programs / "saves.py").write_text(SAVES)
    words = ["--watch", "right", "--explain", 0, "--json", "--", *TORCHRUN, "saves.py", "right"]
    status, text = racecheck("run", "--invariant", "checks.py::three_files", *words)
    assert status == 1, text
    (violation,) = json.loads(text)["violations"]
    assert (violation["invariant"], violation["message"]) == ("three-files", "there are 2 files")
    status, text = racecheck("replay", violation["finding"], "--times", 3, "--json")
    assert (status, json.loads(text)["reproduced"]) == (1, 3), text
    (programs / "checks.py").write_text(f"{CHECKS}# changed\n")
    status, text = racecheck("replay", violation["finding"])
    assert (status, "saves, or a file that it uses, has changed" in text) == (2, True), text
    for given, says in (
        ("checks.py::thre_files", "checks has no function 'thre_files'; did you mean three_files?"),
        ("checks.py", "--invariant takes path/to/file.py::name, not 'checks.py'"),
        ("nowhere.py::x", "no such file: nowhere.py"),
        ("exits.py::x", "cannot import exits.py::x: it calls sys.exit"),
    ):
        status, text = racecheck("run", "--invariant", given, *words)
        assert (status, text) == (2, f"racecheck: {says}\n")
    status, text = racecheck("run", "--invariant", "checks.py::three_files", "scenarios/test_readme.py::overwrite")
    assert (status, text) == (2, "racecheck: --invariant is for a launch command: add -- COMMAND\n")


APPENDS = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
os.makedirs("ckpt", exist_ok=True)
with open("ckpt/log", "a") as log:
    for step in range(4):
        log.write(f"{dist.get_rank()} {step}\\n")
        log.flush()
torch.save({}, f"ckpt/{dist.get_rank()}.pt")
"""


@pytest.mark.slow
def test_the_result_does_not_depend_on_the_jobs(programs: Path, command: Racecheck) -> None:
    """Workers start before the first run, which looks for the directory, and cover the files for themselves."""
    (programs / "appends.py").write_text(APPENDS)
    told = []
    for jobs in (1, 3):
        status, text = command("run", "--json", "--jobs", jobs, "--schedules", 150, "--", *TORCHRUN, "appends.py")
        assert status == 0, text
        told.append(timeless(json.loads(text)))
    assert told[0]["schedules"] == 150
    assert told[0] == told[1]
