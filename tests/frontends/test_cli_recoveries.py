"""``--resume-with``: the recovery of a program is a launch command, on what a kill, an error or a crash has left."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.launching import TORCHRUN, Racecheck
from tests.support.outside import snapshot

KILLS = ["--fault", "kill-job on any nth=each", "--schedules", "10"]
RESUMABLE = [*TORCHRUN, "resumable.py"]


def test_a_save_in_place_is_lost_by_a_kill_and_the_finding_replays(programs: Path, racecheck: Racecheck) -> None:
    before = snapshot(programs)
    words = ["run", "--watch", "out", "--explain", "0", "--json", *KILLS]
    again = "torchrun --nproc-per-node=1 resumable.py"
    status, text = racecheck(*words, "--resume-with", again, "--", *RESUMABLE, "--in-place")
    assert status == 1, text
    violation, lost = json.loads(text)["violations"]
    assert (violation["invariant"], lost["invariant"]) == ("recovers", "old-survives")
    assert violation["message"].startswith("the recovery failed: EOFError on rank 0")
    finding = Path(violation["finding"])
    for launch in finding.parent.glob("launch-*.json"):
        launch.unlink()
    status, text = racecheck("replay", finding, "--times", 5, "--json")
    assert (status, json.loads(text)["reproduced"]) == (1, 5), "the finding carries the recovery's command, too"
    assert len(json.loads(finding.read_text())["outcome"]["recovery"]["results"]) == 1
    assert snapshot(programs) == before


def test_without_a_command_of_its_own_the_same_one_is_launched_again(programs: Path, racecheck: Racecheck) -> None:
    status, text = racecheck("run", "--watch", "out", "--json", *KILLS, "--", *RESUMABLE)
    assert status == 0, text
    data = json.loads(text)
    assert data["schedules"] == 10
    status, text = racecheck("run", "--watch", "out", "--explain", 0, *KILLS, "--", *RESUMABLE, "--in-place")
    assert status == 1, text
    assert "recovery, rank 1  raised EOFError (resumable.py:38 <module>), after it had read model.pt (0 bytes)" in text


@pytest.mark.parametrize(
    "again",
    [pytest.param([], marks=pytest.mark.slow), ["--resume-with", "torchrun --nproc-per-node=1 resumable.py"]],
    ids=["the same command", "one rank"],
)
def test_the_recovery_runs_on_crash_states(programs: Path, racecheck: Racecheck, again: list[str]) -> None:
    (programs / "careless.py").write_text((programs / "resumable.py").read_text().replace("os.fsync", "id"))
    words = ["run", "--watch", "out", "--explain", "0", "--schedules", "1", "--fault", "crash", *again]
    status, text = racecheck(*words, "--", *RESUMABLE)
    assert (status, "none violate an invariant" in text) == (0, True), text
    status, text = racecheck(*words, "--", *TORCHRUN, "careless.py")
    assert status == 1, text
    assert "on disk     model.pt  0 bytes" in text


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ("torchrun --nproc-per-node=2 resumable.py --fail", "the recovery failed: rank 0 exited with status 7"),
        (
            "torchrun --nproc-per-node=2 resumable.py --hang",
            "the recovery failed: rank 0 did not end: repeats stat model.pt",
        ),
        pytest.param(
            "torchrun --nproc-per-node=2 resumable.py --wait",
            "in the recovery: rank 0 did not end: reached the limit",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_recovery_that_fails_or_hangs(programs: Path, racecheck: Racecheck, again: str, said: str) -> None:
    words = ["--explain", 0, "--schedules", 1, "--resume-with", again, "--", *RESUMABLE]
    status, text = racecheck("run", "--watch", "out", *words)
    assert said in text, text
    assert status == (1 if "failed" in said else 3)


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ("rm -rf out", "--resume-with: unknown launcher 'rm'"),
        (" ", "--resume-with: name a launch command"),
        ("torchrun 'resumable.py", "No closing quotation"),
        ("torchrun nowhere.py", "no such file: nowhere.py"),
        ("torchrun --nnodes=2 resumable.py", "--resume-with: --nnodes 2"),
    ],
)
def test_a_command_that_cannot_resume_is_one_line(programs: Path, racecheck: Racecheck, again: str, said: str) -> None:
    before = snapshot(programs)
    status, text = racecheck("run", "--watch", "out", "--resume-with", again, "--", *RESUMABLE)
    assert status == 2
    assert said in text
    assert len(text.strip().splitlines()) == 1
    assert snapshot(programs) == before


def test_a_scenario_has_no_command_to_resume_with(racecheck: Racecheck) -> None:
    status, text = racecheck("run", "--resume-with", "torchrun x.py", "scenarios/test_readme.py::overwrite")
    assert status == 2
    assert "--resume-with is for a launch command: add -- COMMAND" in text


@pytest.mark.parametrize("fault", ["kill on any nth=each", "crash"])
def test_what_a_save_leaves_under_a_name_that_it_draws(programs: Path, racecheck: Racecheck, fault: str) -> None:
    """It is shown by its role in the recovery, too, and on the disk: a replay meets another name there."""
    words = ["run", "--watch", "out", "--fault", fault, "--json", "--", sys.executable, "random_names.py"]
    status, text = racecheck(*words)
    assert status == 1, text
    (finding,) = {each["finding"] for each in json.loads(text)["violations"] if "recovers" in each["invariant"]}
    status, text = racecheck("replay", finding, "--times", 4, "--json")
    assert (status, json.loads(text)["reproduced"]) == (1, 4), text
    outcome = json.loads(Path(finding).read_text())["outcome"]
    assert any(".tmp<0:1>" in each for each in outcome["disk"])
    assert not any(".tmp" in each and ".tmp<" not in each for each in outcome["recovery"]["disk"])


@pytest.mark.parametrize("begins", ["absent", "empty", "full"])
def test_crash_states_of_a_directory_that_the_program_makes(racecheck: Racecheck, programs: Path, begins: str) -> None:
    """It is the same disk before and after: what was saved and acknowledged there loads."""
    (programs / "out").rmdir()
    if begins != "absent":
        (programs / "out").mkdir()
    if begins == "full":
        (programs / "out" / "old").touch()
    crash = ("--fault", "crash model=ext4", "--fault", "crash model=kill", "--schedules", 1, "--explain", 0)
    status, text = racecheck("run", "--watch", "out", *crash, "--json", "--", *TORCHRUN, "own_directory.py")
    found = json.loads(text)
    assert (status, found["verdict"]) == (0, "PASS"), text
    assert all(each["judged"] > 5 for each in found["crashes"]["states"].values())


@pytest.mark.parametrize(
    ("fault", "restarts", "status"),
    [("kill on rename nth=1", 1, 0), ("kill on rename nth=1", 0, 1), ("kill-job on rename nth=1", 1, 1)],
)
def test_torchrun_says_that_it_has_started_the_ranks_again(
    racecheck: Racecheck, fault: str, restarts: int, status: int
) -> None:
    """The job goes on only if it is told; after the end of the launcher itself, a new one starts."""
    command = ["torchrun", "--nproc-per-node=2", f"--max-restarts={restarts}", "restarted.py"]
    words = ["run", "--watch", "out", "--fault", fault, "--schedules", 4, "--explain", 0, "--json"]
    found, text = racecheck(*words, "--", *command)
    data = json.loads(text)
    assert (found, {each["invariant"] for each in data["violations"]}) == (status, {"recovers"} if status else set()), (
        text
    )
    if status and not restarts:
        found, text = racecheck("replay", data["violations"][0]["finding"], "--times", 3, "--json")
        assert (found, json.loads(text)["reproduced"]) == (1, 3)
