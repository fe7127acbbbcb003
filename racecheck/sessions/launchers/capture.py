"""Run the real launcher once, and take down each rank: its script, arguments, environment, directory."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from racecheck.kernel import capabilities
from racecheck.model.errors import CannotRun, UsageError
from racecheck.sessions.launchers import identity, scripts, wrapping
from racecheck.sessions.launchers.reports import Reports, Started, launcher_words, shown, size_of
from racecheck.sessions.session import guarded
from racecheck.targets import programs
from racecheck.targets.programs import IDENTITY, Launch, code

_INTERCEPT = Path(__file__).with_name("intercept")
_OWN = frozenset({*IDENTITY, "TORCHELASTIC_ERROR_FILE", "PYTHONPATH"})
"""Variables that the launcher sets differently for each rank, or that racecheck set."""
_OF_SHELLS = frozenset({"_", "SHLVL", "OLDPWD", "PWD", "PYTHONPATH"})
"""Variables that a shell sets by itself, and PYTHONPATH, in which racecheck has an entry (`_added`)."""

_LAUNCHERS_FILES = re.compile(r"/(torchelastic_|ompi\.|prtrn\.|pmix[-_.]|__pycache__)")
_JOINS = re.compile(rb"\b(init_process_group|init_device_mesh|Accelerator|Fabric|notebook_launcher|init_distributed)\b")
See = Callable[[Callable[[Path], bool]], None]
Sight = Callable[[Callable[[Path], bool]], tuple[str, str]]


def launch(command: Sequence[str], watched: Path, start: str, look: Sight | None = None) -> Launch:
    """Return the program that the ranks of a launch command would run.

    The launcher must run where it can do no harm (`racecheck.kernel.layer`).  ``start`` is what the watched directory
    holds when a run begins.  If the command is a script, ``look`` returns that and the files outside it, when the
    script has come to its ranks; its argument tells which files are racecheck's or the launcher's own.
    Raises `UsageError` for a command that cannot be taken over.
    """
    check(command)
    own = _script(command, watched, start) if is_script(command) else None
    does_more, before = own is not None or not wrapping.inner(command), ""

    def see(is_ours: Callable[[Path], bool]) -> None:
        nonlocal start, before
        if look is not None and does_more:
            start, before = look(is_ours)

    started, words = capture(command, see)
    first = started[0]
    if own is not None and [*words] == [*wrapping.inner(command)]:  # no launcher has begun
        if first.starts is not None or own.runs(*scripts.program(first.arguments)[:2]):
            return _starting_its_ranks(own, started)
        words = ()
    _check_alike(started)
    script, module, arguments = scripts.program(first.arguments)
    option = _local_rank(started)
    made = Launch(
        command=tuple(command), script=script, module=module, arguments=arguments[bool(option) :],
        directory=first.directory, environment=_environment(first, words), ranks=len(started), watched=str(watched),
        start=start, unset=_unset(first) if wrapping.is_it(command) or own else (), in_script=does_more,
        identity=identity.names(first.environment), local_rank=option, before=before,
    )  # fmt: skip
    _check_program(made)
    _check_mpi(made)
    return made


def _script(command: Sequence[str], watched: Path, start: str) -> Launch:
    """Return the program of a Python script, which may start its ranks itself."""
    script, module, arguments = scripts.program(wrapping.inner(command)[1:])
    made = Launch(
        command=tuple(command), script=script, module=module, arguments=arguments, directory=os.getcwd(),
        environment={}, ranks=0, watched=str(watched), start=start, spawns=True,
    )  # fmt: skip
    _check_program(made)
    return made


def _starting_its_ranks(made: Launch, found: Sequence[Started]) -> Launch:
    """Return the program of a script that has started its ranks itself, or none."""
    first = found[0]
    if first.starts is None:
        return _started_by_itself(made, found)
    made = replace(made, forks=first.forks, ranks=first.starts)
    if not wrapping.is_it(made.command):
        return made
    return replace(made, directory=first.directory, environment=_added(first), unset=_unset(first))


def _started_by_itself(made: Launch, others: Sequence[Started]) -> Launch:
    """Return the program of a script that has started the ``others`` of its ranks as Lightning does, by `subprocess`.

    Its rank 0 is the process that people start.  Here all ranks are started alike, so none starts another one.
    """
    first = others[0]
    size = int(first.environment.get("WORLD_SIZE", len(others) + 1))
    if len(others) != size - 1:
        raise UsageError(f"{made.script} started {len(others)} of {size - 1} more ranks: all must run on this machine")
    script, module, arguments = scripts.program(first.arguments)
    environment = {name: value for name, value in _added(first).items() if name not in IDENTITY}
    return replace(
        made, script=script, module=module, arguments=arguments, directory=first.directory, spawns=False, ranks=size,
        environment={**environment, "MASTER_PORT": "29500"}, unset=_unset(first),
    )  # fmt: skip


def _check_program(made: Launch) -> None:
    """Raise `UsageError` for a program that is not there, or cannot be compiled."""
    if made.script and Path(made.file) not in programs.made(made) and not Path(made.file).is_file():
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
    return wrapping.may_begin(word)


def is_script(command: Sequence[str]) -> bool:
    """Return whether a command runs a Python script that starts its ranks itself."""
    return scripts.is_it(wrapping.inner(command))


def check(command: Sequence[str]) -> None:
    """Raise `UsageError` for a command that cannot start ranks, or whose processes cannot be stopped."""
    wrapping.check(command)
    wrapping.check_options(wrapping.inner(command))
    if not wrapping.is_srun(command):  # which need not be installed (`intercept/slurm.py`)
        _executable(command[0])


def capture(command: Sequence[str], see: See = lambda _: None) -> tuple[list[Started], Sequence[str]]:
    """Start the launcher; return the ranks in order, and the launcher's own command.

    ``see`` is called before anything that comes after the ranks, with a function that tells which files are not the
    user's.  Raises `UsageError` with the launcher's message.
    """
    inner = wrapping.inner(command)
    with _temporary_directory() as place, open(f"{place}/log", "w+b") as log:
        os.mkfifo(f"{place}/news")
        os.mkfifo(f"{place}/seen")
        os.mkdir(f"{place}/guarded")
        more = {"RACECHECK_CAPTURE": place}
        if scripts.is_it(inner):
            script, module, _ = scripts.program(inner[1:])
            more["RACECHECK_SCRIPT"] = module or Path(script).name
            more["RACECHECK_FORKS"] = "1" if _joins_a_group(script, module) else ""
        words, environment = intercepted(command, Path(place), **more)
        look = partial(see, partial(_is_ours, Path(place)))
        with capabilities.inherited():
            process = subprocess.Popen(
                guarded(Path(place, "guarded"), words, alone=True),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            found = Reports(process, Path(place), command, look).listen()
            begun, before = launcher_words(Path(place)), _before(Path(place))
        finally:
            process.terminate()
            process.wait()
        log.seek(0)
        said = log.read().decode(errors="replace").strip().splitlines()
    if not found:
        raise UsageError(_started_nothing(command, before, said, is_seen=bool(begun) or not wrapping.is_it(command)))
    _check_interpreter(found[0])
    if process.returncode and found[0].starts == 0:
        raise UsageError(f"{' '.join(command)} failed before it started a rank: {_last(said)}")
    return found, begun or inner


def _joins_a_group(script: str, module: str) -> bool:
    """Return whether a script, or a module of its own, makes a process group: if so, its forked processes are ranks."""
    made = Launch((), script, module, (), os.getcwd(), {}, ranks=1, watched="")
    return any(_JOINS.search(file.read_bytes()) for file in code(made))


def _is_ours(place: Path, path: Path) -> bool:
    """Return whether a file is in our ``place``, or belongs to a launcher or to Python's cache."""
    return path.is_relative_to(place) or bool(_LAUNCHERS_FILES.search(str(path)))


