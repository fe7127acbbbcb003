"""Launch commands: capture the processes that a command starts, and watch its directory at its own path."""

from __future__ import annotations

import os
import shlex
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from pathlib import Path

import click

from racecheck import storage
from racecheck.explore import first_run
from racecheck.explore.first_run import NOT_THE_PROGRAMS, Directory
from racecheck.explore.runs.workers import Workers
from racecheck.frontends.working import display
from racecheck.invariants.disk import listed
from racecheck.kernel import libc
from racecheck.kernel.layer import mounts
from racecheck.kernel.real_files import real
from racecheck.model.config import Config
from racecheck.model.errors import UsageError
from racecheck.model.nouns import World
from racecheck.sessions.doctor.examination import Starting
from racecheck.sessions.launchers import capture
from racecheck.sessions.session import Session, Slot
from racecheck.targets import programs, surroundings
from racecheck.targets.launched import Launched, places_of
from racecheck.targets.programs import ABSENT, Program
from racecheck.targets.scenarios import Scenario, make_world

_PR_SET_CHILD_SUBREAPER = 36


def prepare(
    command: Sequence[str],
    watched: Path,
    start: Path | None,
    resume_with: str | None,
    cover: Cover,
    asks: Sequence[str] = (),
    kept: Sequence[str] = (),
) -> tuple[Program, Starting]:
    """Run the launcher of a command; return its program, and a session in which nothing but racecheck's files is real.

    The session starts meanwhile: both import torch, which takes most of their time.
    ``resume_with`` is the command of the recovery, which the launcher of that starts, "" for the same one, None if
    there is no recovery.  ``asks`` are the user's own invariants, ``kept`` the entries of the directory that are not
    watched.  Raises `UsageError`, and `CannotRun` where this machine cannot cover its files.
    """
    capture.check(command)
    again = _words(resume_with) if resume_with else []
    watched = cover.checked(watched, kept)
    if start is not None and not start.is_dir():
        raise UsageError(f"--from {start}: no such directory")
    archive = programs.pack(start or watched, () if start else kept)
    starting = cover.start(watched, kept, [Path.cwd(), watched.parent])

    def look(is_ours: Callable[[Path], bool]) -> tuple[str, str]:
        """Return what a script has left in the watched directory, and outside of it."""
        assert starting.slot is not None
        changes = [each for each in starting.slot.difference_outside() if not is_ours(each[0])]
        return archive if start else programs.pack(watched, kept), surroundings.pack(changes)

    with _closing_on_error(starting):
        starting.begin()
        with display("starting the launcher"):
            launch = replace(capture.launch(command, watched, archive, look), asks=tuple(asks), kept=tuple(kept))
            resumed = None if resume_with is None else launch
            if again:
                resumed = replace(capture.launch(again, watched, ABSENT), kept=tuple(kept))
        resumed = replace(resumed, start=ABSENT) if resumed is not None else None
        program = programs.load(programs.save(launch, cover.findings, resumed))
    return program, starting


def find_watched(command: Sequence[str], cover: Cover, *, here: bool) -> Directory:
    """Return the directory to watch: run a launch command once, and look where its checkpoints go.

    ``here``: it is the working directory, and the question is what of it to watch.
    Raises `UsageError` if it writes no file in the working directory, or in a directory that an argument names.
    """
    nowhere = Path.cwd() / f".racecheck-{uuid.uuid4().hex}"
    program, starting = prepare(command, nowhere, None, None, cover)
    try:
        with starting, display("running the program once, to see where its checkpoints go"), starting.lent() as session:
            found = first_run.directory_of(session, program, here=here)
    finally:
        real(program.file).unlink()
    own = [each for each in found.kept if each not in NOT_THE_PROGRAMS]
    left = f"; not watched, since the run left them as they were: {listed(own)}" if own else ""
    click.echo(f"watching {found}{left}; --watch DIR names another directory", err=True)
    return found


def launched(
    stack: ExitStack,
    settings: Config,
    workers: Workers,
    command: Sequence[str],
    watch: Path | None,
    start: Path | None,
    resume_with: str | None,
    asks: Sequence[str] = (),
) -> tuple[Program, Starting]:
    """Return the program of a command that people gave, and its session to be; ``stack`` closes what both need.

    The directory to watch is looked for if it is not named, or is the working directory.  Raises `UsageError`.
    """
    is_here = watch is not None and watch.resolve() == Path.cwd()
    cover = stack.enter_context(cover_of(settings, workers, is_asked_twice=watch is None or is_here))
    kept: tuple[str, ...] = ()
    if watch is None or is_here:
        found = find_watched(command, cover, here=is_here)
        watch, kept = found.path, found.kept
    return prepare(command, watch, start, resume_with, cover, asks, kept)


def started(
    scenario: Scenario, settings: Config, faults: object = (), workers: Workers | None = None
) -> tuple[Scenario, Starting]:
    """Return a scenario that can be run, and its session to be: a launch command is started for that.

    ``faults``: beside those of its own world.
    """
    if not isinstance(scenario, Launched):
        return scenario, starting_of(scenario, settings, workers=workers)
    found, starting = prepare(
        scenario.command,
        scenario.watch,
        scenario.start,
        scenario.resumed_by(faults),
        Cover(settings, workers),
        [*places_of(scenario.invariants)],
    )
    program = copy(found)
    with _closing_on_error(starting):
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


def starting_of(
    scenario: Scenario, settings: Config, number: int | None = None, workers: Workers | None = None
) -> Starting:
    """Return the session to be of a scenario; ``number``: in the slot with this number, if it is free.

    A program is watched at its own paths.  Raises `UsageError` for a directory that cannot be watched, and `CannotRun`.
    """
    if not isinstance(scenario, Program):
        return Starting(settings.runs, None if number is None else Slot(settings.runs, number))
    launch = scenario.launch
    cover = Cover(settings, workers)
    watched = cover.checked(Path(launch.watched), launch.kept)
    return cover.start(watched, launch.kept, [Path(launch.directory), watched.parent])


