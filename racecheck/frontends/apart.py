"""Explore a launch command in a process of its own: covering this machine's files covers those of a whole process."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from racecheck.explore.search import Report, Search, explore
from racecheck.frontends import launching
from racecheck.frontends.interrupts import as_interrupt
from racecheck.kernel import libc
from racecheck.model import config
from racecheck.model.errors import CannotRun, InternalError, UsageError
from racecheck.model.nouns import Invariant
from racecheck.processes.doctor import examination
from racecheck.scheduling import strategies
from racecheck.targets.launched import Launched
from racecheck.targets.scenarios import make_world

_MAIN = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from racecheck.frontends.apart import main; main()"
_PR_SET_PDEATHSIG = 1
_ERRORS = {"UsageError": UsageError, "CannotRun": CannotRun}


@dataclass(frozen=True, slots=True)
class Asked:
    """A search of a launch command: its world's ``changes``, and what else `Search` takes."""

    command: Sequence[str]
    watch: Path
    start: Path | None
    resume_with: str | None
    changes: dict[str, Any]
    invariants: Sequence[Invariant]
    search: dict[str, Any]


def ask(scenario: Launched, changes: dict[str, Any], invariants: Sequence[Invariant], **search: Any) -> Asked:
    """Return the search of a launch command; ``search`` is what `Search` takes beside the scenario and its world."""
    again = scenario.resumed_by(changes.get("faults"))
    every = {**scenario.changes, **changes}
    return Asked(scenario.command, scenario.watch, scenario.start, again, every, tuple(invariants), search)


def explore_apart(asked: Asked, directory: Path, announce: Callable[[Report], None]) -> Report:
    """Return the report of a search, made by a process that runs in a directory; ``announce`` gets a FAIL at once.

    Ctrl-C ends the search, and what was found is kept.  Raises `UsageError`; `CannotRun`, also for an internal error.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _MAIN, json.dumps([each or os.getcwd() for each in sys.path])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=directory,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin as questions, process.stdout as answers:
        try:
            pickle.dump(asked, questions)
            questions.flush()
            while True:
                try:
                    what, value = _next(answers)
                except KeyboardInterrupt:
                    process.terminate()
                    what, value = _last(answers)
                if what in _ERRORS:
                    raise _ERRORS[what](value)
                if what == "report":
                    report: Report = value
                    return report
                announce(value)
        except BaseException:
            process.terminate()
            raise


def _next(answers: IO[bytes]) -> tuple[str, Any]:
    """Return the next answer of our own process."""
    try:
        found: tuple[str, Any] = pickle.load(answers)  # noqa: S301  (the pipe leads to a process that only we could start, and that runs this file)
    except EOFError:
        raise CannotRun("the process that runs the launch command was killed, or ran out of memory") from None
    return found


def _last(answers: IO[bytes]) -> tuple[str, Any]:
    """Return the answer of our own process after it was told to end: what it has found by then, if anything."""
    try:
        return _next(answers)
    except CannotRun:
        raise KeyboardInterrupt from None


def main() -> None:
    """Answer the search on standard input; what it prints goes to standard error."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)

        def answer(what: str, value: Any) -> None:
            pickle.dump((what, value), answers)
            answers.flush()

        asked: Asked = pickle.load(sys.stdin.buffer)  # noqa: S301  (standard input is the pipe of `explore_apart`)
        try:
            with as_interrupt(signal.SIGTERM):
                answer("report", _explore(asked, lambda report: answer("announced", report)))
        except KeyboardInterrupt:
            return
        except (UsageError, CannotRun) as error:
            answer(type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001  (the process that asked reports it, whatever it is)
            traceback.print_exc()
            is_known = isinstance(error, InternalError)
            answer("CannotRun", str(error if is_known else InternalError(f"{type(error).__name__}: {error}")))


def _explore(asked: Asked, announce: Callable[[Report], None]) -> Report:
    settings = config.read()
    program, starting = launching.prepare(asked.command, asked.watch, asked.start, asked.resume_with, settings)
    with starting:
        world = make_world(program.world, **asked.changes)
        launching.check(program, world, free=False)
        search = Search(program, world, asked.invariants, findings=Path.cwd() / settings.findings, **asked.search)
        strategies.make(search.strategy, world, None)
        with examination.ready(starting) as session:
            return explore(session, search, announce=announce)
