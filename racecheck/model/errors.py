"""The errors that racecheck raises.

    RacecheckError
    |-- UsageError        wrong usage or input: the text says what to do (exit status 2)
    |-- CannotRun         this machine or this target cannot be controlled (exit status 3, UNKNOWN)
    `-- InternalError     our own bug: please report it

A bug in the code under test is none of these: it is a finding.  Whatever ends a run from within
(a strategy that has seen enough, Ctrl-C) derives from ``BaseException``, so that code under test
cannot swallow it.
"""

from __future__ import annotations


class RacecheckError(Exception):
    """Base of all errors that racecheck raises on purpose."""


class UsageError(RacecheckError):
    """Wrong usage or input; the message is one line and says what to do."""


class CannotRun(RacecheckError):
    """Something outside racecheck prevents a controlled run; the verdict is UNKNOWN, never PASS."""


class InternalError(RacecheckError):
    """A broken assumption of racecheck itself."""

    def __str__(self) -> str:
        return f"{super().__str__()} (this is a bug in racecheck: please report it)"


class OutOfTime(BaseException):
    """A run has taken longer than its search may take."""


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether an error is Ctrl-C's, also where the clean-up after it failed."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False
