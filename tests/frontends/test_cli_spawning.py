"""``racecheck run -- python train.py``: the script starts its ranks itself, and they and it are controlled."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from racecheck.frontends.launching import check
from racecheck.model.errors import UsageError
from racecheck.targets.programs import Launch, Program
from racecheck.targets.scenarios import make_world
from tests.support.launching import Racecheck
from tests.support.outside import snapshot


@pytest.fixture
def run(programs: Path, racecheck: Racecheck) -> Any:
    (programs / "out").mkdir(exist_ok=True)

    def one(what: str, *options: Any) -> tuple[int, dict[str, Any]]:
        before = snapshot(programs)
        words = ["run", "--watch", "out", "--json", "--explain", 0, *options]
        status, text = racecheck(*words, "--", sys.executable, "spawning.py", what)
        assert snapshot(programs) == before
        data = json.loads(text)
        found = [json.loads(Path(each["finding"]).read_text())["outcome"] for each in data["violations"]]
        return status, {**data, "outcome": found[0] if found else {}}

    return one


def test_a_script_that_starts_itself_again(programs: Path, racecheck: Racecheck) -> None:
    words = ["run", "--watch", "out", "--json", "--explain", 0, "--", sys.executable, "restarting.py"]
    status, text = racecheck(*words, "--race")
    assert status == 1, text
    (violation,) = json.loads(text)["violations"]
    assert violation["invariant"] == "no-file-errors"
    status, text = racecheck("replay", violation["finding"], "--times", 10, "--json")
    assert (status, json.loads(text)["reproduced"]) == (1, 10)
    status, text = racecheck(*words)
    data = json.loads(text)
    assert (status, data["verdict"]) == (0, "PASS"), text
    status, text = racecheck("run", "--check-launcher", *words[1:3], "--", sys.executable, "restarting.py")
    assert (status, "a script starts its ranks itself" in text) == (2, True), text


def test_ranks_that_know_themselves_by_the_variables_of_slurm(racecheck: Racecheck) -> None:
    """``srun`` itself is not run; ``--nodes`` shares its ranks among nodes, and its variables say so."""
    words = ["run", "--watch", "out", "--json", "--explain", 0]
    job = ["srun", "--ntasks=2", sys.executable, "named.py"]
    status, text = racecheck(*words, "--", *job, "race")
    (violation,) = json.loads(text)["violations"]
    assert (status, violation["invariant"]) == (1, "no-file-errors"), text
    status, text = racecheck("replay", violation["finding"], "--times", 10, "--json")
    assert (status, json.loads(text)["reproduced"]) == (1, 10)
    status, text = racecheck(*words, "--", *job)
    assert (status, json.loads(text)["claim"].partition(":")[0]) == (0, "EXHAUSTED"), text
    assert racecheck("run", "--check-launcher", "--watch", "out", "--", *job)[0] == 0
    status, text = racecheck(*words, "--nodes", 2, "--", *job)
    assert (status, json.loads(text)["verdict"]) == (0, "PASS"), text


def test_a_local_rank_that_is_an_argument(racecheck: Racecheck) -> None:
    job = [sys.executable, "-m", "torch.distributed.launch", "--nproc-per-node=2", "named.py"]
    status, text = racecheck("run", "--watch", "out", "--json", "--", *job)
    assert (status, json.loads(text)["verdict"]) == (0, "PASS"), text


def test_a_race_is_found_and_replays(run: Any, racecheck: Racecheck) -> None:
    status, data = run("race")
    assert status == 1
    violation = data["violations"][0]
    assert violation["message"].startswith("FileNotFoundError on rank "), violation
    status, text = racecheck("replay", violation["finding"], "--times", 10, "--json")
    assert (status, json.loads(text)["reproduced"]) == (1, 10)


@pytest.mark.parametrize("what", ["guarded", pytest.param("processes", marks=pytest.mark.slow)])
def test_a_correct_script_passes(run: Any, what: str) -> None:
    status, data = run(what)
    assert (status, data["verdict"]) == (0, "PASS")
    assert data["claim"].startswith("EXHAUSTED"), data["claim"]
    assert data["world"]["ranks"] == 3
    assert "rank 2 is the process that runs spawning.py and starts the others" in data["coverage"]["notes"]


@pytest.mark.parametrize(
    "how", [*(pytest.param(each, marks=pytest.mark.slow) for each in ("kill", "leave", "exit")), "raise"]
)
def test_the_parent_learns_of_a_process_that_dies_as_it_does_without_racecheck(
    programs: Path, run: Any, how: str
) -> None:
    """The other process is sent SIGTERM, whose handler it runs."""
    done = subprocess.run(
        [sys.executable, "spawning.py", how], cwd=programs, capture_output=True, text=True, check=False
    )
    really = done.stderr.strip().splitlines()[-1]
    assert really.startswith("SystemError: Process")
    status, data = run(how, "--schedules", 1)
    assert status == 1
    other, _, parent = data["outcome"]["results"]
    assert f"SystemError: {parent['message']}" == really
    assert (other["is"], other["status"]) == ("Died", 7)


def test_processes_whose_parent_has_ended_get_sigint(run: Any) -> None:
    status, data = run("orphans", "--schedules", 1)
    assert status == 1
    assert [each["syscall"] for each in data["outcome"]["trace"] if each.get("call") == "kill"] == ["SIGINT"] * 2


def test_queues_and_shared_tensors_reach_the_ranks_and_the_claim_names_that(run: Any) -> None:
    status, data = run("queue", "--schedules", 2)
    assert (status, data["verdict"]) == (0, "PASS"), data
    assert (
        "INCOMPLETE: not tried: memory, a semaphore, a message queue or a key that several ranks share" in data["claim"]
    )


def test_a_pipe_reaches_the_ranks(run: Any) -> None:
    status, data = run("pipe", "--schedules", 2)
    assert (status, data["verdict"]) == (0, "PASS"), data


@pytest.mark.slow
def test_a_process_that_is_not_started_this_time_is_not_waited_for(run: Any) -> None:
    status, data = run("fewer", "--schedules", 3, "--fault", "kill-job on close")
    assert (status, data["verdict"]) == (0, "PASS"), data


def test_a_question_whether_a_process_lives_is_a_gap(run: Any) -> None:
    status, data = run("polls", "--schedules", 2)
    assert (status, data["exhaustive"]) == (0, False)
    assert "other answers about whether a process has ended" in data["coverage"]["untried"]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("fork", "a process that the program forks by itself would be a rank"),
        ("socket", "which racecheck cannot pass on: use a queue, or mp.Pipe(duplex=False)"),
        pytest.param("twice", "starts more processes than the 2", marks=pytest.mark.slow),
    ],
)
def test_other_ways_to_start_ranks_end_with_one_line(
    programs: Path, racecheck: Racecheck, what: str, said: str
) -> None:
    (programs / "out").mkdir(exist_ok=True)
    status, text = racecheck("run", "--watch", "out", "--", sys.executable, "spawning.py", what)
    assert (status, text.count("\n")) == (2, 1), text
    assert said in text


def test_a_script_of_one_process_is_a_world_of_one_rank(run: Any) -> None:
    status, data = run("none", "--schedules", 8, "--fault", "kill-job on any nth=each")
    assert (status, data["world"]["ranks"], data["observed"]) == (0, 1, {"saves": 1, "loads": 0})


@pytest.mark.parametrize("how", [{"free": True}, {"nodes": 3}])
def test_what_a_script_cannot_do_is_refused(tmp_path: Path, how: dict[str, Any]) -> None:
    launch = Launch(("python", "a.py"), "a.py", "", (), str(tmp_path), {}, ranks=2, watched="out", spawns=True)
    scenario = Program(launch, tmp_path / "launch.json")
    world = make_world(scenario.world, nodes=how.get("nodes"))
    with pytest.raises(UsageError, match="leave it out"):
        check(scenario, world, free=how.get("free", False))
    check(Program(replace(launch, spawns=False), tmp_path / "launch.json"), replace(world, ranks=3), free=True)
