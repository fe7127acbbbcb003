"""The checks of a checkpointer, one after the other, each to its end."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from racecheck.explore.current_session import Sessions
from racecheck.explore.recovery.judge import AS_IT_IS
from racecheck.explore.reports import Report
from racecheck.explore.runner import undisturbed
from racecheck.explore.runs.runs import Runs
from racecheck.explore.runs.workers import Workers
from racecheck.explore.search import EXPLAIN
from racecheck.gate import trial
from racecheck.gate.cells import CUT, Broken, Cell
from racecheck.gate.defects import defect, place_and_sentence
from racecheck.gate.effort import EFFORTS, Effort, EffortExtent, extent
from racecheck.gate.grouping import leading
from racecheck.gate.parts import Part
from racecheck.gate.subjects import Subject
from racecheck.gate.tasks import CheckTask, Terms, share
from racecheck.invariants import name_of
from racecheck.model.errors import CannotRun, InternalError, UsageError, is_interrupt
from racecheck.model.nouns import Outcome, Verdict, World
from racecheck.report import fault_table
from racecheck.report.results import Page, search_text, shown_path
from racecheck.report.words import count, duration
from racecheck.targets.suite import CHECKS, TRIAL, Check

Show = Callable[[str], None]
"""Takes a line about the progress."""


class Judging:
    """A checkpointer under the checks; ``show`` takes lines that replace each other, ``say`` lines that stay.

    ``part`` is the shard that takes some of the checks; None: all.
    """

    def __init__(
        self,
        subject: Subject,
        sessions: Sessions,
        terms: Terms,
        show: Show = lambda _: None,
        say: Show = lambda _: None,
        workers: Workers | None = None,
        part: Part | None = None,
    ) -> None:
        self._part = part or Part()
        self._subject, self._sessions, self._terms, self._show, self._say = subject, sessions, terms, show, say
        self._effort = EFFORTS[terms.effort]
        self._run = 0.0
        self._until = time.monotonic() + terms.seconds if terms.seconds else math.inf
        self._base: Outcome | None = None
        self._reports: dict[str, Report] = {}
        self._tasks = Runs(sessions.use, subject.scenario(TRIAL).reference, workers)

    def cells(self, asked: Sequence[Check], known: Mapping[str, Cell] | None = None) -> Iterator[Cell]:
        """Return a cell for each check, and another one for those whose failure is then explained.

        ``known`` are cells of an earlier time, by check.  Where the checkpointer cannot be judged at all there is one
        cell, which says why.  Raises `UsageError` for a class that is no checkpointer, or fails without any race.
        """
        known = known or {}
        fresh = [each for each in asked if each.name not in known]
        if not fresh:
            return
        self._tasks.begin()
        reason = self._subject.missing or self._try()
        if reason:
            if self._part.number == 1:
                yield self._cell(CHECKS[trial.cell_of(self._subject.kind)], reasons=(reason,))
            return
        costs = {each.name: float(self._extent(self._effort, [each]).runs) for each in fresh}
        mine = self._part.of(costs)
        fresh = [each for each in fresh if each.name in mine]
        self._announce(fresh)
        found = []
        for number, check in enumerate(fresh):
            task = CheckTask(self._subject, check.name, self._terms, self._until)
            self._tasks.submit(number, task, costs[check.name])
        for number, check in enumerate(fresh):
            found.append(self._judged(check, number, f"{number + 1} of {count(len(fresh), 'check')}"))
            yield found[-1]
        due = [(each, self._reports[each.check]) for each in self._to_explain(found) if each.check in self._reports]
        seconds = min(EXPLAIN, self._left())
        for number, (cell, report) in enumerate(due, len(fresh)):
            self._tasks.submit(number, CheckTask(self._subject, cell.check, self._terms, self._until, report, seconds))
        for number, (cell, _) in enumerate(due, len(fresh)):
            yield self._explained(CHECKS[cell.check], number, cell)

    def _try(self) -> str:
        """Return why it cannot be judged at all, or ""; raises `UsageError` for a class that is no checkpointer."""
        self._show(f"{self._subject.name}: trial run")
        check = CHECKS[trial.base_of(self._subject.kind)]
        scenario, world = self._subject.scenario(check), replace(self._world(check), faults=())
        try:
            with self._sessions.use() as session:
                single = self._subject.scenario(TRIAL)
                alone, _ = undisturbed(session, single, single.world, seed=self._terms.seed)
                base, self._run = undisturbed(session, scenario, world, seed=self._terms.seed)
                share(session, self._subject, check, world, base)
        except CannotRun as error:
            return str(error)
        wrong = trial.misuse(base) or trial.misuse(alone)
        reason = trial.reason(base)
        if not reason:
            wrong = wrong or trial.by_itself(self._subject.kind.__name__, base, alone)
        if wrong:
            raise UsageError(wrong)
        self._base = base
        return reason

    def _announce(self, checks: Sequence[Check]) -> None:
        """Name the checks, and about how long they take here."""
        due = self._extent(self._effort, checks)
        said = f"{self._effort.name}: {_extent(due, self._run)}"
        quick = EFFORTS["quick"]
        less = quick.checks(checks)
        if self._effort is not quick and len(less) < len(checks):
            said += f"; --effort {quick.name}: {_extent(self._extent(quick, less), self._run)}"
        self._say(f"{self._subject.name}: {said}")

    def _extent(self, effort: Effort, checks: Sequence[Check]) -> EffortExtent:
        assert self._base is not None, "a trial comes before the checks"
        return sum((extent(effort, each, self._world(each), self._base) for each in checks), EffortExtent())

    def _judged(self, check: Check, number: int, note: str) -> Cell:
        """Return the cell of a check, which is UNKNOWN if the time was up before its end."""
        due = self._extent(self._effort, [check]).runs * self._run
        if self._left() <= 0 and not self._tasks.is_done(number):
            return replace(self._cell(check, reasons=(self._cut,)), needs=due)
        report = self._result(number, check, note)
        if isinstance(report, str):
            return self._cell(check, reasons=(report,))
        if report.interrupted:
            raise KeyboardInterrupt
        self._reports[check.name] = report
        made = cell(self._subject, check, report)
        if not report.is_late or made.exhaustive:
            return made
        reasons = [each for each in made.reasons if not each.startswith("never reached: ")]
        return replace(
            made, verdict=max(made.verdict, Verdict.UNKNOWN), reasons=(*reasons, self._cut),
            needs=max(1.0, due - report.seconds),
        )  # fmt: skip

    @property
    def _cut(self) -> str:
        return f"{CUT} {self._terms.seconds:g}"

    def _to_explain(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the failing cells that are to be explained: the leading ones of the gravest defects."""
        return [each for name in leading(cells)[: self._effort.explained] for each in cells if each.check == name]

    def _explained(self, check: Check, number: int, cell: Cell) -> Cell:
        if self._left() <= 0:
            return cell
        fresh = self._result(number, check, "explained")
        if isinstance(fresh, str):
            return cell
        return explained_cell(cell, fresh)

    def _result(self, number: int, check: Check, note: str) -> Report | str:
        """Return the result of a check, or why there is none."""

        def tell(done: int, _: int, seconds: float, more: str) -> None:
            rate = f"{count(done, 'schedule')}, {done / max(seconds, 0.01):.1f} a second"
            left = f"at most {max(0.0, self._left()):.0f} s left" if self._terms.seconds else ""
            self._show(", ".join(filter(None, [f"{self._subject.name}: {check.name}", note, left, rate, more])))

        tell(0, 0, 0.0, check.about)
        try:
            report: Report | str = self._tasks.result(number, tell)
        except (CannotRun, InternalError) as error:
            if is_interrupt(error):
                raise KeyboardInterrupt from None
            return str(error)
        except Exception as error:  # noqa: BLE001  (an error of ours in one check must not end the others)
            if is_interrupt(error):
                raise KeyboardInterrupt from None
            traceback.print_exc()
            return str(InternalError(f"{type(error).__name__}: {error}"))
        return report

    def _world(self, check: Check) -> World:
        return self._terms.world(self._subject, check)

    def _left(self) -> float:
        """Return the seconds until the limit, infinity if there is none."""
        return self._until - time.monotonic()

    def _cell(self, check: Check, reasons: tuple[str, ...]) -> Cell:
        return _unknown(self._subject, check, reasons)