def _before(place: Path) -> Sequence[str]:
    """Return the Python programs that ran before a launcher."""
    file = place / "before"
    return file.read_text().splitlines() if file.exists() else ()


def _started_nothing(command: Sequence[str], before: Sequence[str], said: Sequence[str], *, is_seen: bool) -> str:
    """Return why a command came to its end without a rank; ``is_seen``: a launcher had begun.

    ``before`` are the Python programs that ran without being ranks.
    """
    name = " ".join(command)
    if any("--allow-run-as-root" in line for line in said):
        return f"{name} started no rank, because this is root: add --allow-run-as-root, if you want that"
    if is_seen:
        return f"{Path(command[0]).name} started no rank: {_last(said)}"
    if before:
        return f"{name} started no launcher; if {before[-1]} starts the ranks, give that command: {_last(said)}"
    return f"{name} started no rank that racecheck could see; name its launcher here, such as torchrun: {_last(said)}"


def _temporary_directory() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory()
    except FileNotFoundError as error:
        raise CannotRun(f"{error.strerror}: the workspace is full? Free space there, or set RACECHECK_RUNS") from None


def _last(said: Sequence[str]) -> str:
    return next((each for each in reversed(said) if re.search(r"\w", each)), "it printed nothing")


def intercepted(command: Sequence[str], place: Path, **variables: str) -> tuple[list[str], dict[str, str]]:
    """Return a launch command with the path of its program, and an environment with these variables for it.

    In that Python starts with the module `intercept.sitecustomize`.  ``place`` is a directory for programs that stand
    in for others.  Raises `UsageError` if there is no such program.
    """
    path = os.pathsep.join(filter(None, [str(_INTERCEPT), os.environ.get("PYTHONPATH", "")]))
    made = {**os.environ, "PYTHONPATH": path, "RACECHECK_RANKS": " ".join(identity.RANKS), **variables}
    if wrapping.needs_shims(command) or is_script(command):
        shims = place / "shims"
        wrapping.shim(shims, _INTERCEPT)
        path = f"{shims}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        made |= {"RACECHECK_SHIMS": str(shims), "PATH": path, **wrapping.STAY_HERE}
    if wrapping.needs_shims(command) or is_script(command):
        # In a job, this process is a rank itself, which says nothing of others.
        made = {name: value for name, value in made.items() if name not in {*IDENTITY, *identity.RANKS}}
    if wrapping.is_srun(command):
        return [str(place / "shims" / "srun"), *command[1:]], made
    return [_executable(command[0]), *command[1:]], made


