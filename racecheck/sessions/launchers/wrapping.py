"""What stands before a launcher: ``env A=1 torchrun ...``, ``uv run torchrun ...``, or a script that starts it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from racecheck.model.errors import UsageError
from racecheck.sessions.launchers import accelerate, scripts

KNOWN = (
    ("torchrun",), ("python", "-m", "torch.distributed.run"), ("accelerate", "launch"), ("accelerate-launch",),
    ("python", "-m", "accelerate.commands.launch"), ("python", "-m", "torch.distributed.launch"), ("deepspeed",),
    ("mpirun",), ("mpiexec",), ("srun",),
)  # fmt: skip
"""How the commands of launchers begin."""
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish", "make", "just"})
"""Their arguments are a script's: a launcher's name there starts none."""
_BEFORE = (
    _SHELLS
    | frozenset(["env", "nohup", "nice", "ionice", "time", "timeout", "stdbuf", "taskset", "numactl", "chrt"])
    | frozenset(["uv", "poetry", "pdm", "hatch", "pipenv", "pixi", "rye", "conda", "mamba", "micromamba"])
)
"""Commands that a launch command may begin with, also without ``--`` before it."""
_IN_ITS_PLACE = "run racecheck itself there"
_REFUSED = {
    **dict.fromkeys(("sudo", "doas", "su"), "racecheck does not become another user: run racecheck itself with it"),
    **dict.fromkeys(
        ("docker", "podman", "nerdctl", "apptainer", "singularity", "enroot"),
        f"it starts the job in a container: {_IN_ITS_PLACE}",
    ),
    **dict.fromkeys(
        ("ssh", "sbatch", "qsub", "bsub", "kubectl", "ray", "sky"), f"it starts the job elsewhere: {_IN_ITS_PLACE}"
    ),
    **dict.fromkeys(("tmux", "screen", "systemd-run", "setsid", "at"), "the job would outlive it: leave it out"),
    "horovodrun": "no MPI runs under racecheck: give torchrun --nproc-per-node=N, if the script reads RANK",
}
_REFUSED_OPTIONS = ("--no-python", "--run-path")
_SHIMMED = ("torchrun", "accelerate", "accelerate-launch", "deepspeed", "python", "python3")
_NO_PYTHON = frozenset({"mpirun", "mpiexec", "srun"})
_ELSEWHERE = frozenset({"-H", "-f", "-host", "--host", "-hostfile", "--hostfile", "-machinefile", "--machinefile"})
"""Options of launchers with which they start processes on other machines."""
STAY_HERE = {"OMPI_MCA_plm_rsh_agent": "false", "PRTE_MCA_plm_ssh_agent": "false", "HYDRA_LAUNCHER": "fork"}
"""Variables that keep the launchers of an MPI from starting anything on another machine."""


def begins_with(command: Sequence[str]) -> bool:
    """Return whether a command is a launcher's."""
    plain = [plain_name(command[0]), *command[1:]] if command else []
    return any(plain[: len(each)] == [*each] for each in KNOWN)


def plain_name(word: str) -> str:
    """Return a program's name: without directories, and "python" for each Python."""
    name = Path(word).name
    return "python" if name.startswith("python") and not name.endswith(".py") else name


def may_begin(word: str) -> bool:
    """Return whether a launch command may begin with this word."""
    name = plain_name(word)
    is_script = name.endswith((".sh", ".bash")) and os.path.isfile(word)
    return name in {each[0] for each in KNOWN} or name in _BEFORE or name in _REFUSED or is_script


def is_srun(command: Sequence[str]) -> bool:
    """Return whether a command begins with srun."""
    return plain_name(command[0]) == "srun"


def needs_shims(command: Sequence[str]) -> bool:
    """Return whether the ranks are started by something else than a launcher that runs in Python."""
    return is_it(command) or plain_name(command[0]) in _NO_PYTHON


def is_it(command: Sequence[str]) -> bool:
    """Return whether something stands before the launcher, or before the Python script."""
    return not begins_with(command) and not scripts.is_it(command)


