"""Cells on disk: the work of an interrupted gate, and the results for other releases.

The file is versioned JSON, read strictly and written as a whole.  A cell is good for as long as what it follows from is
the same (`Kept.source`, the versions, the terms): else it is made again, and replaces the old one.

The gate of all has one file, which stays.  The gate of one checkpointer has a file for all that it was asked, and ends
that when it has ended: the same command then wants to know it again, and what was asked otherwise and
interrupted is still to be gone on with.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from filelock import FileLock

from racecheck.explore import findings
from racecheck.explore.findings import Format
from racecheck.gate.cells import Cell
from racecheck.gate.subjects import Subject, fingerprint
from racecheck.gate.tasks import Terms
from racecheck.model.errors import UsageError

FORMAT = Format("racecheck-gate", 6, "a gate's cells", "remove it, or use --fresh")
_LONGEST = 100
_ALL, _ONE, _LOCK = "gate.json", "gate-{}-{}.json", "gate.lock"


@dataclass(frozen=True, slots=True)
class Kept:
    """A cell with what it follows from: ``source`` is of the checkpointer's file and of racecheck."""

    cell: Cell
    source: str
    seed: str
    effort: str
    ranks: int | None
    collectives: str

    def is_of(self, terms: Terms) -> bool:
        asked = (terms.seed, terms.effort, terms.ranks, terms.collectives)
        return (self.seed, self.effort, self.ranks, self.collectives) == asked


@dataclass(frozen=True, slots=True)
class _File:
    cells: tuple[Kept, ...] = ()


class CellStore:
    """The cells below a directory: of the gate of all, or of one checkpointer (``named``) and these checks."""

    def __init__(
        self, directory: Path, terms: Terms, named: str = "", checks: Sequence[str] = (), storages: Sequence[str] = ()
    ) -> None:
        self._path = directory / (_one(terms, named, checks, storages) if named else _ALL)
        self._terms = terms
        self._fingerprints: dict[str, str] = {}

    def good(self, subject: Subject) -> dict[str, Cell]:
        """Return the cells of a checkpointer that stay valid, by check; raises `UsageError` for a bad file."""
        return {
            each.cell.check: each.cell
            for each in self._read()
            if self._is_of(each, subject) and each.source == self._fingerprint(subject) and each.is_of(self._terms)
        }

    def others(self, names: Iterable[str], cells: Iterable[Cell]) -> list[Cell]:
        """Return cells of these checkpointers with versions that none of ``cells`` has, made on the same terms."""
        rows, named = {each.row for each in cells}, {*names}
        return [
            each.cell
            for each in self._read()
            if each.cell.checkpointer in named and each.cell.row not in rows and each.is_of(self._terms)
        ]

    def keep(self, subject: Subject, cell: Cell) -> None:
        """Replace the cell of the same checkpointer, versions and check."""
        terms = self._terms
        fresh = Kept(cell, self._fingerprint(subject), terms.seed, terms.effort, terms.ranks, terms.collectives)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self._path.with_name(_LOCK)):
            old = [each for each in self._read() if _address(each.cell) != _address(cell)]
            text = FORMAT.encode(_File((*old, fresh)))
            findings.write(text, self._path.parent, self._path.name)

    def clear(self) -> None:
        """Forget a file that cannot be read."""
        try:
            self._read()
        except UsageError:
            self.end()

    def end(self) -> None:
        """Forget all cells."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> tuple[Kept, ...]:
        return cast("_File", FORMAT.load(self._path, _File)).cells if self._path.exists() else ()

    def _is_of(self, kept: Kept, subject: Subject) -> bool:
        return (kept.cell.checkpointer, dict(kept.cell.versions)) == (subject.name, dict(subject.versions))

    def _fingerprint(self, subject: Subject) -> str:
        return self._fingerprints.setdefault(subject.name, fingerprint(subject))


def kept(directory: Path) -> list[Cell]:
    """Return the cells of the gate of all below a directory, none if there is no such file or it cannot be read."""
    try:
        return [each.cell for each in cast("_File", FORMAT.load(directory / _ALL, _File)).cells]
    except UsageError:
        return []


def _one(terms: Terms, named: str, checks: Sequence[str], storages: Sequence[str]) -> str:
    """Return the file of a gate of one: its name for people, and ten digits that stand for all that is asked."""
    asked = [named, sorted({*checks}), sorted({*storages}), terms.seed, terms.effort, terms.ranks]
    asked += [terms.collectives] * (terms.collectives != "gloo")
    digits = hashlib.sha256(repr(asked).encode()).hexdigest()[:10]
    return _ONE.format(re.sub(r"\W", "_", named)[-_LONGEST:], digits)


def _address(cell: Cell) -> tuple[str, str]:
    return cell.row, cell.check
