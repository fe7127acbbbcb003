"""Checks as tasks, which this process carries out, or a worker."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path
from weakref import WeakKeyDictionary

from racecheck.explore.reports import Report
from racecheck.explore.requests import KnownRecoveries, Search
from racecheck.explore.runner import Progress
from racecheck.explore.search import explained, explore
from racecheck.gate import effort as efforts
from racecheck.gate.effort import EFFORTS
from racecheck.gate.subjects import Subject
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Outcome, World
from racecheck.sessions.session import Session
from racecheck.targets.scenarios import make_world
from racecheck.targets.suite import CHECKS, Check


@dataclass(frozen=True, slots=True)
class Terms:
    """How cells are made.

    That is the size of the worlds (None: as each check has it), the seed, how much is tried (`EFFORTS`), the most
    seconds for each checkpointer (0: no limit), where findings go (None: nowhere), and how early collectives return.
    """

    ranks: int | None = None
    seed: str = "0"
    effort: str = efforts.DEFAULT
    seconds: float = 0.0
    findings: Path | None = None
    collectives: str = "gloo"

    def world(self, subject: Subject, check: Check) -> World:
        """Return the world of a check."""
        return make_world(subject.world(check, self.ranks), collectives=self.collectives)


@dataclass(slots=True)
class _SharedState:
    """The state that checks of a checkpointer share in a session."""

    bases: dict[Hashable, Outcome] = field(default_factory=dict)
    """Undisturbed runs, by checkpointer, functions and world: checks that do the same share them."""
    recoveries: dict[Hashable, KnownRecoveries] = field(default_factory=dict)


_SHARED: WeakKeyDictionary[Session, _SharedState] = WeakKeyDictionary()


def share(session: Session, subject: Subject, check: Check, world: World, base: Outcome) -> None:
    """Keep an undisturbed run for other checks that do the same."""
    _SHARED.setdefault(session, _SharedState()).bases.setdefault(_does(subject, check, world), base)


def _does(subject: Subject, check: Check, world: World) -> Hashable:
    return subject.kind, check.run, check.recover, check.recovering, replace(world, faults=())


@dataclass(frozen=True, slots=True)
class CheckTask:
    """Make a check; its result is the report, or why there is none.

    ``until`` is the moment of `time.monotonic`, which is one for all processes, when the time is up.  ``report`` is of
    the check, if its failure is to be explained.
    """

    subject: Subject
    check: str
    terms: Terms
    until: float = math.inf
    report: Report | None = None
    seconds: float = 0.0
    """How much time an explanation may take."""

    def run(self, session: Session, tell: Progress | None = None) -> Report | str:
        """Make the check; raises `CannotRun`."""
        check = CHECKS[self.check]
        world = self.terms.world(self.subject, check)
        search = self._search(session, check, world)
        try:
            if self.report is not None:
                given = replace(search, strategy=self.report.strategy, seconds=self.seconds, explain=self.seconds)
                return explained(session, given, self.report, tell)
            report = explore(session, search, tell)
        except UsageError as error:
            return str(error)
        if report.endings and not report.interrupted:
            share(session, self.subject, check, world, report.endings[0].outcome)
        return report

    def _search(self, session: Session, check: Check, world: World) -> Search:
        shared = _SHARED.setdefault(session, _SharedState())
        left = self.until - time.monotonic()
        return replace(
            EFFORTS[self.terms.effort].search(self.subject.scenario(check), world), seed=self.terms.seed,
            seconds=max(0.001, left) if self.until < math.inf else 0.0, findings=self.terms.findings,
            base=shared.bases.get(_does(self.subject, check, world)),
            recoveries=shared.recoveries.setdefault((self.subject.kind, check.recover, check.recovering), {}),
        )  # fmt: skip
