"""Known findings.  They do not fail a build; new findings do; those that are gone are reported.

The file is JSON, with a line for each: ``CHECKPOINTER[check] invariant``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from racecheck.explore import findings
from racecheck.explore.findings import Format
from racecheck.gate.cells import Cell
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Verdict

FORMAT = Format("racecheck-baseline", 1, "a baseline", "recreate it with racecheck gate --update-baseline")


@dataclass(frozen=True, slots=True)
class Baseline:
    """The findings that are known."""

    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Findings, compared with the known ones: each a line of a baseline."""

    new: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()


def load(path: Path) -> Baseline:
    """Read a baseline; raises `UsageError` for a file that is missing or no baseline."""
    if not path.is_file():
        raise UsageError(f"no baseline at {path}: create it with racecheck gate --update-baseline")
    return cast("Baseline", FORMAT.load(path, Baseline))


def save(baseline: Baseline, path: Path) -> None:
    """Write the baseline; raises `UsageError` if it cannot be written."""
    findings.write(FORMAT.encode(baseline), path.parent, path.name)


def compare(cells: Sequence[Cell], baseline: Baseline) -> Comparison:
    """Return what is new, known and fixed.

    Fixed is what its check has judged again, as PASS or as FAIL for other reasons.  Of what was not judged, or was
    UNKNOWN, nothing is said.
    """
    found = [*dict.fromkeys(line for cell in cells if cell.is_held for line in _lines(cell))]
    judged = {f"{cell.target} {name}" for cell in cells if cell.verdict is not Verdict.UNKNOWN for name in cell.asked}
    return Comparison(
        new=tuple(line for line in found if line not in baseline.known),
        known=tuple(line for line in found if line in baseline.known),
        fixed=tuple(line for line in baseline.known if line in judged and line not in found),
    )


def updated(baseline: Baseline, comparison: Comparison) -> Baseline:
    """Return the baseline with what is new, and without what is fixed."""
    return Baseline(tuple(sorted({*baseline.known, *comparison.new} - {*comparison.fixed})))


def fixed(line: str) -> str:
    """Say what to do about a finding that is gone."""
    return f"fixed: {line}: remove it from the baseline with --update-baseline"


def verdict(cells: Sequence[Cell], comparison: Comparison) -> Verdict:
    """Return FAIL for a new finding; a known one is no failure.  UNKNOWN if nothing counts."""
    if comparison.new:
        return Verdict.FAIL
    held = [each for each in cells if each.is_held]
    judged = [each.verdict for each in held if each.verdict is not Verdict.FAIL]
    return max(judged, default=Verdict.PASS) if held else Verdict.UNKNOWN


def _lines(cell: Cell) -> list[str]:
    return [f"{cell.target} {each.invariant}" for each in cell.broken]