def inner(command: Sequence[str]) -> Sequence[str]:
    """Return the launcher's part of a command, () if that is in a script."""
    if not is_it(command):
        return command
    if plain_name(command[0]) in _SHELLS:
        return ()
    for place in range(1, len(command)):
        rest = command[place:]
        if begins_with(rest) or (re.fullmatch(r"python[\d.]*", Path(rest[0]).name) and scripts.is_it(rest)):
            return rest
    return ()


def check(command: Sequence[str]) -> None:
    """Raise `UsageError` for a command that starts no launcher, or takes the job out of reach."""
    for word in command[: len(command) - len(inner(command))] if inner(command) else command[:1]:
        if (why := _REFUSED.get(Path(word).name)) is not None:
            raise UsageError(f"{word}: {why}")
    is_file = os.sep in command[0] or command[0].endswith((".sh", ".bash"))
    if not inner(command) and not (is_file or plain_name(command[0]) in _BEFORE):
        known = ", ".join([*(" ".join(each) for each in KNOWN), "python SCRIPT", "bash SCRIPT"])
        raise UsageError(f"unknown launcher {' '.join(map(repr, command[:2]))}; known: {known}")


def check_options(command: Sequence[str]) -> None:
    """Raise `UsageError` for options of a launcher that racecheck does not take over."""
    words = [each.replace("_", "-") for each in command]
    nodes = re.search(r"--nnodes[= ](?!1(:1)?( |$))(\S+)", " ".join(words))
    if nodes is not None:
        raise UsageError(f"--nnodes {nodes[3]}: racecheck starts all ranks here; give --nodes N before the --")
    if (nodes := re.search(r"--num-nodes[= ](?!1( |$))(\S+)", " ".join(words))) is not None:
        raise UsageError(f"--num_nodes {nodes[2]}: racecheck starts all ranks here; give --nodes N before the --")
    if command and plain_name(command[0]) in _NO_PYTHON | {"deepspeed"}:
        _check_machines(command)
    accelerate.check(command)
    for option in _REFUSED_OPTIONS:
        if option in words or f"PET_{option[2:].upper().replace('-', '_')}" in os.environ:
            raise UsageError(f"{option} starts what racecheck cannot take over: leave it out, and name a Python script")


def _check_machines(command: Sequence[str]) -> None:
    """Raise `UsageError` for a launcher that is told which machines to use."""
    own = [*command[: next((n for n, each in enumerate(command) if each.startswith("python")), len(command))]]
    option = next((each for each in own if each.partition("=")[0] in _ELSEWHERE), None)
    if option is not None and "localhost" not in " ".join(own):
        raise UsageError(f"{command[0]} {option}: racecheck starts all ranks here; leave it out")
    if command[0] == "deepspeed" and option is None and os.path.isfile("/job/hostfile"):
        raise UsageError("deepspeed reads /job/hostfile: racecheck starts all ranks here; add --hostfile localhost")


def words_of(started: Sequence[str]) -> list[str]:
    """Return a launcher's command from the words that its process was started with (`sys.orig_argv`)."""
    script, module, rest = scripts.program(started[1:])
    return ["python", "-m", module, *rest] if module else [Path(script).name, *rest]


def shim(place: Path, intercept: Path) -> None:
    """Make programs in a directory that start launchers so that `intercept` is found, whatever PYTHONPATH is then.

    A launcher that is not on the path is the one beside this Python, as for a command that begins with it.
    """
    place.mkdir()
    _write(place / "srun", f'exec "{sys.executable}" -I "{intercept}/slurm.py" "$@"')
    _write(place / "pdsh", "echo 'racecheck starts all ranks here' >&2; exit 1")  # deepspeed's way to other machines
    for name in _SHIMMED:
        real = shutil.which(name) or shutil.which(name, path=os.path.dirname(sys.executable))
        if real is not None:
            _write(place / name, f'PYTHONPATH="{intercept}${{PYTHONPATH:+:$PYTHONPATH}}" exec "{real}" "$@"')


def _write(file: Path, command: str) -> None:
    file.write_text(f"#!/bin/sh\n{command}\n")
    file.chmod(0o700)
