"""A launch command under the checks of the plan, one after the other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.runs.workers import Workers
from racecheck.explore.search import EXPLAIN, explained, explore
from racecheck.gate.cells import CUT, Cell
from racecheck.gate.effort import EFFORTS
from racecheck.gate.grouping import leading
from racecheck.gate.judging import explained_cell, of_report
from racecheck.gate.plan import PLAN, CommandCheck
from racecheck.gate.subjects import version
from racecheck.gate.tasks import Terms
from racecheck.model.errors import CannotRun, InternalError
from racecheck.model.nouns import Verdict
from racecheck.report.words import count
from racecheck.sessions.session import Session
from racecheck.targets.programs import Program
from racecheck.targets.scenarios import make_world


class CommandGate:
    """Judges a program; ``show`` takes lines that replace each other, ``say`` lines that stay.

    ``is_interrupted``: Ctrl-C has ended it.
    """

    def __init__(
        self,
        program: Program,
        terms: Terms,
        show: Callable[[str], None],
        say: Callable[[str], None],
        workers: Workers | None = None,
    ) -> None:
        self._program, self._terms, self._show, self._say, self._workers = program, terms, show, say, workers
        self._until = time.monotonic() + terms.seconds if terms.seconds else math.inf
        self._versions = {"torch": version("torch")}
        self.is_interrupted = False

    def cells(self, session: Session, checks: Sequence[CommandCheck]) -> list[Cell]:
        """Return a cell for each check; the first failures of the gravest defects are explained.

        Raises `UsageError` for a program of which nothing can be said, after its first run.
        """
        cells: list[Cell] = []
        reports: dict[str, Report] = {}
        for number, check in enumerate(checks, 1):
            cell, report = self._cell(session, check, f"{number} of {count(len(checks), 'check')}")
            if self.is_interrupted:
                return cells
            cells.append(cell)
            self._say(_line(cell))
            if report is not None:
                reports[check.name] = report
        due = leading(cells)[: EFFORTS[self._terms.effort].explained]
        made, asked = {each.check: each for each in cells}, {each.name: each for each in checks}
        for name in due:
            if name in reports and not self.is_interrupted and self._left() > 0:
                made[name] = self._explained(session, asked[name], made[name], reports[name])
        return [*made.values()]

    def _search(self, check: CommandCheck) -> Search:
        terms, program, left = self._terms, self._program, self._left()
        world = make_world(program.world, collectives=terms.collectives)
        common = Search(
            program, world, program.invariants, seed=terms.seed, findings=terms.findings, explain=0.0,
            seconds=max(0.001, left) if left < math.inf else 0.0,
        )  # fmt: skip
        return check.search(common, EFFORTS[terms.effort])

    def _cell(self, session: Session, check: CommandCheck, note: str) -> tuple[Cell, Report | None]:
        """Return the cell of a check, which is UNKNOWN if the time was up before its end, and its report."""
        blank = Cell(self._program.name, check.name, check.storage, self._versions, Verdict.UNKNOWN)
        if self._left() <= 0:
            return replace(blank, reasons=(f"{CUT} {self._terms.seconds:g}",)), None
        tell = self._teller(check, note)
        tell(0, 0, 0.0, check.about)
        try:
            report = explore(session, self._search(check), tell, workers=self._workers)
        except (CannotRun, InternalError) as error:
            return replace(blank, reasons=(str(error),)), None
        self.is_interrupted = report.interrupted
        made = replace(of_report(blank, report), asked=report.asked)
        if report.is_late and not made.exhaustive:
            made = replace(
                made, verdict=max(made.verdict, Verdict.UNKNOWN), reasons=(f"{CUT} {self._terms.seconds:g}",)
            )
        return made, report

    def _explained(self, session: Session, check: CommandCheck, cell: Cell, report: Report) -> Cell:
        seconds = min(EXPLAIN, self._left())
        given = replace(self._search(check), strategy=report.strategy, seconds=seconds, explain=seconds)
        try:
            fresh = explained(session, given, report, self._teller(check, "explained"))
        except (CannotRun, InternalError):
            return cell
        except KeyboardInterrupt:
            self.is_interrupted = True
            return cell
        return explained_cell(cell, fresh)

    def _teller(self, check: CommandCheck, note: str) -> Callable[[int, int, float, str], None]:
        def tell(done: int, _: int, seconds: float, more: str) -> None:
            rate = f"{count(done, 'schedule')}, {done / max(seconds, 0.01):.1f} a second"
            left = f"at most {max(0.0, self._left()):.0f} s left" if self._terms.seconds else ""
            self._show(", ".join(filter(None, [f"{self._program.name}: {check.name}", note, left, rate, more])))

        return tell

    def _left(self) -> float:
        return self._until - time.monotonic()


def _line(cell: Cell) -> str:
    """Return the result of a check, in a line."""
    grounds = cell.violated or cell.why or str(cell.claim)
    return f"{cell.target}  {cell.verdict.name}  {count(cell.schedules, 'schedule')}, {cell.seconds:.1f} s; {grounds}"


def faults_of(check: str) -> Iterator[str]:
    """Yield the faults of a check of the plan, as options of ``racecheck run``."""
    for each in PLAN[check].faults:
        yield f"--fault '{each}'"
