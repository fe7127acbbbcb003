"""The checks of a checkpointer, one after the other, each to its end."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from racecheck.crash.recovery.judge import AS_IT_IS
from racecheck.explore.current_session import Sessions
from racecheck.explore.runner import Progress, Recoveries, undisturbed
from racecheck.explore.search import EXPLAIN, Report, Search, explained, explore
from racecheck.gate import effort as efforts
from racecheck.gate import trial
from racecheck.gate.cells import CUT, Broken, Cell
from racecheck.gate.defects import defect, place_and_sentence
from racecheck.gate.effort import EFFORTS, Effort, Extent, extent
from racecheck.gate.grouping import grouped
from racecheck.gate.subjects import Subject
from racecheck.invariants import name_of
from racecheck.model.errors import CannotRun, InternalError, UsageError, is_interrupt
from racecheck.model.nouns import Outcome, Verdict, World
from racecheck.processes.session import Session
from racecheck.report import fault_table
from racecheck.report.results import Page, search_text, shown_path
from racecheck.report.words import count, duration
from racecheck.targets.scenarios import make_world
from racecheck.targets.suite import CHECKS, TRIAL, Check

Show = Callable[[str], None]
"""Takes a line that says what is going on."""


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


class Judging:
    """A checkpointer under the checks; ``show`` takes lines that replace each other, ``say`` lines that stay."""

    def __init__(
        self,
        subject: Subject,
        sessions: Sessions,
        terms: Terms,
        show: Show = lambda _: None,
        say: Show = lambda _: None,
    ) -> None:
        self._subject, self._sessions, self._terms, self._show, self._say = subject, sessions, terms, show, say
        self._effort = EFFORTS[terms.effort]
        self._begun, self._run = time.perf_counter(), 0.0
        self._base: Outcome | None = None
        self._bases: dict[Hashable, Outcome] = {}
        """Undisturbed runs, by functions and world (`_does`): checks that do the same share them."""
        self._recoveries: dict[Hashable, Recoveries] = {}
        self._reports: dict[str, Report] = {}

    def cells(self, asked: Sequence[Check], known: Mapping[str, Cell] | None = None) -> Iterator[Cell]:
        """Return a cell for each check, and another one for those whose failure is then explained.

        ``known`` are cells of an earlier time, by check.  Where the checkpointer cannot be judged at all there is one
        cell, which says why.  Raises `UsageError` for a class that is no checkpointer, or fails without any race.
        """
        known = known or {}
        fresh = [each for each in asked if each.name not in known]
        if not fresh:
            return
        reason = self._subject.missing or self._try()
        if reason:
            yield self._cell(CHECKS[trial.CHECK], reasons=(reason,))
            return
        self._announce(fresh)
        found = []
        for number, check in enumerate(fresh):
            found.append(self._judged(check, f"{number + 1} of {count(len(fresh), 'check')}"))
            yield found[-1]
        for cell in self._to_explain(found):
            yield self._explained(CHECKS[cell.check], cell)

    def _try(self) -> str:
        """Return why it cannot be judged at all, or ""; raises `UsageError` for a class that is no checkpointer."""
        self._show(f"{self._subject.name}: trial run")
        check = CHECKS[trial.BASE]
        scenario, world = self._subject.scenario(check), replace(self._world(check), faults=())
        try:
            with self._sessions.use() as session:
                single = self._subject.scenario(TRIAL)
                alone, _ = undisturbed(session, single, single.world, seed=self._terms.seed)
                base, self._run = undisturbed(session, scenario, world, seed=self._terms.seed)
        except CannotRun as error:
            return str(error)
        wrong = trial.misuse(base) or trial.misuse(alone)
        reason = trial.reason(base)
        if not reason:
            wrong = wrong or trial.by_itself(self._subject.kind.__name__, base, alone)
        if wrong:
            raise UsageError(wrong)
        self._base = base
        self._bases[self._does(check, world)] = base
        return reason

    def _announce(self, checks: Sequence[Check]) -> None:
        """Say what will be tried, and about how long that takes here."""
        due = self._extent(self._effort, checks)
        said = f"{self._effort.name}: {_extent(due, self._run)}"
        quick = EFFORTS["quick"]
        less = quick.checks(checks)
        if self._effort is not quick and len(less) < len(checks):
            said += f"; --effort {quick.name}: {_extent(self._extent(quick, less), self._run)}"
        self._say(f"{self._subject.name}: {said}")

    def _extent(self, effort: Effort, checks: Sequence[Check]) -> Extent:
        assert self._base is not None, "a trial comes before the checks"
        return sum((extent(effort, each, self._world(each), self._base) for each in checks), Extent())

    def _judged(self, check: Check, note: str) -> Cell:
        """Return the cell of a check, which is UNKNOWN if the time was up before its end."""
        due = self._extent(self._effort, [check]).runs * self._run
        if self._left() <= 0:
            return replace(self._cell(check, reasons=(self._cut,)), needs=due)
        report = self._attempt(lambda session, tell: explore(session, self._search(check), tell), check, note)
        if isinstance(report, str):
            return self._cell(check, reasons=(report,))
        if report.interrupted:
            raise KeyboardInterrupt
        self._reports[check.name] = report
        if report.endings:
            self._bases.setdefault(self._does(check, self._world(check)), report.endings[0].outcome)
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
        leading = dict.fromkeys(each.lead[0].check for each in grouped(cells) if each.is_held)
        return [each for name in [*leading][: self._effort.explained] for each in cells if each.check == name]

    def _explained(self, check: Check, cell: Cell) -> Cell:
        report, seconds = self._reports.get(check.name), min(EXPLAIN, self._left())
        if report is None or seconds <= 0:
            return cell
        search = replace(self._search(check), strategy=report.strategy, seconds=seconds, explain=seconds)
        fresh = self._attempt(lambda session, tell: explained(session, search, report, tell), check, "explained")
        if isinstance(fresh, str) or fresh.verdict is not Verdict.FAIL:
            return cell
        return replace(
            cell, broken=_retold(cell.broken, fresh), text=_text(fresh), repair=_repair(fresh),
            seconds=cell.seconds + fresh.seconds,
        )  # fmt: skip

    def _attempt(self, work: Callable[[Session, Progress], Report], check: Check, note: str) -> Report | str:
        """Return the result of the work, or why it could not be done."""

        def tell(done: int, _: int, seconds: float, more: str) -> None:
            rate = f"{count(done, 'schedule')}, {done / max(seconds, 0.01):.1f} a second"
            left = f"at most {max(0.0, self._left()):.0f} s left" if self._terms.seconds else ""
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

    def _search(self, check: Check) -> Search:
        world, left = self._world(check), self._left()
        return replace(
            self._effort.search(self._subject.scenario(check), world), seed=self._terms.seed,
            seconds=max(0.001, left) if self._terms.seconds else 0.0, findings=self._terms.findings,
            base=self._bases.get(self._does(check, world)),
            recoveries=self._recoveries.setdefault((check.recover, check.recovering), {}),
        )  # fmt: skip

    def _does(self, check: Check, world: World) -> Hashable:
        """Return the key of an undisturbed run: checks with one key share it."""
        return check.run, check.recover, check.recovering, replace(world, faults=())

    def _world(self, check: Check) -> World:
        return make_world(self._subject.world(check, self._terms.ranks), collectives=self._terms.collectives)

    def _left(self) -> float:
        """Return the seconds until the limit, infinity if there is none."""
        return self._terms.seconds - (time.perf_counter() - self._begun) if self._terms.seconds else math.inf

    def _cell(self, check: Check, reasons: tuple[str, ...]) -> Cell:
        return _unknown(self._subject, check, reasons)


def cell(subject: Subject, check: Check, report: Report) -> Cell:
    """Return the cell of a search."""
    return replace(
        _unknown(subject, check, tuple(report.reasons)),
        verdict=report.verdict,
        broken=_broken(report),
        schedules=report.schedules,
        claim=report.claim,
        tried=tuple(report.tried),
        faults=tuple(fault_table.rows(report.struck)),
        seconds=report.seconds,
        text=_text(report) if report.verdict is Verdict.FAIL else "",
    )


def _unknown(subject: Subject, check: Check, reasons: tuple[str, ...]) -> Cell:
    """Return the cell of a check that nothing is known of."""
    return Cell(
        subject.name, check.name, check.storage, subject.versions, Verdict.UNKNOWN,
        asked=tuple(name_of(each) for each in check.invariants), reasons=reasons, against=subject.against(check),
    )  # fmt: skip


def _extent(due: Extent, run: float) -> str:
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
