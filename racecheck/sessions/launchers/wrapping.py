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
    ("python", "-m", "accelerate.commands.launch"),
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
    **dict.fromkeys(
        ("srun", "mpirun", "mpiexec", "deepspeed", "horovodrun"),
        "racecheck does not start ranks as it does: give torchrun --nproc-per-node=N, if the script reads RANK",
    ),
}
_REFUSED_OPTIONS = ("--no-python", "--run-path")
SHIMMED = ("torchrun", "accelerate", "accelerate-launch", "python", "python3")


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
    accelerate.check(command)
    for option in _REFUSED_OPTIONS:
        if option in words or f"PET_{option[2:].upper().replace('-', '_')}" in os.environ:
            raise UsageError(f"{option} starts what racecheck cannot take over: leave it out, and name a Python script")


def words_of(started: Sequence[str]) -> list[str]:
    """Return a launcher's command from the words that its process was started with (`sys.orig_argv`)."""
    script, module, rest = scripts.program(started[1:])
    return ["python", "-m", module, *rest] if module else [Path(script).name, *rest]


def shim(place: Path, intercept: Path) -> None:
    """Make programs in a directory that start launchers so that `intercept` is found, whatever PYTHONPATH is then.

    A launcher that is not on the path is the one beside this Python, as for a command that begins with it.
    """
    place.mkdir()
    for name in SHIMMED:
        real = shutil.which(name) or shutil.which(name, path=os.path.dirname(sys.executable))
        if real is not None:
            made = place / name
            made.write_text(f'#!/bin/sh\nPYTHONPATH="{intercept}${{PYTHONPATH:+:$PYTHONPATH}}" exec "{real}" "$@"\n')
            made.chmod(0o700)
