"""The result of a gate."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from racecheck.gate import baseline, matrix
from racecheck.gate.baseline import Comparison
from racecheck.gate.cells import Cell
from racecheck.gate.judging import Terms
from racecheck.model.nouns import Verdict


@dataclass(frozen=True, slots=True)
class Result:
    """The cells, compared with the findings that were known.

    ``wrong`` are checkpointers that could not even be asked, each with the reason.
    """

    cells: tuple[Cell, ...]
    comparison: Comparison
    terms: Terms
    seconds: float
    wrong: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def verdict(self) -> Verdict:
        found = baseline.verdict(self.cells, self.comparison)
        return max(found, Verdict.UNKNOWN) if self.wrong or self.interrupted else found

    @property
    def rows(self) -> tuple[str, ...]:
        """The checkpointers with their versions."""
        return tuple(dict.fromkeys(each.row for each in self.cells))


def data(result: Result) -> dict[str, Any]:
    """Return what ``racecheck gate --json`` prints."""
    return {
        "verdict": result.verdict.name,
        "interrupted": result.interrupted,
        "seconds": round(result.seconds, 3),
        "seed": result.terms.seed,
        "budget": result.terms.seconds,
        "new": list(result.comparison.new),
        "known": list(result.comparison.known),
        "fixed": list(result.comparison.fixed),
        "wrong": list(result.wrong),
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


def _cell(cell: Cell) -> dict[str, Any]:
    made = {
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
    del made["is_done"]
    return made
