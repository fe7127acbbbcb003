"""Explore launch commands in a process of their own: covering this machine's files covers those of a whole process."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.frontends import launching
from racecheck.frontends.interrupts import as_interrupt
from racecheck.frontends.launching import LastingCover
from racecheck.kernel import libc
from racecheck.model import config
from racecheck.model.errors import CannotRun, InternalError, UsageError
from racecheck.model.nouns import Invariant
from racecheck.scheduling import strategies
from racecheck.targets.launched import Launched, places_of
from racecheck.targets.resolve import invariant as load_invariant
from racecheck.targets.scenarios import make_world

_MAIN = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from racecheck.frontends.apart import main; main()"
_PR_SET_PDEATHSIG = 1
_CURRENT_TEST = "PYTEST_CURRENT_TEST"
_ERRORS = {"UsageError": UsageError, "CannotRun": CannotRun}


@dataclass(frozen=True, slots=True)
class AskedSearch:
    """A search of a launch command: its world's ``changes``, and the other arguments of `Search`.

    ``invariants`` are racecheck's, and ``asks`` the places of the user's own.
    """

    command: Sequence[str]
    watch: Path
    start: Path | None
    resume_with: str | None
    changes: dict[str, Any]
    invariants: Sequence[Invariant]
    asks: Sequence[str]
    search: dict[str, Any]


def ask(scenario: Launched, changes: dict[str, Any], invariants: Sequence[Invariant], **search: Any) -> AskedSearch:
    """Return the search of a launch command; ``search`` are the other arguments of `Search`."""
    again = scenario.resumed_by(changes.get("faults"))
    every = {**scenario.changes, **changes}
    own = places_of(invariants)
    known = tuple(each for each in invariants if each not in own.values())
    return AskedSearch(scenario.command, scenario.watch, scenario.start, again, every, known, [*own], search)


class Apart:
    """A process that runs in a directory and explores one launch command after another; it starts at first use.

    It shares this process's environment and import path; if they have changed, another one starts.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._surroundings: tuple[list[str], dict[str, str]] = ([], {})

    def explore(self, asked: AskedSearch, announce: Callable[[Report], None]) -> Report:
        """Return the report of a search; ``announce`` gets a FAIL at once.

        Ctrl-C ends the search and keeps its findings.  Raises `UsageError`; `CannotRun`, also for an internal
        error.
        """
        try:
            return self._explore(self._started(), asked, announce)
        except UsageError:
            raise
        except BaseException:
            self.close()
            raise

    def _explore(
        self, process: subprocess.Popen[bytes], asked: AskedSearch, announce: Callable[[Report], None]
    ) -> Report:
        questions, answers = process.stdin, process.stdout
        assert questions is not None
        assert answers is not None
        with suppress(BrokenPipeError):  # the answer says why
            questions.write(pickle.dumps(asked))
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
                if report.interrupted or report.is_cut_short:
                    self.close()
                return report
            announce(value)

    def _started(self) -> subprocess.Popen[bytes]:
        path = [each or os.getcwd() for each in sys.path]
        surroundings = path, {name: each for name, each in os.environ.items() if name != _CURRENT_TEST}
        if self._process is not None and (self._surroundings != surroundings or self._process.poll() is not None):
            self.close()
        if self._process is None:
            self._surroundings = surroundings
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, json.dumps(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=self._directory,
                start_new_session=True,
            )
        return self._process

    def close(self) -> None:
        """End the process and its descendants."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
            process.wait()


def _next(answers: IO[bytes]) -> tuple[str, Any]:
    """Return the next answer of our own process."""
    try:
        found: tuple[str, Any] = pickle.load(answers)  # noqa: S301  (the pipe leads to a process that only we could start, and that runs this file)
    except EOFError:
        raise CannotRun("the process that runs the launch command was killed, or ran out of memory") from None
    return found


def _last(answers: IO[bytes]) -> tuple[str, Any]:
    """Return the answer of our own process after it was told to end: its results so far, if any."""
    try:
        return _next(answers)
    except CannotRun:
        raise KeyboardInterrupt from None


def main() -> None:
    """Answer the searches on standard input; prints go to standard error."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    with os.fdopen(os.dup(1), "wb") as answers, suppress(KeyboardInterrupt), as_interrupt(signal.SIGTERM):
        os.dup2(2, 1)

        def answer(what: str, value: Any) -> None:
            pickle.dump((what, value), answers)
            answers.flush()

        with closing(LastingCover(config.read())) as cover:
            while (asked := _asked()) is not None and _answer(asked, cover, answer):
                pass


def _asked() -> AskedSearch | None:
    """Return the next search, None when there will be no more."""
    try:
        asked: AskedSearch = pickle.load(sys.stdin.buffer)  # noqa: S301  (standard input is the pipe of `Apart`)
    except EOFError:
        return None
    return asked


def _answer(asked: AskedSearch, cover: LastingCover, answer: Callable[[str, Any], None]) -> bool:
    """Make a search; return whether this process can make another one."""
    try:
        answer("report", _explore(asked, cover, lambda report: answer("announced", report)))
    except UsageError as error:
        answer(type(error).__name__, str(error))
    except CannotRun as error:
        answer(type(error).__name__, str(error))
        return False
    except Exception as error:  # noqa: BLE001  (the process that asked reports it, whatever it is)
        traceback.print_exc()
        is_known = isinstance(error, InternalError)
        answer("CannotRun", str(error if is_known else InternalError(f"{type(error).__name__}: {error}")))
        return False
    return True


def _explore(asked: AskedSearch, cover: LastingCover, announce: Callable[[Report], None]) -> Report:
    invariants = (*asked.invariants, *map(load_invariant, asked.asks))
    program, starting = launching.prepare(asked.command, asked.watch, asked.start, asked.resume_with, cover, asked.asks)
    with starting:
        world = make_world(program.world, **asked.changes)
        launching.check(program, world, free=False)
        search = Search(program, world, invariants, findings=cover.findings, **asked.search)
        strategies.make(search.strategy, world, None)
        with starting.lent() as session:
            return explore(session, search, announce=announce)
