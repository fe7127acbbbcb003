"""``racecheck run -- python train.py``: the script forks its ranks, and they and it are controlled from then on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import Racecheck
from tests.support.outside import snapshot

BEFORE = "what forking.py does before it forks its ranks is as observed"


@pytest.fixture
def run(programs: Path, racecheck: Racecheck) -> Any:
    def one(what: str, *options: Any) -> tuple[int, str]:
        before = snapshot(programs)
        found = racecheck("run", "--watch", "out", "--json", "--explain", 0, *options, "--",
                          sys.executable, "forking.py", what)  # fmt: skip
        assert snapshot(programs) == before
        return found

    return one


def test_a_race_is_found_and_replays(run: Any, racecheck: Racecheck) -> None:
    status, text = run("race")
    violations = json.loads(text)["violations"]
    assert (status, violations[0]["invariant"]) == (1, "no-file-errors"), text
    status, text = racecheck("replay", violations[0]["finding"], "--times", 10, "--json")
    assert (status, json.loads(text)["reproduced"]) == (1, 10), text


@pytest.mark.parametrize("what", ["plain", "torch"])
def test_a_correct_script_passes(run: Any, what: str) -> None:
    status, text = run(what)
    data = json.loads(text)
    assert (status, data["claim"].partition(":")[0]) == (0, "EXHAUSTED"), text
    assert BEFORE in data["conditions"]
    assert (data["world"]["ranks"], data["observed"]) == (3, {"saves": 1, "loads": 0 if what == "torch" else 2})
    assert "rank 2 is the process that runs forking.py and starts the others" in data["coverage"]["notes"]


def test_workers_of_a_loader_belong_to_the_rank_that_forks_them(run: Any) -> None:
    status, text = run("loader", "--schedules", 2)
    data = json.loads(text)
    assert (status, data["verdict"], data["world"]["ranks"]) == (0, "PASS", 3), text


@pytest.mark.parametrize(("what", "said"), [("fails", "ValueError on rank 1: on purpose"), ("leaves", "status 3")])
def test_errors_and_exit_statuses_are_those_without_racecheck(programs: Path, run: Any, what: str, said: str) -> None:
    done = subprocess.run([sys.executable, "forking.py", what], cwd=programs, capture_output=True, check=False)
    assert (done.returncode == 0) == (what == "leaves"), done.stderr.decode()
    for each in (programs / "out").iterdir():
        each.rmdir() if each.is_dir() else each.unlink()
    status, text = run(what)
    assert (status, said in text) == (2, True), text


def test_a_queue_from_before_the_ranks_is_named(run: Any) -> None:
    status, text = run("queue", "--schedules", 2)
    gap = "not tried: memory, pipes or sockets that ranks inherit from the process that forks them"
    assert (status, gap in json.loads(text)["claim"]) == (0, True), text


@pytest.mark.parametrize(("what", "kind"), [("thread", "a thread"), ("pool", "another process")])
def test_helpers_from_before_the_ranks_are_refused(run: Any, what: str, kind: str) -> None:
    status, text = run(what)
    assert (status, f"the program starts {kind} before it forks its ranks" in text) == (2, True), text


@pytest.mark.parametrize("what", ["resumes", "recovers"])
def test_a_recovery_forks_again_or_fails_before_it_does(run: Any, what: str) -> None:
    status, text = run(what, "--fault", "kill-job on rename nth=2", "--schedules", 3)
    found = {each["invariant"] for each in json.loads(text)["violations"]}
    assert (status, found) == ((1, {"recovers"}) if what == "recovers" else (0, set())), text
    if found:
        assert "RuntimeError on rank 2: there is a checkpoint" in text
