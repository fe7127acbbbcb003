"""Known findings.  They do not fail a build; new findings do; those that are gone are reported.

The file is JSON, with a line for each: ``CHECKPOINTER[check] invariant: function (file), error``.  What follows the
colon identifies the defect (`racecheck.gate.defects`): another one that breaks the same invariant is new.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from racecheck.explore import findings
from racecheck.explore.findings import Format
from racecheck.gate.cells import Broken, Cell
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Verdict

FORMAT = Format("racecheck-baseline", 2, "a baseline", "recreate it with racecheck gate --update-baseline")


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
    if not path.exists():
        raise UsageError(f"no baseline at {path}: create it with racecheck gate --update-baseline")
    return cast("Baseline", FORMAT.load(path, Baseline))


def save(baseline: Baseline, path: Path) -> None:
    """Write the baseline; raises `UsageError` if it cannot be written."""
    findings.write(FORMAT.encode(baseline), path.parent, path.name)


def compare(cells: Sequence[Cell], baseline: Baseline) -> Comparison:
    """Return the new, known and fixed entries.

    A finding is fixed if its check was judged again and the invariant held.  It is left out if its check was not judged
    or was UNKNOWN, or if another defect still breaks the invariant.
    """
    found = [*dict.fromkeys(line(cell, each) for cell in cells if cell.is_held for each in cell.broken)]
    judged = {f"{cell.target} {name}" for cell in cells if cell.verdict is not Verdict.UNKNOWN for name in cell.asked}
    holds = judged - {*map(_invariant, found)}
    return Comparison(
        new=tuple(each for each in found if each not in baseline.known),
        known=tuple(each for each in found if each in baseline.known),
        fixed=tuple(each for each in baseline.known if _invariant(each) in holds),
    )


def others(baseline: Baseline, names: Collection[str]) -> list[str]:
    """Return the checkpointers that a baseline is about; none if any of these ``names`` is among them."""
    found = dict.fromkeys(each.partition("[")[0] for each in baseline.known)
    return [] if any(each in found for each in names) else [*found]


def updated(baseline: Baseline, comparison: Comparison) -> Baseline:
    """Return the baseline with the new entries, and without the fixed ones."""
    return Baseline(tuple(sorted({*baseline.known, *comparison.new} - {*comparison.fixed})))


def fixed(line: str) -> str:
    """Say how to treat a finding that is gone."""
    return f"fixed: {line}: remove it from the baseline with --update-baseline"


def verdict(cells: Sequence[Cell], comparison: Comparison) -> Verdict:
    """Return FAIL for a new finding; a known one is no failure.  UNKNOWN if nothing counts."""
    if comparison.new:
        return Verdict.FAIL
    held = [each for each in cells if each.is_held]
    judged = [each.verdict for each in held if each.verdict is not Verdict.FAIL]
    return max(judged, default=Verdict.PASS) if held else Verdict.UNKNOWN


def line(cell: Cell, broken: Broken) -> str:
    """Return the line for a finding."""
    return ": ".join(filter(None, (f"{cell.target} {broken.invariant}", broken.defect)))


def _invariant(known: str) -> str:
    """Return the part of a line that names the invariant: no name of an invariant has a colon."""
    target, bracket, rest = known.rpartition("] ")
    return f"{target}{bracket}{rest.partition(': ')[0]}"
