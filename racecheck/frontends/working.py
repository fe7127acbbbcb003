"""Work that takes a session: its progress display, and how it may end."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO, TypeVar

import click
from rich.console import Console
from rich.status import Status
from rich.text import Text

from racecheck.frontends.interrupts import Interrupted
from racecheck.frontends.printing import printable, say
from racecheck.model.errors import CannotRun, InternalError, RacecheckError, is_interrupt
from racecheck.report.words import count, escape, fit

if TYPE_CHECKING:
    from racecheck.sessions.doctor.examination import Starting
    from racecheck.sessions.session import Session

T = TypeVar("T")


_SPINNER = 3
"""The width of the text before the line."""
_KNOWN = 10
"""The fewest runs that say how long the others take."""
_EVERY = 30.0
"""Seconds between lines of progress in a log."""


@dataclass(slots=True)
class Counter:
    """How far it got: runs done of ``total``, and of those the ones that count as ``what``.

    ``limit`` is the time in seconds after which it ends anyway, 0 for none.
    """

    unit: str
    what: str
    total: int
    done: int = 0
    counted: int = 0
    seconds: float = 0.0
    limit: float = 0.0

    def __str__(self) -> str:
        return f"{self.done} of {count(self.total, self.unit)}, {self.counted} {self.what}"

    @property
    def left(self) -> str:
        """Return how much longer it takes at most, as text; "" while that cannot be said."""
        found = [self.limit - self.seconds] if self.limit else []
        if self.done >= _KNOWN and self.seconds and self.total > self.done:
            found.append((self.total - self.done) * self.seconds / self.done)
        return f"at most {max(0.0, min(found)):.0f} s more" if found else ""


class Teller:
    """Shows the progress of work, and prints to standard output before the work has ended."""

    def __init__(self, counter: Counter, show: Display, out: TextIO) -> None:
        self._counter, self._show, self._out = counter, show, out

    def __call__(self, done: int, counted: int, seconds: float, note: str) -> None:
        counter = self._counter
        counter.done, counter.counted, counter.seconds = done, counted, seconds
        self._show(", ".join(filter(None, [str(counter), counter.left, note])))

    def say(self, text: str) -> None:
        """Print and flush a text."""
        with self._show.paused(), redirect_stdout(self._out):
            say(text)


def with_session(
    starting: Starting, work: Callable[[Session, Teller], T], counter: Counter, what: str = "starting"
) -> T:
    """Return the result of ``work``, given the session when it has started, and a way to report progress.

    ``what`` is said until then.

    Everything that ``work`` prints goes to standard error.  Raises `UsageError`; `CannotRun`, also for an internal
    error, after its traceback has gone to standard error; and `Interrupted`.
    """
    out = sys.stdout
    try:
        with (
            redirect_stdout(sys.stderr),
            display(f"{what}; importing torch") as show,
            starting.lent() as session,
        ):
            return work(session, Teller(counter, show, out))
    except BaseException as error:
        if is_interrupt(error):
            raise Interrupted(f"interrupted after {counter}") from None
        if isinstance(error, InternalError):
            raise CannotRun(str(error)) from error
        if isinstance(error, RacecheckError) or not isinstance(error, Exception):
            raise
        click.echo(printable(traceback.format_exc()), err=True)
        raise CannotRun(str(InternalError(f"{type(error).__name__}: {error}"))) from error


@contextmanager
def display(text: str) -> Iterator[Display]:
    """Show a line about the progress; call the result to change it.

    If standard error is not a terminal, as in CI, print a line every few seconds.
    """
    if not sys.stderr.isatty():
        yield _Lines(sys.stderr)
        return
    with Status(Text(text), console=Console(stderr=True)) as status:
        yield _Live(status)


class Display(Protocol):
    """Shows a text; ``paused``: another writer uses the terminal meanwhile."""

    def __call__(self, text: str) -> None: ...

    def paused(self) -> AbstractContextManager[None]: ...


class _Live:
    """Show the text in place, in one line."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def __call__(self, text: str) -> None:
        self._status.update(Text(fit(escape(text), self._status.console.width - _SPINNER)))

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._status.stop()
        try:
            yield
        finally:
            self._status.start()


class _Lines:
    """Prints progress in a log, now and then."""

    def __init__(self, log: TextIO) -> None:
        self._log, self._said = log, time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._said >= _EVERY:
            self._said = time.monotonic()
            with suppress(OSError):
                print(escape(text), file=self._log, flush=True)

    def paused(self) -> AbstractContextManager[None]:
        return nullcontext()
