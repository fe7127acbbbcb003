"""Run the real launcher once, and take down each rank: its script, arguments, environment, directory."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from racecheck.kernel import capabilities
from racecheck.model.errors import CannotRun, UsageError
from racecheck.sessions.launchers import accelerate, scripts
from racecheck.sessions.session import guarded
from racecheck.targets.programs import IDENTITY, Launch, code

_INTERCEPT = Path(__file__).with_name("intercept")
_TORCHRUN = (("torchrun",), ("python", "-m", "torch.distributed.run"))
_KNOWN = (*_TORCHRUN, *accelerate.COMMANDS)
_REFUSED = ("--no-python", "--run-path")
_SECONDS = 120
_OWN = frozenset({*IDENTITY, "TORCHELASTIC_ERROR_FILE", "PYTHONPATH"})
"""Variables that the launcher sets differently for each rank, or that racecheck set."""


@dataclass(frozen=True, slots=True)
class Started:
    """A process that the launcher started, as it was when it had not run anything yet.

    A script that is its own launcher ``starts`` that many.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    interpreter: str
    starts: int = 0


def launch(command: Sequence[str], watched: Path, start: str) -> Launch:
    """Return the program that the ranks of a launch command would run.

    The launcher must run where it can do no harm (`racecheck.kernel.layer`).  ``start`` is what the watched directory
    holds when a run begins.  Raises `UsageError` for a command that cannot be taken over.
    """
    check(command)
    if scripts.is_it(command):
        return _script(command, watched, start)
    started = capture(command)
    first = started[0]
    _check_alike(started)
    script, module, arguments = scripts.program(first.arguments)
    made = Launch(
        command=tuple(command), script=script, module=module, arguments=arguments, directory=first.directory,
        environment=_environment(first, command), ranks=len(started), watched=str(watched), start=start,
    )  # fmt: skip
    _check_program(made)
    return made


def _script(command: Sequence[str], watched: Path, start: str) -> Launch:
    """Return the program of a script that starts its ranks itself."""
    script, module, arguments = scripts.program(command[1:])
    made = Launch(
        command=tuple(command), script=script, module=module, arguments=arguments, directory=os.getcwd(),
        environment={}, ranks=0, watched=str(watched), start=start, spawns=True,
    )  # fmt: skip
    _check_program(made)
    return replace(made, ranks=capture(command)[0].starts)


def _check_program(made: Launch) -> None:
    """Raise `UsageError` for a program that is not there, or cannot be compiled."""
    if made.script and not Path(made.file).is_file():
        raise UsageError(f"no such file: {made.script}")
    files = code(made)
    if made.module and not files and importlib.util.find_spec(made.module.partition(".")[0]) is None:
        raise UsageError(f"no module named {made.module}")
    for each in files:
        _check_syntax(each)


def _check_syntax(file: Path) -> None:
    try:
        compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise UsageError(f"{file}{f':{line}' if line else ''}: {getattr(error, 'msg', error)}") from None


def is_launcher(word: str) -> bool:
    """Return whether a launch command may begin with this word."""
    return _plain(word) in {each[0] for each in _KNOWN}


def _plain(word: str) -> str:
    name = Path(word).name
    return "python" if name.startswith("python") and not name.endswith(".py") else name


def check(command: Sequence[str]) -> None:
    """Raise `UsageError` for a command that is no launcher's, or whose processes cannot be stopped."""
    plain = [_plain(command[0]), *command[1:]]
    if not any(plain[: len(each)] == [*each] for each in _KNOWN) and not scripts.is_it(command):
        known = ", ".join([*(" ".join(each) for each in _KNOWN), "python SCRIPT"])
        raise UsageError(f"unknown launcher {shown(*command[:2])}; known: {known}")
    _executable(command[0])
    words = [each.replace("_", "-") for each in command]
    nodes = re.search(r"--nnodes[= ](?!1(:1)?( |$))(\S+)", " ".join(words))
    if nodes is not None:
        raise UsageError(f"--nnodes {nodes[3]}: racecheck starts all ranks here; give --nodes N before the --")
    accelerate.check(command)
    for option in _REFUSED:
        if option in words or f"PET_{option[2:].upper().replace('-', '_')}" in os.environ:
            raise UsageError(f"{option} starts what racecheck cannot take over: leave it out, and name a Python script")


