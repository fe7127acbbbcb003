"""Work that takes a session: what is shown while it lasts, and how it may end."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

import click
from rich.console import Console
from rich.status import Status
from rich.text import Text

from racecheck.model.errors import CannotRun, InternalError, RacecheckError
from racecheck.processes.doctor import examination
from racecheck.report.words import count

if TYPE_CHECKING:
    from racecheck.explore.runner import Progress
    from racecheck.processes.session import Session

T = TypeVar("T")


_EVERY = 15.0
"""Seconds between lines of progress in a log."""


class Interrupted(BaseException):
    """Ctrl-C; the text says how far it got."""


@dataclass(slots=True)
class Counter:
    """How far it got: runs done of ``total``, and of those the ones that count as ``what``."""

    unit: str
    what: str
    total: int
    done: int = 0
    counted: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.done} of {count(self.total, self.unit)}, {self.counted} {self.what}"

    @property
    def rate(self) -> str:
        """How many a second, as text."""
        return f"{self.done / self.seconds:.1f} a second" if self.seconds else ""


def with_session(base: Path, work: Callable[[Session, Progress], T], counter: Counter) -> T:
    """What ``work`` gives for a session of its own and a function to tell of its progress.

    What it prints goes to standard error.  Raises `UsageError`; `CannotRun`, also for an error of our own,
    whose traceback is then on standard error; and `Interrupted`.
    """
    try:
        with redirect_stdout(sys.stderr), display("starting torch") as show, examination.start(base) as session:
            return work(session, _teller(counter, show))
    except BaseException as error:
        if is_interrupt(error):
            raise Interrupted(f"interrupted after {counter}") from None
        if isinstance(error, InternalError):
            raise CannotRun(str(error)) from error
        if isinstance(error, RacecheckError) or not isinstance(error, Exception):
            raise
        traceback.print_exc()
        raise CannotRun(str(InternalError(f"{type(error).__name__}: {error}"))) from error


def _teller(counter: Counter, show: Callable[[str], None]) -> Progress:
    def tell(done: int, counted: int, seconds: float, note: str) -> None:
        counter.done, counter.counted, counter.seconds = done, counted, seconds
        show(", ".join(filter(None, [str(counter), counter.rate, note])))

    return tell


def is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is Ctrl-C's; also where what was interrupted failed in ending what it had begun."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def say(text: str) -> None:
    """On standard output, if somebody still reads it: the verdict is in the exit status too."""
    try:
        click.echo(printable(text))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def printable(text: str) -> str:
    """As standard output can show it."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


@contextmanager
def display(text: str) -> Iterator[Callable[[str], None]]:
    """A line that says what is going on; gives a function to change it.  Where standard error is no terminal, as in CI,
    a line each time so many seconds have passed.
    """
    if not sys.stderr.isatty():
        yield _Lines(sys.stderr)
        return
    with Status(Text(text), console=Console(stderr=True)) as status:
        yield lambda fresh: status.update(Text(fresh))


class _Lines:
    """Says in a log how far it is, now and then."""

    def __init__(self, log: TextIO) -> None:
        self._log, self._said = log, time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._said >= _EVERY:
            self._said = time.monotonic()
            with suppress(OSError):
                print(text, file=self._log, flush=True)
