"""Searches: explore a scenario, and explain how it fails."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from racecheck.explore.explaining import FEWEST, completed, confirmed
from racecheck.explore.exploration import Exploration, found_before
from racecheck.explore.reports import Report, first_failing, is_of_crash
from racecheck.explore.requests import Search
from racecheck.explore.resume import Past
from racecheck.explore.runner import Progress
from racecheck.explore.runs.workers import Workers
from racecheck.model.errors import CannotRun, InternalError, OutOfTime
from racecheck.model.nouns import Verdict
from racecheck.scheduling.claims import Claim
from racecheck.scheduling.explain import INTERRUPTED
from racecheck.sessions.session import Session

EXPLAIN = 15.0
"""Seconds of processor time that an explanation may take, unless asked otherwise."""
LEAST = 5.0
"""Seconds that a search has for its first run, however few it may take."""


def explore(
    session: Session,
    search: Search,
    progress: Progress | None = None,
    announce: Callable[[Report], None] | None = None,
    workers: Workers | None = None,
) -> Report:
    """Run until something fails, nothing is left to try, or the budget is spent; Ctrl-C keeps what was found.

    ``announce`` is called with a FAIL before its explanation.  ``workers`` help, and the result is the same.  Raises
    `UsageError` or `CannotRun` where no run was possible.
    """
    if search.earlier is not None:
        search = replace(search, names=search.earlier.names)
    exploration = Exploration(session, search, workers)
    try:
        _carry_out(exploration, progress)
        report = exploration.report()
        if (
            search.explain <= 0
            or search.free
            or report.interrupted
            or first_failing(report.endings, search.until) is None
        ):
            return report
        try:
            if announce is not None and report.verdict is Verdict.FAIL:
                announce(report)
            return completed(exploration, report, progress)
        except KeyboardInterrupt:
            return replace(report, left_out=f"all of it ({INTERRUPTED})")
    finally:
        exploration.crashing.close()


def _carry_out(exploration: Exploration, progress: Progress | None) -> None:
    seconds = exploration.search.seconds
    until = time.monotonic() + max(seconds, LEAST) if seconds else math.inf
    try:
        with exploration.session.limited(until):
            if not exploration.search.free:
                exploration.rehearse()
            exploration.run(progress)
    except OutOfTime:
        exploration.is_late = True
        exploration.strategy.abandon()
    except (CannotRun, InternalError) as error:
        exploration.stop(error)


def explained(session: Session, search: Search, report: Report, progress: Progress | None = None) -> Report:
    """Explain the failure in the report of an earlier search for the same, and return the report with the explanation.

    After a crash the search is made once more.  Raises `UsageError`, `CannotRun`, and `KeyboardInterrupt`.
    """
    names = report.outcome.names if report.outcome is not None else ()
    exploration = Exploration(session, replace(search, names=names, keep_going=False))
    try:
        exploration.rehearse()
        if is_of_crash(report):
            exploration.run(progress)
            report = exploration.report()
        else:
            report = confirmed(exploration, report)
        if not report.interrupted and report.verdict is Verdict.FAIL:
            report = completed(exploration, report, progress, most=FEWEST)
        if report.interrupted or report.is_cut_short:
            raise KeyboardInterrupt
        return report
    finally:
        exploration.crashing.close()


def unrun(search: Search, so_far: tuple[int, int, float], error: CannotRun) -> Report:
    """Return the report of a search that could not continue, with its schedules, distinct schedules and seconds.

    What was found before it was cut stays found.
    """
    past = search.earlier.past if search.earlier is not None else Past()
    done, distinct, seconds = so_far
    return Report(
        search.scenario.target, max(Verdict.UNKNOWN, past.verdict), search.world, search.seed,
        "free" if search.free else search.strategy, past.runs + done, max(distinct, len(past.seen)), seconds, 0,
        claim=past.claim.join(Claim(doubts=(str(error),))), violations=found_before(past),
        reasons=(*past.reasons, str(error)), coverage=past.coverage,
    )  # fmt: skip
