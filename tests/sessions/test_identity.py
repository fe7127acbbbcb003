"""Launchers that do not set torchrun's variables: MPI, Slurm, DeepSpeed, and the old one of torch.

Open MPI, MPICH and DeepSpeed are not among racecheck's own requirements: scripts that set what they set stand in for
them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from racecheck.model.errors import UsageError
from racecheck.sessions.launchers import capture, identity
from racecheck.sessions.launchers.intercept import slurm
from racecheck.targets.programs import ABSENT, Launch

OPEN_MPI = """#!/bin/bash
shift 2
for rank in 0 1; do
    OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=$rank PMIX_RANK=$rank \\
        OMPI_MCA_uri=port.$RANDOM HFI_NO_BACKTRACE=1 "$@" &
done
wait
"""
DEEPSPEED = """
import subprocess, sys
sys.exit(subprocess.call([sys.executable, "-m", "deepspeed.launcher.launch", *sys.argv[1:]]))
"""
SECOND = """
import os, subprocess, sys
for rank in 0, 1:
    own = dict(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=2, LOCAL_SIZE=2, CROSS_RANK=0, CROSS_SIZE=1, MASTER_PORT=29500)
    words = [sys.executable, "-u", sys.argv[1], f"--local_rank={rank}", *sys.argv[2:]]
    subprocess.Popen(words, env={**os.environ, **{name: str(value) for name, value in own.items()}}).wait()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a program, and programs that stand in for launchers."""
    (tmp_path / "train.py").write_text("open('ran', 'w')\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "bin").mkdir()
    _executable(tmp_path / "bin" / "mpirun", OPEN_MPI)
    _executable(tmp_path / "bin" / "deepspeed", f"#!{sys.executable}\n{DEEPSPEED}")
    package = tmp_path / "lib" / "deepspeed" / "launcher"
    package.mkdir(parents=True)
    (package / "launch.py").write_text(SECOND)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_PROCID", "5")  # of the job in which racecheck itself runs
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _executable(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o700)


def launch(place: Path, command: str) -> Launch:
    made = capture.launch(command.split(), place / "out", ABSENT)
    assert not (place / "ran").exists()
    return made


@pytest.mark.parametrize("before", ["", "env A=1 "])
def test_ranks_of_an_mpi_know_themselves_by_its_variables(place: Path, before: str) -> None:
    made = launch(place, f"{before}mpirun -n 2 python train.py --lr 1")
    assert (made.script, made.arguments, made.ranks, made.local_rank) == ("train.py", ("--lr", "1"), 2, "")
    assert made.identity == {
        "OMPI_COMM_WORLD_RANK": "RANK", "OMPI_COMM_WORLD_SIZE": "WORLD_SIZE", "PMIX_RANK": "RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK": "LOCAL_RANK",
    }  # fmt: skip
    assert made.environment == {"HFI_NO_BACKTRACE": "1", **({"A": "1"} if before else {})}


def test_srun_is_not_run_and_its_variables_are_there(place: Path) -> None:
    made = launch(place, "srun -n2 --cpus-per-task 4 --label --export=ALL,B=2 python train.py")
    assert (made.ranks, made.identity["SLURM_PROCID"], made.identity["SLURM_NNODES"]) == (2, "RANK", "GROUP_WORLD_SIZE")
    assert (made.environment["B"], made.environment["SLURM_JOB_NODELIST"]) == ("2", "localhost")
    assert not {"RANK", "MASTER_PORT", "SLURM_PROCID"} & made.environment.keys()
    assert not made.in_script


def test_a_script_finds_the_srun_that_stands_in(place: Path) -> None:
    (place / "job.sh").write_text("#SBATCH --ntasks=2\nsrun --ntasks=2 python train.py\n")
    made = launch(place, "bash job.sh")
    assert (made.ranks, made.identity["SLURM_NTASKS"], made.in_script) == (2, "WORLD_SIZE", True)


def test_srun_around_torchrun_is_torchrun(place: Path) -> None:
    made = launch(place, "srun --ntasks-per-node=1 torchrun --nproc-per-node=2 train.py")
    assert (made.ranks, made.identity, made.environment["SLURM_PROCID"]) == (2, {}, "0")


def test_deepspeed_passes_the_local_rank(place: Path) -> None:
    made = launch(place, "deepspeed train.py --lr 1")
    assert (made.arguments, made.local_rank, made.ranks) == (("--lr", "1"), "--local_rank", 2)
    assert made.identity["CROSS_SIZE"] == "GROUP_WORLD_SIZE"
    assert made.environment == {"MASTER_PORT": "29500"}


def test_the_old_launcher_of_torch_passes_the_local_rank(place: Path) -> None:
    made = launch(place, "python -m torch.distributed.launch --nproc-per-node=2 train.py --lr 1")
    assert (made.arguments, made.local_rank, made.identity) == (("--lr", "1"), "--local-rank", {})


def test_an_argument_that_is_the_same_for_all_ranks_is_the_program_s(place: Path) -> None:
    made = launch(place, "torchrun --nproc-per-node=2 train.py --local_rank=0")
    assert (made.arguments, made.local_rank) == (("--local_rank=0",), "")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("srun -N 2 -n 4 python train.py", r"srun --nodes=2: racecheck starts all ranks here; give --nodes N"),
        ("srun -n 2", "srun: no command to run"),
        ("mpirun -n 2 sleep 0", "mpirun started no rank: it printed nothing"),
        ("mpirun --hostfile hosts python train.py", "mpirun --hostfile: racecheck starts all ranks here"),
        ("mpirun -H a,b python train.py", "mpirun -H: racecheck starts all ranks here"),
        ("deepspeed --hostfile hosts train.py", "deepspeed --hostfile: racecheck starts all ranks here"),
        ("bash two.sh", "starts two jobs: more than the 2 ranks of the first one were started; name one"),
        ("mpirun -n 2 python talks.py", r"talks\.py imports mpi4py or horovod: no MPI runs under racecheck"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_over_is_refused(place: Path, command: str, said: str) -> None:
    (place / "two.sh").write_text("mpirun -n 2 python train.py\nmpirun -n 2 python train.py\n")
    (place / "talks.py").write_text("from mpi4py import MPI\n")
    with pytest.raises(UsageError, match=said):
        launch(place, command)


@pytest.mark.parametrize(
    ("words", "options", "command"),
    [
        ("-n 4 python a.py -n 5", {"ntasks": "4"}, "python a.py -n 5"),
        ("-N1 -lu --ntasks-per-node=2 a", {"nodes": "1", "ntasks-per-node": "2"}, "a"),
        ("--exclusive --gres gpu:2 -- a -b", {"exclusive": "", "gres": "gpu:2"}, "a -b"),
    ],
)
def test_options_of_srun_end_where_its_command_begins(words: str, options: dict[str, str], command: str) -> None:
    assert slurm.parse(words.split()) == (options, command.split())


def test_the_number_of_tasks_comes_from_the_options_or_the_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "3")
    assert [slurm.tasks(each) for each in ({"ntasks": "4"}, {"ntasks-per-node": "2"}, {})] == [4, 2, 3]


def test_torchrun_s_own_variables_come_first() -> None:
    environment = {"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    assert (identity.rank(environment), identity.size(environment), identity.names(environment)) == (1, 2, {})
    assert identity.rank({}) is None
