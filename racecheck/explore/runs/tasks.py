"""Tasks: work that can be sent to a worker, and whose result comes back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol, TypeVar

from racecheck.explore.requests import RunRequest
from racecheck.explore.runner import Progress, run, warm_up
from racecheck.model.errors import CannotRun, InternalError
from racecheck.model.nouns import Outcome, Point
from racecheck.scheduling.strategies import Diverged, Strategy
from racecheck.scheduling.strategies.protocol import Answered, Prefix
from racecheck.sessions.session import Session

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


@dataclass(frozen=True, slots=True)
class Made:
    """A run of a proof; ``answers`` are its points, each with how many events came before it, and the answer."""

    prefix: Prefix
    answers: Sequence[tuple[int, Point, int]]
    outcome: Outcome

    @property
    def points(self) -> list[Answered]:
        return [(replace(point, trace=self.outcome.trace[:count]), index) for count, point, index in self.answers]


@dataclass(slots=True)
class _Noting(Strategy):
    """Another strategy, whose answers it notes."""

    inner: Strategy
    answers: list[tuple[int, Point, int]] = field(default_factory=list)

    def begin(self, rng: Random) -> bool:
        return self.inner.begin(rng)

    def choose(self, point: Point) -> int:
        index = self.inner.choose(point)
        self.answers.append((len(point.trace), replace(point, trace=()), index))
        return index


Subtree = tuple[Prefix, Strategy]
"""A subtree of a proof: its prefix, and the steering that makes its runs (`Strategy.subtrees`)."""


@dataclass(frozen=True, slots=True)
class MakeSubtrees:
    """Make runs of subtrees of a proof, one subtree after the other, until there are no more, or for some seconds.

    ``request`` is for any run.  The result is the runs, and the subtrees that are left.
    """

    request: RunRequest
    subtrees: Sequence[Subtree]
    seconds: float

    def run(self, session: Session, tell: Progress | None = None) -> tuple[list[Made], list[Subtree]]:
        """Make the runs.  An error ends a subtree: whoever makes that run in its turn meets the error again."""
        del tell
        warm_up(session, self.request)
        made, until = list[Made](), time.monotonic() + self.seconds
        for number, (root, steering) in enumerate(self.subtrees):
            with suppress(CannotRun, InternalError, Diverged):
                while steering.begin(Random(0)) and steering.prefix[: len(root)] == root:
                    made.append(self._made(session, steering))
                    if time.monotonic() >= until:
                        return made, [*steering.subtrees(), *self.subtrees[number + 1 :]]
        return made, []

    def _made(self, session: Session, steering: Strategy) -> Made:
        noting, prefix = _Noting(steering), steering.prefix
        outcome = run(session, replace(self.request, steering=noting))
        steering.end(outcome)
        return Made(prefix, noting.answers, outcome)