def _executable(name: str) -> str:
    """Return a program on the path, or beside this interpreter; raises `UsageError` if there is none."""
    found = shutil.which(name) or shutil.which(name, path=os.path.dirname(sys.executable))
    if found is None and os.path.isfile(name):
        raise UsageError(f"{name} is not executable: name the program that runs it, such as bash {name}")
    if found is None:
        package = {"accelerate": "accelerate", "accelerate-launch": "accelerate", "torchrun": "torch"}.get(name)
        remedy = f"; install {package} in this environment" if package else ""
        raise UsageError(f"no such command: {name}{remedy}")
    return found


def _check_alike(started: Sequence[Started]) -> None:
    """Raise `UsageError` unless the ranks differ in nothing but who they are."""
    first, option = started[0], _local_rank(started)
    if len(started) != (size := size_of(first)):
        raise UsageError(f"the launcher started {len(started)} of {size} ranks: all must run on this machine")
    for rank, other in enumerate(started):
        for what in ("arguments", "directory", "interpreter"):
            one, another = getattr(first, what), getattr(other, what)
            if what == "arguments" and option:
                one = tuple(f"{option}={rank}" if each == f"{option}=0" else each for each in first.arguments)
            if one != another:
                raise UsageError(f"rank 0 and rank {rank} differ in {what}: {shown(one)}, {shown(another)}")
        names = {*first.environment, *other.environment} - _OWN - identity.names(first.environment).keys()
        for name in sorted(each for each in names if not identity.is_of_one_start(each)):
            one, another = first.environment.get(name), other.environment.get(name)
            if one != another:
                raise UsageError(
                    f"rank 0 and rank {rank} differ in the variable {name}: {shown(one)}, {shown(another)}"
                )


def _local_rank(started: Sequence[Started]) -> str:
    """Return the option by which a launcher tells each process its local rank, "" if it does not.

    That is its first argument (``deepspeed``, ``python -m torch.distributed.launch``).
    """
    _, _, arguments = scripts.program(started[0].arguments)
    option = re.fullmatch(r"(--local[-_]rank)=0", next(iter(arguments), ""))
    said = [f"{option[1]}={rank}" in each.arguments for rank, each in enumerate(started)] if option else [False]
    return option[1] if option and all(said) else ""


def _check_mpi(made: Launch) -> None:
    """Raise `UsageError` for a program that talks to the MPI that starts it."""
    if not made.identity or "RANK" in made.identity:
        return
    for file in code(made):
        if re.search(rb"^\s*(import|from)\s+(mpi4py|horovod)\b", file.read_bytes(), re.MULTILINE):
            raise UsageError(
                f"{file} imports mpi4py or horovod: no MPI runs under racecheck, only its variables are there; "
                "use torch.distributed"
            )


def _check_interpreter(first: Started) -> None:
    if Path(first.interpreter).parent.resolve() != Path(sys.executable).parent.resolve():
        raise UsageError(
            f"the ranks run {first.interpreter}, racecheck runs {sys.executable}: "
            "name that one, or install racecheck in the other environment and run it from there"
        )


def _environment(first: Started, command: Sequence[str]) -> dict[str, str]:
    """Return the variables that the launcher added to its own environment, the same in every session."""
    found, own = _added(first), identity.names(first.environment)
    words = " ".join(command).replace("_", "-")
    if "--master-port" not in words and command and not own:
        found["MASTER_PORT"] = "29500"
    if "--rdzv-id" not in words and command and not own:
        found["TORCHELASTIC_RUN_ID"] = "none"
    if own:  # a rank finds only what its launcher sets
        found = {name: value for name, value in found.items() if name not in own and not identity.is_of_one_start(name)}
        found |= {name: first.environment[name] for name in ("MASTER_ADDR", "MASTER_PORT") if name in first.environment}
    return dict(sorted(found.items()))


def _added(first: Started) -> dict[str, str]:
    """Return the variables that a process has, and racecheck has not, or has otherwise."""
    found = {
        name: value for name, value in first.environment.items()
        if name not in _OWN | _OF_SHELLS and os.environ.get(name) != value != wrapping.STAY_HERE.get(name)
    }  # fmt: skip
    path, ours = (each.get("PYTHONPATH", "").split(os.pathsep) for each in (first.environment, os.environ))
    if [*filter(None, path)] != [*filter(None, ours)]:
        found["PYTHONPATH"] = os.pathsep.join(path)
    return dict(sorted(found.items()))


def _unset(first: Started) -> tuple[str, ...]:
    """Return the variables that racecheck has, and a process has not."""
    return tuple(sorted(os.environ.keys() - first.environment.keys() - _OWN - _OF_SHELLS))
