"""``racecheck gate`` on launch commands: everything that may go wrong, in one matrix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from racecheck.gate.plan import KNOWN, PLAN
from racecheck.targets.suite import CHECKS
from tests.support.launching import TORCHRUN, Racecheck
from tests.support.outside import snapshot

TWICE = ("lossy_loops.py", "the_scheduler_steps_twice")
TWO = ("--watch", "out", "--effort", "quick", "--check", "races", "--check", "job-killed")


def test_a_job_that_resumes_as_another_one(racecheck: Racecheck, programs: Path, findings: Path) -> None:
    before = snapshot(programs)
    files = ("--junit", programs / "gate.xml", "--markdown", programs / "gate.md")
    status, text = racecheck("gate", *TWO, *files, "--json", "--", *TORCHRUN, *TWICE)
    assert status == 1, text
    found = json.loads(text)
    cells = {each["check"]: each for each in found["cells"]}
    assert {name: each["verdict"] for name, each in cells.items()} == {"races": "PASS", "job-killed": "FAIL"}
    assert "resume-equals" in cells["job-killed"]["asked"]
    assert "resume-equals" not in cells["races"]["asked"]
    (defect,) = found["defects"]
    assert defect["effect"] == "the resumed job is another one if the job is killed"
    assert "takes training step 7 with lr 0.09166666666666667, that of step 8, instead of 0.0833" in defect["seen"]
    assert defect["place"] == ""
    assert found["new"] == ["lossy_loops[job-killed] resume-equals: takes training step # with lr #"]
    assert Path(defect["finding"]).parent.parent.name == findings.name
    status, text = racecheck("replay", defect["finding"], "--times", 2, "--json")
    assert (status, json.loads(text)["reproduced"]) == (1, 2), text
    assert 'failures="1"' in (programs / "gate.xml").read_text()
    assert "run again: `racecheck run --fault 'kill-job on" in (programs / "gate.md").read_text()
    (programs / "gate.xml").unlink()
    (programs / "gate.md").unlink()
    assert snapshot(programs) == before


@pytest.mark.slow
def test_a_known_finding_does_not_fail_the_gate(racecheck: Racecheck, programs: Path) -> None:
    asked = ("gate", *TWO[:4], "--check", "job-killed", "--baseline", programs / "known.json")
    status, text = racecheck(*asked, "--update-baseline", "--", *TORCHRUN, "resuming.py", "scaler")
    assert status == 0, text
    status, text = racecheck(*asked, "--", *TORCHRUN, "resuming.py", "scaler")
    assert status == 0, text
    assert "1 known finding" in text
    status, text = racecheck(*asked, "--", *TORCHRUN, "resuming.py", "random")
    assert status == 1, "another cause is new"
    assert "1 new finding" in text


def test_what_the_passes_leave_open_is_named(racecheck: Racecheck) -> None:
    status, text = racecheck("gate", *TWO[:4], "--check", "job-killed", "--", *TORCHRUN, "resumable.py")
    assert status == 0, text
    _, _, left = text.partition("The passes leave open")
    assert "one order of the recovery's ops" in left


def test_checks_that_the_time_limit_cuts_off_are_unknown_in_one_line(racecheck: Racecheck) -> None:
    status, text = racecheck("gate", *TWO[:4], "--seconds", 1, "--", *TORCHRUN, "resuming.py")
    assert status == 3, text
    (line,) = (each for each in text.splitlines() if "cut off by --seconds 1" in each and "job-killed, " in each)
    assert "rank-told-to-end" in line


@pytest.mark.parametrize(
    ("storage", "verdict", "said"),
    [
        ("nfs", "PASS", ""),
        ("node-local", "FAIL", "run again: racecheck run --storage node-local --nodes 2 --watch out --resume-with "),
    ],
)
def test_all_checks_on_another_storage(racecheck: Racecheck, storage: str, verdict: str, said: str) -> None:
    """Rank 0 saves alone, so on disks of their own the ranks of the second node have no checkpoint to resume from."""
    words = ("--watch", "out", "--effort", "quick", "--storage", storage, "--check", "races", "--resume-with")
    job = (*TORCHRUN, "damaged.py", "trusting")
    status, text = racecheck("gate", *words, " ".join([*job, "6"]), "--", *job, "4")
    assert status == int(verdict == "FAIL"), text
    assert f"{verdict}  damaged (torch" in text
    assert said in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--watch", "out", "--check", "kill", "--", *TORCHRUN, "who.py"], "unknown check 'kill' of a launch command"),
        (["--ranks", "3", "--", *TORCHRUN, "who.py"], "are for checkpointers: leave them out"),
        (["--storage", "nfs", "--storage", "fuse", "--", *TORCHRUN, "who.py"], "on one storage at a time"),
        (["--storage", "floppy", "--", *TORCHRUN, "who.py"], "floppy"),
        (["--watch", "out", "--storage", "object", "--", *TORCHRUN, "damaged.py", "trusting", "2"], "has no objects"),
        (["--all", "--", *TORCHRUN, "who.py"], "are for checkpointers: leave them out"),
        (["mine.py::A", "mine.py::B"], "is neither one checkpointer nor a launch command"),
        (["--resume-with", "torchrun x.py", "dcp"], "need a launch command: -- torchrun ... train.py"),
        (["--watch", "out", "--", *TORCHRUN, "gone.py"], "gone.py"),
        (
            ["--watch", "out", "--", *TORCHRUN, "resumable.py", "--fail"],
            "your program fails without any race",
        ),
    ],
)
def test_a_wrong_command_ends_in_one_line(racecheck: Racecheck, words: list[str], said: str) -> None:
    status, text = racecheck("gate", *words)
    assert status == 2, text
    assert said in text
    assert "Traceback" not in text


def test_no_two_checks_have_one_name() -> None:
    assert len(KNOWN) == len(PLAN) + len(CHECKS)
