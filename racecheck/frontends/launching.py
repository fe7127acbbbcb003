"""Launch commands: capture what a command starts, and watch its directory at its own path."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path

from racecheck.frontends.working import display
from racecheck.model.config import Config
from racecheck.model.errors import UsageError
from racecheck.model.nouns import World
from racecheck.processes.doctor.examination import Starting
from racecheck.processes.launchers import capture
from racecheck.processes.session import Slot
from racecheck.targets import programs
from racecheck.targets.launched import Launched
from racecheck.targets.programs import ABSENT, Launch, Program
from racecheck.targets.scenarios import Scenario, make_world


def prepare(
    command: Sequence[str], watched: Path, start: Path | None, resume_with: str | None, settings: Config
) -> tuple[Program, Starting]:
    """Run the launcher of a command; return its program, and a session in which nothing but racecheck's files is real.

    The session starts meanwhile: both import torch, which takes most of their time.
    ``resume_with`` is the command of the recovery, which the launcher of that starts, "" for the same one, None if
    there is no recovery.  Raises `UsageError`, and `CannotRun` where this machine cannot cover its files.
    """
    capture.check(command)
    again = _words(resume_with) if resume_with else []
    watched = _checked(watched)
    if start is not None and not start.is_dir():
        raise UsageError(f"--from {start}: no such directory")
    archive = programs.pack(start or watched)
    starting = Starting(settings.runs, _covered(watched, settings, [Path.cwd(), watched.parent]))
    with _closing_on_error(starting):
        starting.begin()
        with display("starting the launcher"):
            launch = capture.launch(command, watched, archive)
            resumed = None if resume_with is None else launch
            if again:
                resumed = capture.launch(again, watched, ABSENT)
        resumed = replace(resumed, start=ABSENT) if resumed is not None else None
        program = programs.load(programs.save(launch, settings.findings, resumed))
    return program, starting


def started(scenario: Scenario, settings: Config, faults: object = ()) -> tuple[Scenario, Starting]:
    """Return a scenario that can be run, and its session to be: a launch command is started for that.

    ``faults``: beside those of its own world.
    """
    if not isinstance(scenario, Launched):
        return scenario, Starting(settings.runs, slot_of(scenario, settings))
    found, starting = prepare(scenario.command, scenario.watch, scenario.start, scenario.resumed_by(faults), settings)
    program = copy(found)
    program.invariants, program.world = scenario.invariants, make_world(found.world, **scenario.changes)
    return program, starting


def _words(command: str) -> list[str]:
    """Return the words of a command; raises `UsageError` for one that is no launcher's."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--resume-with {command}: {error}") from None
    if not words:
        raise UsageError("--resume-with: name a launch command; leave it out to launch the same one again")
    try:
        capture.check(words)
    except UsageError as error:
        raise UsageError(f"--resume-with: {error}") from None
    return words


def slot_of(scenario: Scenario, settings: Config) -> Slot | None:
    """Return the slot that a program needs, None for any other scenario.

    Raises `UsageError` for a directory that cannot be watched, and `CannotRun`.
    """
    if not isinstance(scenario, Program):
        return None
    launch = scenario.launch
    return _covered(_checked(Path(launch.watched)), settings, _used(launch))


def _used(launch: Launch) -> list[Path]:
    return [Path(launch.directory), Path(launch.watched).parent]


def _covered(watched: Path, settings: Config, used: Sequence[Path]) -> Slot:
    findings = settings.findings.absolute()
    try:
        findings.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write findings to {findings}: {error.strerror}; set RACECHECK_FINDINGS") from None
    slot = Slot(settings.runs)
    with _closing_on_error(slot):
        slot.cover(watched, [findings], used)
    return slot


def check(scenario: Scenario, world: World, *, free: bool) -> None:
    """Raise `UsageError` for what a program that starts its ranks itself cannot do."""
    if isinstance(scenario, Program) and scenario.launch.spawns:
        if free:
            raise UsageError("--mode free runs what a launcher starts: leave it out")
        if world.nodes > 1:
            raise UsageError(f"--nodes {world.nodes}: a script starts its ranks on one node; leave it out")


@contextmanager
def _closing_on_error(opened: Slot | Starting) -> Iterator[None]:
    try:
        yield
    except BaseException:
        opened.close()
        raise


def _checked(watched: Path) -> Path:
    """Return the real path of a directory to watch; raises `UsageError` for one that cannot be."""
    real, here = Path(os.path.realpath(watched)), Path.cwd()
    if real == Path("/"):
        raise UsageError("--watch /: name the directory that the checkpoints go to")
    if real.parent == Path("/") or os.path.ismount(real):
        raise UsageError(f"--watch {watched}: name a directory below it, such as {watched}/run")
    if here == real or here.is_relative_to(real):
        raise UsageError(f"--watch {watched}: the working directory is in it; name the directory of the checkpoints")
    if Path(sys.prefix).is_relative_to(real):
        raise UsageError(f"--watch {watched}: Python's environment is in it; name the directory of the checkpoints")
    if not real.parent.is_dir():
        raise UsageError(f"--watch {watched}: {real.parent} does not exist; create it, as the program finds it")
    return real
