"""The checks of a checkpointer, one by one, within a time."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from racecheck.crash.recovery.runs import CRASH_STATE
from racecheck.explore.current_session import Sessions
from racecheck.explore.runner import Progress, run_once
from racecheck.explore.search import Report, Search, explained, explore
from racecheck.gate import plan, trial
from racecheck.gate.cells import NO_TIME, SCANT, Broken, Cell
from racecheck.gate.defects import defect
from racecheck.gate.plan import Budget
from racecheck.gate.subjects import Subject
from racecheck.invariants import name_of
from racecheck.model.errors import CannotRun, InternalError, UsageError, is_interrupt
from racecheck.model.nouns import Verdict, World
from racecheck.processes.session import Session
from racecheck.report.results import Page, search_text, shown_path
from racecheck.report.words import count
from racecheck.scheduling.strategies import RoundRobin
from racecheck.targets.scenarios import make_world
from racecheck.targets.suite import CHECKS, Check

Show = Callable[[str], None]
"""Takes a line that says what is going on."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How cells are made.

    That is the size of the worlds (None: as each check has it), the seed, the seconds for each checkpointer, where
    findings go (None: nowhere), and how early collectives return.
    """

    ranks: int | None = None
    seed: str = "0"
    seconds: float = 300.0
    findings: Path | None = None
    collectives: str = "gloo"


class Judging:
    """A checkpointer under the checks."""

    def __init__(self, subject: Subject, sessions: Sessions, terms: Terms, show: Show = lambda _: None) -> None:
        self._subject, self._sessions, self._terms, self._show = subject, sessions, terms, show
        self._begun, self._run = time.perf_counter(), 0.0
        self._reports: dict[str, Report] = {}

    def cells(self, asked: Sequence[Check], known: Mapping[str, Cell] | None = None) -> Iterator[Cell]:
        """Return a cell for each check, and another one for those that there was time to look at again.

        ``known`` are cells of an earlier time, by check, which is gone on with.  Where the checkpointer cannot be
        judged at all there is one cell, which says why.  Raises `UsageError` for a class that is no checkpointer.
        """
        found = dict(known or {})
        if all(each.name in found and found[each.name].is_done for each in asked):
            return
        reason = self._subject.missing or self._try()
        if reason:
            yield self._cell(CHECKS[trial.CHECK], reasons=(reason,))
            return
        fresh = [each for each in asked if each.name not in found]
        for number, check in enumerate(fresh):
            found[check.name] = cell = self._first(check, number, len(fresh))
            yield cell
        open_ = [each for each in asked if not found[each.name].is_done]
        urgency = {each.name: _urgency(found[each.name]) for each in open_}
        open_.sort(key=lambda each: urgency[each.name])
        for number, check in enumerate(open_):
            after = sum(urgency[each.name] == urgency[check.name] for each in open_[number + 1 :])
            yield self._again(check, found[check.name], after)

    def _try(self) -> str:
        """Return why it cannot be judged at all, or ""; raises `UsageError` for a class that is no checkpointer."""
        self._show(f"{self._subject.name}: trial run")
        check = CHECKS[trial.CHECK]
        scenario, world, strategy = self._subject.scenario(check), self._world(check), RoundRobin()
        strategy.begin(Random(0))
        try:
            with self._sessions.use() as session:
                begun = time.perf_counter()
                outcome = run_once(session, scenario, world, strategy, seed=self._terms.seed)
                self._run = time.perf_counter() - begun
        except CannotRun as error:
            return str(error)
        wrong = trial.misuse(outcome)
        if wrong:
            raise UsageError(wrong)
        return trial.reason(outcome)

    def _first(self, check: Check, number: int, total: int) -> Cell:
        world, seconds = self._world(check), self._terms.seconds
        after = total - number - 1
        budget = plan.first(world, left=self._left(), after=after, total=total, seconds=seconds, run=self._run)
        if budget is None:
            return self._cell(check, reasons=(f"{NO_TIME} in {seconds:g} seconds",))
        cell = self._explored(check, budget, f"{number + 1} of {total} checks")
        return replace(cell, is_done=not (cell.verdict is Verdict.FAIL or _is_open(cell)))

    def _again(self, check: Check, cell: Cell, after: int) -> Cell:
        """Explain a failure, or search longer; ``after`` more are as urgent."""
        note = f"again, {count(after, 'check')} to go"
        if cell.verdict is Verdict.FAIL:
            return self._explained(check, cell, plan.explaining(left=self._left(), after=after), note)
        budget = plan.longer(
            left=self._left(), after=after, spent=cell.seconds, least=1 if cell.is_short else 2,
            due=sum(each.of for each in cell.tried if each.what != CRASH_STATE),
        )  # fmt: skip
        if budget is None:
            return replace(cell, is_done=True)
        both = cell.deepened(self._explored(check, budget, note))
        is_new = both.verdict is Verdict.FAIL
        return self._explained(check, both, plan.explaining(left=self._left(), after=after), note) if is_new else both

    def _explained(self, check: Check, cell: Cell, seconds: float, note: str) -> Cell:
        done, report = replace(cell, is_done=True), self._reports.get(check.name)
        if report is None or seconds <= 0:
            return done
        search = replace(self._search(check, Budget(report.strategy, report.schedules, seconds)), explain=seconds)
        fresh = self._attempt(lambda session, tell: explained(session, search, report, tell), check, note)
        if isinstance(fresh, str) or fresh.verdict is not Verdict.FAIL:
            return done
        return replace(
            done, broken=_retold(cell.broken, fresh), text=_text(fresh), seconds=cell.seconds + fresh.seconds
        )

    def _explored(self, check: Check, budget: Budget, note: str) -> Cell:
        search = self._search(check, budget)
        report = self._attempt(lambda session, tell: explore(session, search, tell), check, note)
        if isinstance(report, str):
            return self._cell(check, reasons=(report,))
        if report.interrupted:
            raise KeyboardInterrupt
        self._reports[check.name] = report
        return self._of(check, report)

    def _attempt(self, work: Callable[[Session, Progress], Report], check: Check, note: str) -> Report | str:
        """Return the result of the work, or why it could not be done."""

        def tell(done: int, _: int, seconds: float, more: str) -> None:
            rate = f"{count(done, 'schedule')}, {done / max(seconds, 0.01):.1f} a second"
            left = f"at most {max(0.0, self._left()):.0f} s left"
            self._show(", ".join(filter(None, [f"{self._subject.name}: {check.name}", note, left, rate, more])))

        tell(0, 0, 0.0, check.about)
        try:
            with self._sessions.use() as session:
                return work(session, tell)
        except (UsageError, CannotRun, InternalError) as error:
            if is_interrupt(error):
                raise KeyboardInterrupt from None
            return str(error)
        except Exception as error:  # noqa: BLE001  (an error of ours in one check must not end the others)
            if is_interrupt(error):
                raise KeyboardInterrupt from None
            traceback.print_exc()
            return str(InternalError(f"{type(error).__name__}: {error}"))

    def _search(self, check: Check, budget: Budget) -> Search:
        scenario = self._subject.scenario(check)
        return Search(
            scenario, self._world(check), scenario.invariants, budget.strategy, budget.schedules, self._terms.seed,
            seconds=budget.seconds, keep_going=True, findings=self._terms.findings,
        )  # fmt: skip

    def _world(self, check: Check) -> World:
        return make_world(self._subject.world(check, self._terms.ranks), collectives=self._terms.collectives)

    def _left(self) -> float:
        return self._terms.seconds - (time.perf_counter() - self._begun)

    def _cell(self, check: Check, reasons: tuple[str, ...]) -> Cell:
        return _unknown(self._subject, check, reasons)

    def _of(self, check: Check, report: Report) -> Cell:
        made = cell(self._subject, check, report)
        # A fault or a stale read that was hardly tried proves little.
        if made.verdict is Verdict.PASS and any(each.is_scant for each in made.tried):
            return replace(made, verdict=Verdict.UNKNOWN, reasons=(*made.reasons, SCANT))
        return made


def cell(subject: Subject, check: Check, report: Report) -> Cell:
    """Return the cell of a search."""
    return replace(
        _unknown(subject, check, tuple(report.reasons)),
        verdict=report.verdict,
        broken=_broken(report),
        schedules=report.schedules,
        claim=report.claim,
        tried=tuple(report.tried),
        seconds=report.seconds,
        text=_text(report) if report.verdict is Verdict.FAIL else "",
    )


def _unknown(subject: Subject, check: Check, reasons: tuple[str, ...]) -> Cell:
    """Return the cell of a check that nothing is known of."""
    return Cell(
        subject.name, check.name, check.storage, subject.versions, Verdict.UNKNOWN,
        asked=tuple(name_of(each) for each in check.invariants), reasons=reasons, against=subject.against(check),
    )  # fmt: skip


def _urgency(cell: Cell) -> int:
    """Return the order in which unfinished work continues: failures to explain, then checks without a result."""
    return 0 if cell.verdict is Verdict.FAIL else 1 if cell.is_short else 2


def _is_open(cell: Cell) -> bool:
    """Return whether a longer search might find more."""
    return cell.is_short or (cell.verdict is Verdict.PASS and not cell.exhaustive)


def _text(report: Report) -> str:
    return search_text(report, report.schedules, Page())


def _retold(broken: Sequence[Broken], explained: Report) -> tuple[Broken, ...]:
    """Return the broken invariants, with messages and findings from the explanation of the first failing run.

    The smallest run may have another decisive op, so the defect stays as it was first found.
    """
    first = {each.violation.invariant: each for each in reversed(explained.violations)}
    retold = []
    for each in broken:
        fresh = first.pop(each.invariant, None)
        finding = shown_path(fresh.finding) if fresh is not None and fresh.finding is not None else each.finding
        retold.append(each if fresh is None else replace(each, message=fresh.violation.message, finding=finding))
    return tuple(retold)


def _broken(report: Report) -> tuple[Broken, ...]:
    """Return each invariant that does not hold, once for each defect that breaks it, as it was first seen."""
    found: dict[tuple[str, str], Broken] = {}
    for each in (*report.violations, *(one for ending in report.endings for one in ending.violations)):
        name = each.violation.invariant
        what = defect(each.violation, each.outcome) if each.outcome is not None else ""
        finding = shown_path(each.finding) if each.finding is not None else ""
        found.setdefault((name, what), Broken(name, each.violation.message, finding, what, each.unkept))
    return tuple(found.values())
