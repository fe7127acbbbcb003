"""The interleaving of one run, for a terminal or as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.style import Style

from racecheck.model.nouns import Collective, Event, Op, Outcome, Violation, World
from racecheck.report import words
from racecheck.report.decisive import Decisive, decisive
from racecheck.report.folding import shown
from racecheck.report.layout import GAP, MARK, NARROWEST, Layout, Row, measure
from racecheck.report.summary import coverage_text, summary

__all__ = ["coverage_text", "render", "summary"]

FoldedPart = tuple[str, str]
"""A piece of a line, and the style that it is painted in."""

_BLANK = " " * GAP
_PATHS = 200
"""Of more paths it would take too long to see that they are cut if none is like another."""


def render(
    outcome: Outcome,
    violations: Sequence[Violation],
    *,
    width: int = 120,
    colour: bool = False,
    full: bool = False,
    cut: bool = True,
    root: Path | None = None,
    pair: Sequence[int] = (),
    found: Decisive | None = None,
) -> str:
    """Return the interleaving as lines of at most ``width`` cells (of 40, if less is asked for).

    Without ``cut``, the lines of code are complete, and only the columns before them fit into ``width``.

    Events that violations name are marked.  Unless ``full``, a long trace is folded as in the picture: never a decisive
    event.  ``found`` are these, by default those of a run whose ``pair`` decides.  Files are shown relative to ``root``
    (default: the current directory).  With ``colour``, there are ANSI escape sequences, on decisive events alone.
    """
    trace = outcome.trace
    if not trace:
        return "no ops were recorded"
    marked = {index for each in violations for index in each.events if 0 <= index < len(trace)}
    roles = (found or decisive(outcome, violations, pair)).roles
    events = range(len(trace)) if full else shown(trace, {*roles, *marked})
    rows = [*_rows(trace, events, marked, root or words.here())]
    paths = {each for row in rows for each in words.paths(row.text[1])}
    others = frozenset(paths if len(paths) <= _PATHS else ())
    rows = [replace(row, role=roles.get(row.step - 1), others=others) for row in rows]
    acting = [rank for row in rows for rank in row.ranks]
    layout = measure(rows, max([outcome.world.ranks - 1, *acting]) + 1, max(width, NARROWEST))
    if not cut:
        layout = replace(layout, where=max(cell_len(row.where) for row in rows))
    lines = [*_header(layout, outcome.world), *_body(rows, layout, len(trace))]
    return "\n".join(_paint(line, colour=colour) for line in lines)


def _rows(trace: Sequence[Event], events: Iterable[int], marked: set[int], root: Path) -> Iterator[Row]:
    groups = {event.group for event in trace if isinstance(event, Collective)}
    for index in events:
        event = trace[index]
        text = _text(event, several=len(groups) > 1)
        yield Row(index + 1, event, text, index in marked, words.where(event, root))


def _text(event: Event, *, several: bool) -> tuple[str, str, str]:
    """Return what happened, to what, with what result."""
    if isinstance(event, Op):
        return words.call(event), words.subject(event), words.result(event)
    return words.collective(event, group=several), "", ""


def _header(layout: Layout, world: World) -> Iterator[list[FoldedPart]]:
    """Yield the titles of the columns, or the last digits of the ranks above their lanes, with the nodes if several."""
    blank = " " * (layout.step + GAP)
    if layout.lanes is None:
        titles = (_title(rank, world, layout.cell) for rank in range(layout.ranks))
        yield [(blank + "".join(words.pad(each, layout.cell + GAP) for each in titles), "bold")]
        return
    ranks = range(layout.lanes)
    if world.nodes > 1 and ranks:
        nodes = "".join(str(world.node(min(rank, world.ranks - 1)) % 10) for rank in ranks)
        yield [(f"{'node':>{layout.step}}{_BLANK}{nodes}", "bold")]
    yield [(blank + "".join(str(rank % 10) for rank in ranks), "bold")]


def _title(rank: int, world: World, width: int) -> str:
    """Return the title of a column, with the node where there are several and it fits."""
    title = f"rank {rank}"
    longer = f"{title} (node {world.node(rank)})" if world.nodes > 1 and rank < world.ranks else title
    return longer if len(longer) <= width else title


def _body(rows: Iterable[Row], layout: Layout, total: int) -> Iterator[list[FoldedPart]]:
    before = 0
    for row in rows:
        yield from _left_out(row.step - before - 1, layout)
        yield _line(row, layout)
        before = row.step
    yield from _left_out(total - before, layout)


def _left_out(number: int, layout: Layout) -> Iterator[list[FoldedPart]]:
    if number:
        yield [(f"{'...':>{layout.step}}{_BLANK}{words.count(number, 'more op')}", "dim")]


def _line(row: Row, layout: Layout) -> list[FoldedPart]:
    text = _columns(row, layout) if layout.lanes is None else _lanes(row, layout, layout.lanes)
    mark = words.pad(MARK if row.marked else "", layout.mark)
    where = words.fit_line(row.where, layout.where)
    return [(f"{row.step:>{layout.step}}{_BLANK}", "dim"), *text, (mark, row.style), (where, row.style)]


def _columns(row: Row, layout: Layout) -> list[FoldedPart]:
    if isinstance(row.event, Collective):
        return list(_stretches(row, layout))
    width = layout.cell + GAP
    parts = [(words.pad(".", width), "dim")] * layout.ranks
    parts[row.event.rank] = (words.pad(_op(row, layout.cell), width), row.style)
    return parts


def _op(row: Row, width: int) -> str:
    """Return the op in ``width`` cells: its result at the right, its path cut if necessary."""
    call, subject, result = row.text
    room = width - (cell_len(result) + GAP if result else 0)
    subject = words.fit_subject(subject, room - cell_len(call) - 1, row.others)
    text = words.pad(words.fit(f"{call} {subject}", room), room + GAP)
    return words.fit(f"{text}{result}".rstrip(), width)


def _stretches(row: Row, layout: Layout) -> Iterator[FoldedPart]:
    """Return the columns of a collective's ranks filled, with its name in the longest stretch of them."""
    width = layout.cell + GAP
    stretches = [list(each) for _, each in groupby(range(layout.ranks), lambda rank: rank in row.ranks)]
    longest = max((each for each in stretches if each[0] in row.ranks), key=len, default=[])
    for each in stretches:
        if each[0] in row.ranks:
            name = row.text[0] if each is longest else ""
            yield _filled(name, len(each) * width - GAP) + _BLANK, row.style
        else:
            yield words.pad(".", width) * len(each), "dim"


def _filled(name: str, width: int) -> str:
    """Return ``==== name ====``."""
    text = words.fit(f" {name} ", width) if name else ""
    left = (width - cell_len(text)) // 2
    return "=" * left + text + "=" * (width - left - cell_len(text))


def _lanes(row: Row, layout: Layout, lanes: int) -> Iterator[FoldedPart]:
    here = "=" if isinstance(row.event, Collective) else "*"
    for lane in range(lanes):
        yield (here, row.style) if lane in row.ranks else ("|", "dim")
    if lanes:
        yield _BLANK, ""
    room = layout.label + GAP + layout.cell
    if isinstance(row.event, Collective):
        text = words.fit(row.text[0], room)
    else:
        text = words.pad(f"rank {row.event.rank}", layout.label + GAP) + _op(row, layout.cell)
    yield words.pad(text, room + GAP), row.style


def _paint(line: Sequence[FoldedPart], *, colour: bool) -> str:
    """Return the line without blanks at its end, with each part in its style."""
    left = len("".join(text for text, _ in line).rstrip())
    painted = ""
    for text, style in line:
        piece = text[:left]
        left -= len(piece)
        painted += Style.parse(style).render(piece, color_system=ColorSystem.STANDARD) if colour else piece
    return painted