def cell(subject: Subject, check: Check, report: Report) -> Cell:
    """Return the cell of a search."""
    return of_report(_unknown(subject, check, ()), report)


def of_report(blank: Cell, report: Report) -> Cell:
    """Return the cell of a search; ``blank`` is of the same check before anything was known."""
    return replace(
        blank,
        reasons=tuple(report.reasons),
        verdict=report.verdict,
        broken=_broken(report),
        schedules=report.schedules,
        claim=report.claim,
        tried=tuple(report.tried),
        faults=tuple(fault_table.rows(report.struck)),
        seconds=report.seconds,
        text=_text(report) if report.verdict is Verdict.FAIL else "",
    )


def explained_cell(cell: Cell, fresh: Report) -> Cell:
    """Return a failing cell with the explanation of its first failing run."""
    if fresh.verdict is not Verdict.FAIL:
        return cell
    return replace(
        cell, broken=_retold(cell.broken, fresh), text=_text(fresh), repair=_repair(fresh),
        seconds=cell.seconds + fresh.seconds,
    )  # fmt: skip


def _unknown(subject: Subject, check: Check, reasons: tuple[str, ...]) -> Cell:
    """Return the cell of a check that nothing is known of."""
    return Cell(
        subject.name, check.name, check.storage, subject.versions, Verdict.UNKNOWN,
        asked=tuple(name_of(each) for each in check.invariants), reasons=reasons, against=subject.against(check),
    )  # fmt: skip