def capture(command: Sequence[str]) -> list[Started]:
    """Start the launcher; return the ranks in order.  Raises `UsageError` with the launcher's message."""
    with _temporary_directory() as place, open(f"{place}/log", "w+b") as log:
        os.mkfifo(f"{place}/news")
        os.mkdir(f"{place}/guarded")
        with capabilities.inherited():
            process = subprocess.Popen(
                guarded(Path(place, "guarded"), runnable(command), alone=True),
                env=intercepting(
                    RACECHECK_CAPTURE=place, **({"RACECHECK_SCRIPT": "1"} if scripts.is_it(command) else {})
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            found = _await(process, Path(place), command)
        finally:
            process.terminate()
            process.wait()
        log.seek(0)
        said = log.read().decode(errors="replace").strip().splitlines()
    if not found:
        raise UsageError(f"{Path(command[0]).name} started no rank: {_last(said)}")
    _check_interpreter(found[0])
    if scripts.is_it(command) and process.returncode and not found[0].starts:
        raise UsageError(f"{' '.join(command)} failed before it started a rank: {_last(said)}")
    return found


def _temporary_directory() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory()
    except FileNotFoundError as error:
        raise CannotRun(f"{error.strerror}: the workspace is full? Free space there, or set RACECHECK_RUNS") from None


def _last(said: Sequence[str]) -> str:
    return said[-1] if said else "it printed nothing"


def runnable(command: Sequence[str]) -> list[str]:
    """Return a launch command with the path of its program; raises `UsageError` if there is none."""
    return [_executable(command[0]), *command[1:]]


def intercepting(**variables: str) -> dict[str, str]:
    """Return an environment in which Python starts with the module `intercept.sitecustomize`, and these variables."""
    path = os.pathsep.join(filter(None, [str(_INTERCEPT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, **variables}


def _executable(name: str) -> str:
    """Return a program on the path, or beside this interpreter; raises `UsageError` if there is none."""
    found = shutil.which(name) or shutil.which(name, path=os.path.dirname(sys.executable))
    if found is None:
        package = "accelerate" if "accelerate" in name else "torch"
        raise UsageError(f"no such command: {name}; install {package} in this environment")
    return found


def _await(process: subprocess.Popen[bytes], place: Path, command: Sequence[str]) -> list[Started]:
    """Return the processes that have reported, when as many have as the first one says there are, or none will."""
    end = time.monotonic() + _SECONDS
    news, over = os.open(place / "news", os.O_RDWR | os.O_NONBLOCK), os.pidfd_open(process.pid)
    try:
        return _listen(place, news, over, end, command)
    finally:
        os.close(news)
        os.close(over)


def _listen(place: Path, news: int, launcher: int, end: float, command: Sequence[str]) -> list[Started]:
    poll = select.poll()
    for each in (news, launcher):
        poll.register(each, select.POLLIN)
    while (left := end - time.monotonic()) > 0:
        ready = {each for each, _ in poll.poll(left * 1000)}
        if news in ready:
            os.read(news, 4096)
        found = [Started(**json.loads(each.read_text())) for each in place.glob("*.json")]
        if scripts.is_it(command):
            if launcher in ready:
                return found
            continue
        strange = next((each for each in found if "RANK" not in each.environment), None)
        if strange is not None and accelerate.is_it(command):
            return _in_place_of(strange, accelerate.processes(command))
        if strange is not None:
            raise UsageError(f"the launcher started something that is no rank: {shown(*strange.arguments)}")
        if launcher in ready or (found and len(found) == int(found[0].environment["WORLD_SIZE"])):
            return sorted(found, key=lambda each: int(each.environment["RANK"]))
    if scripts.is_it(command):
        raise UsageError(f"{' '.join(command)} started no rank and had not ended after {_SECONDS} s")
    raise UsageError(f"the launcher has not started its ranks after {_SECONDS} s; racecheck runs one machine's ranks")


def _in_place_of(one: Started, count: int) -> list[Started]:
    """Return the ranks that a launcher would have started, had it started more than one."""
    size = {name: str(count) for name in IDENTITY if name.endswith("WORLD_SIZE")}
    return [replace(one, environment={**one.environment, **size, "RANK": str(rank)}) for rank in range(count)]


def _check_alike(started: Sequence[Started]) -> None:
    """Raise `UsageError` unless the ranks differ in nothing but who they are."""
    first = started[0]
    if len(started) != int(first.environment["WORLD_SIZE"]):
        size = first.environment["WORLD_SIZE"]
        raise UsageError(f"the launcher started {len(started)} of {size} ranks: all must run on this machine")
    for rank, other in enumerate(started):
        for what in ("arguments", "directory", "interpreter"):
            one, another = getattr(first, what), getattr(other, what)
            if one != another:
                raise UsageError(f"rank 0 and rank {rank} differ in {what}: {shown(one)}, {shown(another)}")
        for name in sorted({*first.environment, *other.environment} - _OWN):
            one, another = first.environment.get(name), other.environment.get(name)
            if one != another:
                raise UsageError(
                    f"rank 0 and rank {rank} differ in the variable {name}: {shown(one)}, {shown(another)}"
                )


def _check_interpreter(first: Started) -> None:
    if Path(first.interpreter).parent.resolve() != Path(sys.executable).parent.resolve():
        raise UsageError(
            f"the ranks run {first.interpreter}, racecheck runs {sys.executable}: "
            "name that one, or install racecheck in the other environment and run it from there"
        )


def _environment(first: Started, command: Sequence[str]) -> dict[str, str]:
    """Return the variables that the launcher added to its own environment, the same in every session."""
    found = {
        name: value for name, value in first.environment.items() if name not in _OWN and os.environ.get(name) != value
    }
    words = " ".join(command).replace("_", "-")
    if "--master-port" not in words:
        found["MASTER_PORT"] = "29500"
    if "--rdzv-id" not in words:
        found["TORCHELASTIC_RUN_ID"] = "none"
    return dict(sorted(found.items()))


def shown(*words: object) -> str:
    """Return words as a message can show them."""
    return " ".join(repr(each) if isinstance(each, str) else str(each) for each in words)[:200]
