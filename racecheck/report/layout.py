"""How wide the parts of an interleaving are.

A line is a step number, then the text, then the mark of a violation, then the line of code.  The text stands
in the column of its rank; where the columns do not fit, each rank has a lane of one character, and the
text of all ranks stands in one column behind the lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from racecheck.model.nouns import Event, Op
from racecheck.report.decisive import EventRole

GAP = 2
MARK = "<---"
NARROWEST = 40
"""Cells that a line may always have: in fewer, nothing could be read."""

_READABLE = 24
"""Cells that a column of text has at least, if it needs them."""

_LINE = 16
"""Cells that the line of code has at least, if it needs them, where ranks have columns."""

_WHOLE_LINE = 30
"""Cells that the line of code gets before columns become too wide to read."""


@dataclass(frozen=True, slots=True)
class Row:
    """An event in words: what happened, to what, with what result; and the line of code that made it.

    ``role`` says why it is decisive, None if it is not.  ``others`` are the paths of all rows: where a path has to be
    cut, it must not look like another one.
    """

    step: int
    event: Event
    text: tuple[str, str, str]
    marked: bool
    where: str
    role: EventRole | None = None
    others: frozenset[str] = frozenset()

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that it is an event of."""
        return (self.event.rank,) if isinstance(self.event, Op) else self.event.ranks

    @property
    def style(self) -> str:
        """The style that it is painted in."""
        if self.marked or self.role == "victim":
            return "bold red"
        return "bold" if self.role is not None else ""

    def cells(self, *, columns: bool) -> int:
        """Return the width that a column needs for the text uncut in it, or in the columns of all its ranks."""
        if isinstance(self.event, Op):
            return sum(map(cell_len, self.text)) + 1 + GAP
        label = cell_len(self.text[0])
        return -(-(label + 4) // max(1, len(self.event.ranks))) if columns else label


@dataclass(frozen=True, slots=True)
class Layout:
    """The widths in cells of the step, of one column of text, of the mark, and of the line of code.

    ``lanes`` is the number of lanes, None if each rank has a column.
    """

    ranks: int
    step: int
    mark: int
    where: int
    cell: int = 0
    lanes: int | None = None

    @property
    def label(self) -> int:
        """Return the width of ``rank 15``."""
        return len(f"rank {self.ranks - 1}")


def measure(rows: Sequence[Row], ranks: int, width: int) -> Layout:
    """Choose columns if they are readable and cut no marked text; otherwise lanes, unless those need too much room."""
    step = max(4, len(str(rows[-1].step)))
    mark = len(MARK) + GAP if any(row.marked for row in rows) else 0
    layout = Layout(ranks, step, mark, where=max(cell_len(row.where) for row in rows))
    room = width - step - GAP - mark
    cell, is_enough = _cell(rows, layout, room, ranks)
    if is_enough:
        return replace(layout, cell=cell, where=max(0, room - ranks * (cell + GAP)))
    lanes = ranks if ranks <= (width - NARROWEST) // 2 else 0
    room -= lanes + GAP * bool(lanes) + layout.label + GAP
    cell, _ = _cell(rows, layout, room, 1)
    return replace(layout, cell=cell, where=max(0, room - cell - GAP), lanes=lanes)


def _cell(rows: Sequence[Row], layout: Layout, room: int, columns: int) -> tuple[int, bool]:
    """Return the width of each of ``columns`` columns in this room, and whether that is enough."""
    cells = [(row.cells(columns=columns > 1), row.marked) for row in rows]
    natural = max([layout.label, *(each for each, _ in cells)])
    least = max([min(natural, _READABLE), *(each for each, marked in cells if marked)])

    def share(where: int) -> int:
        return max(1, (room - min(where, layout.where)) // columns - GAP)

    return min(natural, max(least, share(_WHOLE_LINE)), share(0)), share(_LINE) >= least