def _extent(due: EffortExtent, run: float) -> str:
    faults = f", about {count(due.faults, 'fault')}" if due.faults else ""
    return f"{count(due.checks, 'check')}{faults}, about {duration(due.runs * run)}"


def _repair(report: Report) -> str:
    """Return the smallest repair of the code under which no crash state breaks anything, "" if none is known."""
    holds = [name for name, each in report.repaired.items() if name != AS_IT_IS and not each.bad and each.judged]
    return min(holds, key=lambda name: (name.count(","), len(name)), default="")


def _text(report: Report) -> str:
    """Return a search as text, without the table of its faults, which has a place of its own."""
    return search_text(replace(report, struck=()), report.schedules, Page())


def _retold(broken: Sequence[Broken], explained: Report) -> tuple[Broken, ...]:
    """Return the broken invariants, with messages and findings from the explanation of the first failing run.

    The smallest run may have another decisive op, so the defect stays as it was first found.
    """
    first = {each.violation.invariant: each for each in reversed(explained.violations)}
    retold = []
    for each in broken:
        fresh = first.pop(each.invariant, None)
        finding = shown_path(fresh.finding) if fresh is not None and fresh.finding is not None else each.finding
        if fresh is None or fresh.outcome is None:
            retold.append(each)
            continue
        place, said = place_and_sentence(fresh.violation, fresh.outcome)
        retold.append(replace(each, message=fresh.violation.message, finding=finding, place=place, sentence=said))
    return tuple(retold)


def _broken(report: Report) -> tuple[Broken, ...]:
    """Return each invariant that does not hold, once for each defect that breaks it, as it was first seen."""
    found: dict[tuple[str, str], Broken] = {}
    for each in (*report.violations, *(one for ending in report.endings for one in ending.violations)):
        name = each.violation.invariant
        what = defect(each.violation, each.outcome) if each.outcome is not None else ""
        finding = shown_path(each.finding) if each.finding is not None else ""
        if (name, what) not in found:
            place, said = place_and_sentence(each.violation, each.outcome) if each.outcome is not None else ("", "")
            found[name, what] = Broken(name, each.violation.message, finding, what, each.unkept, place, said)
    return tuple(found.values())
