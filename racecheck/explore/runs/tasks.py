"""Tasks: work that can be sent to a worker, and whose result comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from racecheck.explore.requests import RunRequest
from racecheck.explore.runner import Progress, run, warm_up
from racecheck.model.nouns import Outcome
from racecheck.processes.session import Session
from racecheck.scheduling.strategies import Strategy

R_co = TypeVar("R_co", covariant=True)


class Task(Protocol[R_co]):
    """Work that follows from nothing but itself; it can be pickled."""

    def run(self, session: Session, tell: Progress | None = None) -> R_co: ...


@dataclass(frozen=True, slots=True)
class OneRun:
    """Make one run; its result is the outcome, and the steering as it is after the run."""

    request: RunRequest

    def run(self, session: Session, tell: Progress | None = None) -> tuple[Outcome, Strategy]:
        """Make the run, in a session that may never have met the scenario."""
        del tell
        warm_up(session, self.request)
        return run(session, self.request), self.request.steering
