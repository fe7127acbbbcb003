"""The safety matrix: checkpointers by invariants, a table for each storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from racecheck.gate.cells import Cell
from racecheck.invariants import ALL, UNJUDGED, name_of
from racecheck.report.words import count
from racecheck.targets.suite import CHECKS

MarkKind = Literal["fail", "unknown", "exhausted", "budget", "not held", "not asked"]
MARKS: dict[MarkKind, str] = {
    "fail": "FAIL", "unknown": "?", "exhausted": "PASS", "budget": "pass", "not held": "n/a", "not asked": "-",
}  # fmt: skip
PART = "*"
"""Marks a pass for which only some of the single cases were tried."""
LEGEND: dict[MarkKind, str] = {
    "exhausted": "held in every interleaving of every check that asks for it",
    "budget": "held in N schedules, those of the effort",
    "fail": "violated; see the defects above",
    "unknown": "could not be judged; see the reason below",
    "not held": "not promised by the documentation, so it does not count; see below what the misuse does",
    "not asked": "no check asks for it",
}


@dataclass(frozen=True, slots=True)
class MatrixEntry:
    """The knowledge of a checkpointer, an invariant and a storage, and its grounds.

    ``is_part``: some of the faults, stale reads or crash states were left out.  ``finding`` is the file of the failure.
    """

    kind: MarkKind
    about: str = ""
    schedules: int = 0
    is_part: bool = False
    finding: str = ""

    @property
    def text(self) -> str:
        """Return the mark; that of a pass by budget says how many schedules that was."""
        schedules = f" {self.schedules}{PART * self.is_part}"
        return MARKS[self.kind] + (schedules if self.kind == "budget" else "")


@dataclass(frozen=True, slots=True)
class Table:
    """The matrix of one storage: the invariants, and for each checkpointer its entries."""

    storage: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[MatrixEntry, ...]], ...]


def tables(cells: Sequence[Cell]) -> Iterator[Table]:
    """Return a matrix for each storage, in order of appearance."""
    for storage in dict.fromkeys(each.storage for each in cells):
        here = [each for each in cells if each.storage == storage]
        columns = [*dict.fromkeys(name for each in here for name in each.asked)]
        names = dict.fromkeys(each.row for each in cells)
        rows = [(row, [each for each in here if each.row == row]) for row in names]
        yield Table(
            storage,
            tuple(columns),
            tuple((row, tuple(entry(own, column) for column in columns)) for row, own in rows),
        )


def entry(cells: Sequence[Cell], invariant: str) -> MatrixEntry:
    """Return the summary of an invariant in the cells of one checkpointer and one storage.

    One check that breaks it is a FAIL, else one that could not judge it is UNKNOWN.
    """
    asked = [each for each in cells if invariant in each.asked]
    held = [each for each in asked if each.is_held]
    if not asked:
        return MatrixEntry("not asked")
    if not held:
        return MatrixEntry("not held", "; ".join(dict.fromkeys(each.against for each in asked)))
    broken = [each for each in held if any(one.invariant == invariant for one in each.broken)]
    if broken:
        files = (one.finding for each in broken for one in each.broken if one.invariant == invariant)
        return MatrixEntry("fail", ", ".join(each.check for each in broken), finding=next(filter(None, files), ""))
    doubts = [(each.check, why) for each in held for why in _doubts(each, invariant)]
    if doubts:
        return MatrixEntry("unknown", "; ".join(f"{check}: {why}" for check, why in doubts))
    schedules = sum(each.schedules for each in held)
    about = f"{count(schedules, 'schedule')}: {'; '.join(f'{each.check}: {each.extent}' for each in held)}"
    kind: MarkKind = "exhausted" if all(each.exhaustive for each in held) else "budget"
    return MatrixEntry(kind, about, schedules, any(each.is_part for each in held))


def expected(invariant: str) -> str:
    """Return an invariant's first line."""
    asked = (each for check in CHECKS.values() for each in check.invariants)
    found = (each for each in (*asked, *ALL) if name_of(each) == invariant)
    text = getattr(next(found, None), "__doc__", None) or invariant
    return " ".join(text.split("\n\n")[0].split()).replace("``", "")


def _doubts(cell: Cell, invariant: str) -> list[str]:
    """Return the reasons for doubt about an invariant: its own, and those of no particular invariant."""
    judging = {each: each.partition(UNJUDGED)[0] for each in cell.reasons if UNJUDGED in each}
    return [each for each in cell.reasons if judging.get(each, invariant) == invariant]
