"""Permission to run the code of a finding, which may come from strangers: a replay prints it, and asks if in doubt."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

import racecheck
from racecheck.explore import findings
from racecheck.explore.findings import Finding
from racecheck.model.errors import UsageError
from racecheck.report.words import escape, here
from racecheck.targets import programs, resolve, surroundings
from racecheck.targets.definitions import WHOLE
from racecheck.targets.programs import Launch, Program
from racecheck.targets.resolve import TargetPlace

_OURS = Path(racecheck.__file__).resolve().parent
_OF_LAUNCHERS = (
    "ACCELERATE_", "CUDA_VISIBLE_DEVICES", "FSDP_", "GROUP_", "KMP_", "LOCAL_", "MASTER_", "MEGATRON_LM_",
    "NODE_RANK", "OMP_NUM_THREADS", "PARALLELISM_CONFIG_", "ROLE_", "TORCHELASTIC_", "TORCH_NCCL_", "XLA_", "SLURM",
    "GFORTRAN_UNBUFFERED_PRECONNECTED", "HFI_NO_BACKTRACE", "IPATH_NO_BACKTRACE", "PYTORCH_NVML_BASED_CUDA_CHECK",
)  # fmt: skip
"""How the variables begin that torchrun, accelerate, Lightning, DeepSpeed, MPI and Slurm set.

One that names a path may decide which code is loaded.
"""


def place_of(finding: Finding, *, changed: bool, trust: bool) -> TargetPlace:
    """Return where the scenario of a finding is, once it may be imported; nothing has been imported yet.

    ``changed``: it may have changed since.  Raises `UsageError` if it is gone, has changed, or may not be imported.
    """
    target = finding.scenario.target
    if "::" not in target or not Path(resolve.file_of(target)).is_file():
        raise UsageError(f"no {target} here: change to the directory where the finding was created")
    at = resolve.place(target)
    file, names = Path(at.file), findings.changes(finding.scenario, Path(at.file), at.name)
    shown = resolve.file_of(target)
    which = f"{shown} ({', '.join(names)})" if names not in ([], [WHOLE]) else shown
    if names and not changed:
        raise _changed(finding, which, f"racecheck run {target}")
    doubts = [f"{which} has changed since the finding was created"] if names else []
    doubts += [] if _is_near(file) else [f"{shown} is not below the current directory"]
    _allow(f"import {shown}", doubts, trust=trust)
    return at


def program_of(finding: Finding, launch: Launch, directory: Path, *, changed: bool, trust: bool) -> Program:
    """Return the program of a finding, once it may be run; ``directory`` is where findings are kept.

    Raises `UsageError` as `place_of` does.
    """
    launches = [each for each in (launch, finding.resumed) if each is not None]
    for each in launches:
        is_made = Path(each.file) in programs.made(each)
        if not Path(each.directory).is_dir() or (each.script and not is_made and not Path(each.file).is_file()):
            raise UsageError(f"no {each.script or each.module} in {each.directory}: replay it where it was run")
    is_changed = findings.source_hash(*programs.sources_of(*launches)) != finding.scenario.source
    if is_changed and not changed:
        raise _changed(finding, f"{launch.name}, or a file that it uses,", "the same command")
    doubts = [f"{launch.name}, or a file that it uses, has changed"] if is_changed else []
    doubts += [doubt for each in launches for doubt in _doubts(each)]
    _allow(" and ".join(dict.fromkeys(map(_shown, launches))), [*dict.fromkeys(doubts)], trust=trust)
    return programs.load(programs.save(launch, directory, finding.resumed))


def _doubts(launch: Launch) -> Iterator[str]:
    """Yield why a launch may run other code than the user's own below the current directory."""
    own = [Path(launch.file)] if launch.script else programs.files_of_module(launch)
    if not own or not all(map(_is_below, (*own, Path(launch.directory)))):
        yield f"{launch.script or launch.module} in {launch.directory} is not below the current directory"
    for word in launch.arguments:
        file = Path(launch.directory, word.rpartition("=")[2])
        if file.suffix == ".py" and not _is_below(file):
            yield f"its argument {word} is not below the current directory"
    for each in launch.asks:
        if not _is_below(Path(each.rpartition("::")[0])):
            yield f"its invariant {each} is not below the current directory"
    yield from (f"it sets {name}" for name, _ in _decisive(launch.environment))
    changes = surroundings.paths(launch.before) if launch.before else ()
    if made := [path for path, is_file in changes if is_file or not _is_below(path)]:
        yield f"its script has made {made[0]}{f' and {len(made) - 1} more' if made[1:] else ''}"


def _is_near(file: Path) -> bool:
    """Return whether a file is below the current directory, or comes with racecheck."""
    return _is_below(file) or file.resolve().is_relative_to(_OURS)


def _is_below(file: Path) -> bool:
    return file.resolve().is_relative_to(here().resolve())


def _changed(finding: Finding, what: str, again: str) -> UsageError:
    instead = ", or replay its --constraints with --trust" if finding.constraints else ""
    return UsageError(f"{what} has changed since the finding was created: create a new one with {again}{instead}")


def _shown(launch: Launch) -> str:
    """Describe the running of a launch, as part of a sentence."""
    settings = [f"{name}={value}" for name, value in _decisive(launch.environment)]
    code = ("python", launch.script) if launch.script else ("python", "-m", launch.module)
    return f"run {shlex.join([*settings, *code, *launch.arguments])} in {launch.directory}"


def _decisive(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that may decide which code is run, with their values: paths, and what no launcher sets."""
    found = sorted((name, value) for name, value in environment.items() if name not in programs.IDENTITY)
    return ((name, value) for name, value in found if not name.startswith(_OF_LAUNCHERS) or "/" in value)


def _allow(what: str, doubts: Sequence[str], *, trust: bool) -> None:
    """Announce the run; if there are doubts, ask.  Raises `UsageError` unless it is allowed."""
    click.echo(escape(f"racecheck: replay will {what}"), err=True)
    if not doubts or trust:
        return
    why = escape("; ".join(doubts))
    if sys.stdin.isatty() and sys.stderr.isatty():
        if click.confirm(f"racecheck: {why}. Continue?", err=True):
            return
        raise UsageError("not allowed: nothing was run")
    raise UsageError(f"{why}: read what it is, then add --trust")