class Cover:
    """The layer in which this process runs launch commands: no file that they change is real.

    ``workers`` are started before, since each has a layer of its own.
    """

    def __init__(self, settings: Config, workers: Workers | None = None) -> None:
        self.findings, self._runs = settings.findings.absolute(), settings.runs
        self._workers = workers

    def checked(self, watched: Path, kept: Sequence[str] = ()) -> Path:
        """Return the real path of a directory to watch, or of the first directory on the way to it that is missing.

        Its entries ``kept`` are not watched.  Raises `UsageError` if it cannot be watched.
        """
        real, here = Path(os.path.realpath(watched)), Path.cwd()
        if real == Path("/"):
            raise UsageError("--watch /: name the directory that the checkpoints go to")
        if real.parent == Path("/") or os.path.ismount(real):
            raise UsageError(f"--watch {watched}: name a directory below it, such as {watched}/run")
        if here.is_relative_to(real) and not kept:
            raise UsageError(
                f"--watch {watched}: the working directory is in it; let the program write to a directory below"
            )
        if _is_in(Path(sys.prefix), real, kept):
            raise UsageError(f"--watch {watched}: Python's environment is in it; name the directory of the checkpoints")
        self._check_beside(watched, real, kept)
        return next(each for each in (real, *real.parents) if each.parent.is_dir())

    def _check_beside(self, watched: Path, real: Path, kept: Sequence[str]) -> None:
        """Raise `UsageError` for a watched directory with something in it that a run must not remove."""
        if _is_in(Path(os.path.realpath(self.findings)), real, kept):
            raise UsageError(
                f"--watch {watched}: racecheck's findings are kept in it, in {self.findings}; "
                "set RACECHECK_FINDINGS to another directory"
            )
        if _is_in(Path(os.path.realpath(self._runs)), real, kept):
            raise UsageError(
                f"--watch {watched}: racecheck works in it, in {self._runs}; set RACECHECK_RUNS to another directory"
            )
        inside = next((each.path for each in mounts() if _is_in(each.path, real, kept)), None)
        if inside is not None:
            raise UsageError(f"--watch {watched}: something is mounted in it, at {inside}; unmount it")

    def start(self, watched: Path, kept: Sequence[str], used: Sequence[Path]) -> Starting:
        """Return a session to be that watches a directory at its own path, but for its entries ``kept``.

        Programs write in ``used`` directories.  Raises `UsageError`, and `CannotRun` if this machine cannot cover its
        files.
        """
        return Starting(self._runs, self._slot(watched, kept, used))

    def _slot(self, watched: Path, kept: Sequence[str], used: Sequence[Path]) -> Slot:
        findings = self.findings
        try:
            findings.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write findings to {findings}: {error.strerror}; set RACECHECK_FINDINGS") from None
        if self._workers is not None:
            self._workers.start()
        slot = Slot(self._runs)
        with _closing_on_error(slot):
            slot.cover(watched, kept, used)
        return slot


class LastingCover(Cover):
    """A cover for one command after another: each finds the real files as they are then, and all share a session.

    It takes this process for itself: when a command has ended, no other process that this one has started goes on, but
    for the ``workers``.
    """

    def __init__(self, settings: Config, workers: Workers | None = None) -> None:
        super().__init__(settings, workers)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._session: Session | None = None

    def start(self, watched: Path, kept: Sequence[str], used: Sequence[Path]) -> Starting:
        if self._session is None:
            self._session = super().start(watched, kept, used).finish()
        else:
            self._session.slot.cover_again(watched, kept, used)
            self._session.forget()
        return _Lent(self._session, self._workers)

    def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            session.close()


def cover_of(settings: Config, workers: Workers | None, *, is_asked_twice: bool) -> AbstractContextManager[Cover]:
    """Return a cover for a command, or for two runs of it: the first looks for the directory to watch."""
    return closing(LastingCover(settings, workers)) if is_asked_twice else nullcontext(Cover(settings, workers))


class _Lent(Starting):
    """A session that has started, and outlives the command."""

    def __init__(self, session: Session, workers: Workers | None) -> None:
        super().__init__(session.slot.path.parent, session.slot)
        self._lasting, self._workers = session, workers

    def begin(self) -> None:
        pass

    @contextmanager
    def lent(self) -> Iterator[Session]:
        yield self._lasting

    def close(self) -> None:
        """Show the real files, when no process is left that could write to them."""
        self._lasting.end_strays(self._workers.pids if self._workers is not None else ())
        self._lasting.slot.lift()


def _is_in(path: Path, directory: Path, kept: Sequence[str]) -> bool:
    """Return whether a path is in a directory, but in none of its entries ``kept``."""
    return path.is_relative_to(directory) and [*path.relative_to(directory).parts, ""][0] not in kept


def check(scenario: Scenario, world: World, *, free: bool) -> None:
    """Raise `UsageError` for options that do not fit a program that starts its ranks, or writes beside its code."""
    model = storage.make(world)
    if isinstance(scenario, Program) and scenario.launch.kept and (model.per_node or model.mirrored):
        raise UsageError(
            f"--storage {world.storage}: the working directory itself is watched, and stays on one local disk; "
            "let the program write to a directory below it"
        )
    if isinstance(scenario, Program) and model.mirrored:
        raise UsageError(
            f"--storage {world.storage}: a launch command writes to a layer over your files, which has no objects; "
            "write its save and load as a scenario (racecheck guide scenarios)"
        )
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
