"""Commands before a launcher, and scripts that start one: how their ranks are found, and which are refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from racecheck.model.errors import UsageError
from racecheck.sessions.launchers import capture, reports, wrapping
from racecheck.targets.programs import ABSENT, Launch
from tests.support.outside import eventually

TORCHRUN = "torchrun --nproc-per-node=2 train.py --lr 1"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a program of two ranks."""
    (tmp_path / "train.py").write_text("open('ran', 'w')\n")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GONE", "here")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def launch(place: Path, *command: str) -> Launch:
    return capture.launch(command, place / "out", ABSENT)


def in_script(place: Path, text: str) -> Launch:
    (place / "run.sh").write_text(text)
    return launch(place, "bash", "run.sh")


@pytest.mark.parametrize(
    ("command", "inner"),
    [
        (TORCHRUN, TORCHRUN),
        (f"env A=1 {TORCHRUN}", TORCHRUN),
        (f"nohup nice -n 5 {TORCHRUN}", TORCHRUN),
        ("uv run python -m torch.distributed.run train.py", "python -m torch.distributed.run train.py"),
        ("env A=1 python3.11 train.py", "python3.11 train.py"),
        ("bash run.sh torchrun train.py", ""),
        ("make train", ""),
        ("./run.sh", ""),
        ("env bash run.sh", ""),
        ("env A=1 srun -n 2 python train.py", "srun -n 2 python train.py"),
        ("nohup mpirun -n 2 python train.py", "mpirun -n 2 python train.py"),
    ],
)
def test_the_launcher_is_found_behind_other_commands(command: str, inner: str) -> None:
    assert [*wrapping.inner(command.split())] == inner.split()
    assert wrapping.is_it(command.split()) == (command != inner)
    wrapping.check(command.split())


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sudo torchrun train.py", "run racecheck itself with it"),
        ("env A=1 sudo torchrun train.py", "run racecheck itself with it"),
        ("docker run image torchrun train.py", "it starts the job in a container"),
        ("ssh node torchrun train.py", "it starts the job elsewhere"),
        ("horovodrun python train.py", "give torchrun --nproc-per-node=N"),
        ("deepspeed --num_nodes 2 train.py", "--num_nodes 2: racecheck starts all ranks here"),
        ("tmux new torchrun train.py", "leave it out"),
        ("rm -rf out", "unknown launcher 'rm' '-rf'"),
        ("python -c pass", "unknown launcher 'python' '-c'"),
    ],
)
def test_what_takes_the_job_out_of_reach_is_refused(command: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        capture.check(command.split())


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (["python", "/bin/torchrun", "--nproc-per-node=2", "a.py"], "torchrun --nproc-per-node=2 a.py"),
        (["python", "-u", "-m", "torch.distributed.run", "a.py"], "python -m torch.distributed.run a.py"),
    ],
)
def test_the_launcher_s_command_follows_from_how_it_was_started(script: Sequence[str], words: str) -> None:
    assert wrapping.words_of(script) == words.split()


def test_variables_that_a_command_sets_and_removes_are_those_of_the_ranks(place: Path) -> None:
    made = launch(place, "env", "-u", "GONE", "A=1", *TORCHRUN.split())
    assert (made.script, made.arguments, made.ranks) == ("train.py", ("--lr", "1"), 2)
    assert made.environment["A"] == "1"
    assert made.unset == ("GONE",)
    assert not made.in_script
    assert not (place / "ran").exists()
    direct = launch(place, *TORCHRUN.split())
    assert {**direct.environment, "A": "1"} == made.environment
    assert direct.unset == ()


def test_a_script_s_ranks_are_those_of_the_launcher_in_it(place: Path) -> None:
    (place / "prepare.py").write_text("open('prepared', 'w')\n")
    (place / "sub").mkdir()
    (place / "sub" / "train.py").touch()
    made = in_script(
        place,
        f"set -e\nexport PYTHONPATH=lib A=1\npython prepare.py\ncd sub\n{TORCHRUN}\npython -c 'open(\"after\")'\n",
    )
    assert (made.command, made.ranks, made.directory) == (("bash", "run.sh"), 2, str(place / "sub"))
    assert (made.environment["A"], made.environment["PYTHONPATH"]) == ("1", "lib")
    assert not {"PATH", "SHLVL", "RACECHECK_SHIMS"} & made.environment.keys()
    assert made.in_script
    assert "bash run.sh does before and after its ranks is no part of the runs" in made.note
    assert (place / "prepared").exists(), "what comes before the launcher ran"
    assert not (place / "ran").exists()


def test_within_a_job_the_processes_before_the_launcher_are_no_ranks(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "1")
    (place / "prepare.py").write_text("open('prepared', 'w')\n")
    assert in_script(place, f"python prepare.py\n{TORCHRUN}\n").ranks == 2
    assert (place / "prepared").exists()
    made = launch(place, sys.executable, "prepare.py")
    assert (made.ranks, made.spawns) == (0, True)


def test_ranks_that_a_script_starts_by_hand_are_ranks(place: Path) -> None:
    loop = "export WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500\nfor r in 0 1; do RANK=$r LOCAL_RANK=$r "
    assert in_script(place, f"{loop} python train.py & done\nwait\n").ranks == 2
    with pytest.raises(UsageError, match="has RANK and no WORLD_SIZE"):
        in_script(place, "RANK=0 python train.py\n")


def test_a_script_continues_after_its_ranks_when_its_files_have_been_seen(place: Path) -> None:
    """The look takes longer than the script would need to end."""
    loop = "export WORLD_SIZE=2\nfor r in 0 1; do RANK=$r python train.py & done\nwait\ntouch after\n"
    (place / "run.sh").write_text(loop)
    early: list[bool] = []

    def look(_: object) -> tuple[str, str]:
        early.append(eventually(lambda: (place / "after").exists(), seconds=0.5))
        return ABSENT, ""

    capture.launch(["bash", "run.sh"], place / "out", ABSENT, look)
    assert early == [False]
    assert (place / "after").exists(), "and it was not held for good"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (f"{TORCHRUN}\ntorchrun other.py\n", r"starts two jobs: torchrun .* --lr 1, and then torchrun other\.py"),
        (f"torchrun --nnodes=2 --rdzv-endpoint=localhost:1 {TORCHRUN[9:]}\n", "--nnodes 2: racecheck starts all ranks"),
        ("torchrun --no-python train.py\n", "--no-python starts what racecheck cannot take over"),
        ("python train.py\n", "started no launcher; if python train.py starts the ranks, give that command"),
        ("nothing train.py\n", "no rank that racecheck could see; name its launcher here.*: command not found"),
        ("exit 3\n", "no rank that racecheck could see"),
        ("(setsid sleep 1000 &)\n", "no rank that racecheck could see"),
    ],
)
def test_a_script_that_cannot_be_taken_over_is_refused(place: Path, script: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        in_script(place, script)


def test_a_file_that_cannot_be_executed_is_named(place: Path) -> None:
    (place / "run.sh").touch(0o600)
    with pytest.raises(UsageError, match=r"\./run\.sh is not executable"):
        launch(place, "./run.sh")


def test_a_script_that_starts_nothing_is_not_waited_for_for_ever(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "_IN_SCRIPT", 1)
    with pytest.raises(UsageError, match=r"bash run\.sh started no rank in 1 s: name its launcher here"):
        in_script(place, "while true; do sleep 0.1; done\n")


def test_a_script_that_tries_again_until_its_job_succeeds_has_one_job(place: Path) -> None:
    assert in_script(place, f"until {TORCHRUN}; do sleep 1; done\n").ranks == 2
