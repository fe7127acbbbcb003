"""The explanation of a failing run that a search has found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from racecheck.explore.exploration import Exploration
from racecheck.explore.keeping import keep
from racecheck.explore.reports import Report, first_failing, is_of_crash, sized
from racecheck.explore.runner import Progress
from racecheck.invariants import judge
from racecheck.model.errors import CannotRun, InternalError
from racecheck.model.nouns import Verdict
from racecheck.scheduling.explain import MOST, explain
from racecheck.scheduling.minimise import repeated, same_failure

FEWEST = 30
"""The most runs of each step of an explanation where many failures are explained, as in the gate."""


_REPAIRS = "what would help"


def confirmed(exploration: Exploration, report: Report) -> Report:
    """Run the failing run again; return the report, with UNKNOWN if that run does not fail a second time."""
    first = first_failing(report.endings, exploration.search.until)
    if first is None or is_of_crash(report):
        return report
    fails = same_failure(first.outcome, first.violations[0].violation, exploration.search.invariants)
    try:
        repeated(first.outcome, exploration.attempt, fails)
    except (CannotRun, InternalError) as error:
        return replace(report, verdict=Verdict.UNKNOWN, reasons=(*report.reasons, str(error)))
    return report


def completed(exploration: Exploration, report: Report, progress: Progress | None, most: int = MOST) -> Report:
    """Explain a failure and return the report; it names the parts that the time limit or Ctrl-C cut short."""
    search = exploration.search
    if report.verdict is not Verdict.FAIL:
        return report
    seconds = min(search.explain, search.seconds - exploration.seconds if search.seconds else search.explain)
    if seconds <= 0:
        return replace(report, left_out="all of it (the time of the search was up)")
    try:
        if is_of_crash(report):
            return _repaired(exploration, report, progress, seconds)
        return _explained(exploration, report, progress, seconds, most)
    except (CannotRun, InternalError) as error:
        return replace(report, left_out=f"all of it ({error})")


def _repaired(exploration: Exploration, report: Report, progress: Progress | None, seconds: float) -> Report:
    """Return the report with the repair table of the first way in which a crash hurts."""
    crashes = next(each for each in report.crashes if each.groups)
    end = exploration.seconds + seconds
    repaired = exploration.crashing.repaired(crashes, _tell(exploration, report, progress), seconds=seconds)
    left_out = f"{_REPAIRS} ({seconds:.3g} seconds were too few)" if exploration.seconds >= end else ""
    first = first_failing(report.endings, exploration.search.until)
    if first is not None and first.outcome.crash is not None:
        found, judgement = first.violations[0], judge(first.outcome, exploration.search.invariants)
        keep(
            exploration.search, first.outcome, judgement, first.number, path=found.finding, repaired=repaired,
            claim=str(report.claim),
        )  # fmt: skip
    return replace(
        report, repaired=repaired, seconds=exploration.seconds, left_out=left_out, is_explained=not left_out
    )  # fmt: skip


def _tell(exploration: Exploration, report: Report, progress: Progress | None) -> Callable[[str], None]:
    def tell(what: str) -> None:
        if progress is not None:
            progress(report.schedules, report.distinct_schedules, exploration.seconds, f"FAIL; {what}")

    return tell


def _explained(
    exploration: Exploration, report: Report, progress: Progress | None, seconds: float, most: int
) -> Report:
    """Return the report of the smallest run found that fails like the first failing one."""
    search = exploration.search
    first = first_failing(report.endings, search.until)
    assert first is not None, "a search without a failing run has nothing to explain"
    passed = [each.outcome for each in report.endings if not each.violations]
    found = explain(
        first.outcome, first.violations[0].violation, search.invariants, exploration.attempt,
        seconds=seconds, seed=search.seed, passed=passed, most=most, tell=_tell(exploration, report, progress),
        clock=exploration.clock_of_explanations(),
    )  # fmt: skip
    judgement = judge(found.outcome, search.invariants)
    broken = {each.invariant for each in judgement.violations}
    is_like = all(each.violation.invariant in broken for each in first.violations)
    # The path that was announced stays valid: it now holds the least run, if that breaks all that the first did.
    path = first.violations[0].finding if is_like else None
    kept = keep(search, found.outcome, judgement, first.number, found, path, claim=str(report.claim))
    return replace(
        report, seconds=exploration.seconds, world=found.outcome.world, ops=found.outcome.coverage.ops,
        violations=(*kept, *(each for each in report.violations if each.outcome is None)),
        outcome=found.outcome, coverage=sized(report.coverage, found.outcome), explanation=found,
        is_explained=not found.left_out,
        left_out=f"{', '.join(found.left_out)} ({found.why})" if found.left_out else "",
    )  # fmt: skip
