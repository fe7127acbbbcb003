"""The result of a gate."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from racecheck.gate import baseline, matrix
from racecheck.gate.baseline import Comparison
from racecheck.gate.cells import Cell
from racecheck.gate.grouping import Defect, grouped
from racecheck.gate.tasks import Terms
from racecheck.model.nouns import Verdict


@dataclass(frozen=True, slots=True)
class GateResult:
    """The cells, compared with the findings that were known.

    ``wrong`` are checkpointers that could not even be asked, each with the reason.  ``launch`` are the options and the
    command with which ``racecheck run`` judges a launch command, "" for checkpointers.
    """

    cells: tuple[Cell, ...]
    comparison: Comparison
    terms: Terms
    seconds: float
    wrong: tuple[str, ...] = ()
    interrupted: bool = False
    launch: str = ""

    @property
    def verdict(self) -> Verdict:
        found = baseline.verdict(self.cells, self.comparison)
        return max(found, Verdict.UNKNOWN) if self.wrong or self.interrupted else found

    @property
    def rows(self) -> tuple[str, ...]:
        """The checkpointers with their versions."""
        return tuple(dict.fromkeys(each.row for each in self.cells))


def data(result: GateResult) -> dict[str, Any]:
    """Return the data that ``racecheck gate --json`` prints."""
    return {
        "verdict": result.verdict.name,
        "interrupted": result.interrupted,
        "seconds": round(result.seconds, 3),
        "seed": result.terms.seed,
        "effort": result.terms.effort,
        "new": list(result.comparison.new),
        "known": list(result.comparison.known),
        "fixed": list(result.comparison.fixed),
        "wrong": list(result.wrong),
        "defects": [_defect(each, result) for each in grouped(result.cells)],
        "cells": [_cell(each) for each in result.cells],
        "matrix": [
            {
                "storage": table.storage,
                "rows": {
                    row: {name: asdict(entry) for name, entry in zip(table.columns, entries, strict=True)}
                    for row, entries in table.rows
                },
            }
            for table in matrix.tables(result.cells)
        ],
    }


def _defect(found: Defect, result: GateResult) -> dict[str, Any]:
    cell, broken = found.lead
    return {
        "effect": found.effect,
        "place": broken.place,
        "invariants": list(found.invariants),
        "checks": list(found.checks),
        "checkpointer": cell.checkpointer,
        "counts": found.is_held,
        "known": all(baseline.line(*each) in result.comparison.known for each in found.shown),
        "expected": matrix.expected(broken.invariant),
        "seen": broken.message,
        "run": broken.sentence,
        "repair": cell.repair,
        "finding": broken.finding,
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        **asdict(cell),
        "exhaustive": cell.exhaustive,
        "claim": str(cell.claim),
        "conditions": list(cell.claim.conditions),
        "doubts": list(cell.claim.against),
        "target": cell.target,
        "extent": cell.extent,
        "verdict": cell.verdict.name,
        "seconds": round(cell.seconds, 3),
    }
