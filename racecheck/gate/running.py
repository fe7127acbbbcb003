"""Gates: one checkpointer after the other, each in processes of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from racecheck.explore import findings
from racecheck.explore.current_session import Sessions
from racecheck.explore.runs.workers import Workers
from racecheck.gate import baseline, subjects
from racecheck.gate.baseline import Baseline
from racecheck.gate.cells import Cell
from racecheck.gate.effort import EFFORTS
from racecheck.gate.judging import Judging, Show
from racecheck.gate.parts import Part
from racecheck.gate.result import GateResult
from racecheck.gate.shards import Checked, Shard, Work, carried
from racecheck.gate.store import CellStore
from racecheck.gate.subjects import Subject
from racecheck.gate.tasks import Terms
from racecheck.model.errors import UsageError, is_interrupt
from racecheck.report.words import count
from racecheck.targets import listing


@dataclass(frozen=True, slots=True)
class Asked:
    """The work of a gate: checkpointers by name, and which checks on which storages (none: all).

    ``goes_on``: one that cannot be asked does not end the gate, and what an earlier one has done stays done; else only
    what one did that was interrupted.  ``fresh``: all is done again.
    """

    names: Sequence[str]
    checks: Sequence[str] = ()
    storages: Sequence[str] = ()
    goes_on: bool = False
    fresh: bool = False


class Gate:
    """Judges checkpointers and keeps the results; ``say`` takes lines that stay, ``show`` one that does not."""

    def __init__(
        self,
        asked: Asked,
        terms: Terms,
        say: Callable[[str], None],
        show: Show,
        workers: Workers | None = None,
        part: Part | None = None,
    ) -> None:
        self._asked, self._terms, self._say, self._show, self._workers = asked, terms, say, show, workers
        self._part = part
        self._checked: dict[str, Checked] = {}
        self._first: dict[tuple[str, str], Cell] = {}
        named = "" if asked.goes_on else asked.names[0]
        self._store = (
            CellStore(terms.findings, terms, named, asked.checks, asked.storages)
            if terms.findings is not None and part is None
            else None
        )
        self._cells: dict[tuple[str, str], Cell] = {}
        self._wrong: list[str] = []

    def run(self, known: Baseline) -> GateResult:
        """Judge all; raises `UsageError` for subjects that cannot be asked."""
        begun, interrupted = time.perf_counter(), not self._carry_out()
        cells = [*self._cells.values()]
        if self._store is not None and not interrupted:
            if self._asked.goes_on:
                cells += self._store.others(self._asked.names, cells)
            else:
                self._store.end()
        return GateResult(
            tuple(cells), baseline.compare(cells, known), self._terms, time.perf_counter() - begun,
            tuple(self._wrong), interrupted,
        )  # fmt: skip

    def shard(self) -> Shard | None:
        """Judge these checks; returns None at Ctrl-C.  Raises `UsageError` for subjects that cannot be asked."""
        assert self._part is not None
        begun = time.perf_counter()
        if not self._carry_out():
            return None
        terms, better = self._terms, [each for key, each in self._cells.items() if each is not self._first[key]]
        work = Work(self._checked, terms.seed, terms.effort, terms.ranks, terms.collectives, findings.versions())
        first = tuple(self._first.values())
        return Shard(
            self._part, work, first, tuple(better), tuple(carried([*first, *better])), tuple(self._wrong),
            time.perf_counter() - begun,
        )  # fmt: skip

    def _carry_out(self) -> bool:
        """Judge all; returns False at Ctrl-C."""
        try:
            with redirect_stdout(sys.stderr):
                for number, name in enumerate(self._asked.names):
                    self._try(name, len(self._asked.names) - number - 1)
        except BaseException as error:
            if not is_interrupt(error):
                raise
            return False
        return True

    def _try(self, name: str, after: int) -> None:
        try:
            self._judge(name, after)
        except UsageError as error:
            if not self._asked.goes_on:
                raise
            self._wrong.append(f"{name}: {error}")
            self._say(f"{name}: {error}")

    def _judge(self, name: str, after: int) -> None:
        if "::" not in name and (here := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, here)
        with listing.importing(name):
            subject = subjects.named(name)
        effort = EFFORTS[self._terms.effort]
        asked = subjects.checks(subject, self._asked.checks, self._asked.storages, effort)
        if not asked and not self._asked.goes_on:
            raise UsageError(subjects.lacking(subject, self._asked.checks))
        if not self._asked.checks and not self._asked.storages and not self._asked.goes_on:
            for text in subjects.left_out(subject):
                self._say(text)
        self._checked[name] = Checked(tuple(each.name for each in asked), subjects.fingerprint(subject))
        kept = self._kept(subject)
        for each in asked:
            if each.name in kept:
                self._cells[name, each.name] = kept[each.name]
        more = f", then {after} more" if after else ""
        sessions = Sessions()
        try:
            judging = Judging(
                subject,
                sessions,
                self._terms,
                lambda line: self._show(line + more),
                self._say,
                self._workers,
                self._part,
            )
            for cell in judging.cells(asked, kept):
                self._take(subject, cell)
        finally:
            sessions.close()

    def _kept(self, subject: Subject) -> dict[str, Cell]:
        if self._store is None:
            return {}
        if self._asked.fresh:
            self._store.clear() if self._asked.goes_on else self._store.end()
            return {}
        kept = self._store.good(subject)
        if kept:
            self._say(
                f"{subject.name}: {count(len(kept), 'result')} reused from an earlier gate (--fresh runs them again)"
            )
        return kept

    def _take(self, subject: Subject, cell: Cell) -> None:
        old = self._cells.get((subject.name, cell.check))
        self._cells[subject.name, cell.check] = cell
        self._first.setdefault((subject.name, cell.check), cell)
        if self._store is not None and cell.schedules and not cell.is_cut:
            self._store.keep(subject, cell)
        if old is None or old.verdict is not cell.verdict:
            self._say(line(cell))


def line(cell: Cell) -> str:
    """Return the result of a check, in a line."""
    verdict = f"{cell.verdict.name} (not promised)" if cell.broken and cell.against else cell.verdict.name
    claim = "; ".join(["every interleaving", *cell.claim.conditions]) if cell.exhaustive else str(cell.claim)
    grounds = cell.violated or cell.why or claim
    return f"{cell.target}  {verdict}  {count(cell.schedules, 'schedule')}, {cell.seconds:.1f} s; {grounds}"
