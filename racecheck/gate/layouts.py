"""Blocks as text for a terminal, as Markdown, and as HTML."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence

from racecheck.gate.pages import Block, Grid, Heading, Item, Line, Listing
from racecheck.report.picture.lists import list_page
from racecheck.report.words import escape

_MANY = 6

Href = Callable[[str], str]
"""Returns the address of the picture of a finding, "" if there is none."""


def text(blocks: Iterable[Block], width: int = 120) -> str:
    """Return text for a terminal, with only the first of the listings."""
    return "\n".join(line for each in blocks for line in _text(each, width)).strip()


def markdown(blocks: Iterable[Block]) -> str:
    """Return GitHub's Markdown."""
    return "\n".join(line for each in blocks for line in _markdown(each)).strip() + "\n"


def page(blocks: Iterable[Block], href: Href = lambda _: "") -> str:
    """Return one HTML file that needs no other; what failed links to the pictures of its findings."""
    return list_page("racecheck gate", section(blocks, href))


def section(blocks: Iterable[Block], href: Href = lambda _: "") -> str:
    """Return the blocks as HTML."""
    return "\n".join(_html(each, href) for each in blocks)


def _text(block: Block, width: int) -> Iterator[str]:
    if isinstance(block, Heading):
        yield from ("", block.text)
    elif isinstance(block, Line):
        yield f"{'  ' * (block.level + 1)}{escape(block.text)}{block.code}"
    elif isinstance(block, Grid):
        yield from _columns(block, width)
    elif block.is_first:
        yield from ("", block.text, "")


def _columns(grid: Grid, width: int) -> Iterator[str]:
    """Return an aligned table; where that is too wide, the columns have numbers, which are explained below."""
    lines = _aligned(grid.header, grid.rows)
    if max(map(len, lines)) <= width or len(grid.header) < _MANY:
        yield from lines
        return
    numbers = {str(number): name for number, name in enumerate(grid.header[1:], 1)}
    yield from _aligned((grid.header[0], *numbers), grid.rows)
    yield f"  {'; '.join(f'{number} {name}' for number, name in numbers.items())}"


def _aligned(header: Sequence[str], rows: Sequence[Sequence[Item]]) -> list[str]:
    cells = [list(header), *([escape(item.text) for item in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    padded = (zip(row, widths, strict=True) for row in cells)
    return ["  " + "  ".join(cell.ljust(width) for cell, width in row).rstrip() for row in padded]


def _markdown(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield from ("", f"### {_plain(block.text)}", "")
    elif isinstance(block, Line):
        code = f"`{block.code}`" if block.code else ""
        yield f"{'  ' * block.level}* {_plain(block.text)}{code}"
    elif isinstance(block, Grid):
        yield _bar(block.header)
        yield _bar(["---"] * len(block.header))
        yield from (_bar([item.text for item in row]) for row in block.rows)
        yield ""


def _bar(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(_plain, cells))} |"


def _plain(given: str) -> str:
    """Return a text with Markdown's own characters escaped."""
    found = html.escape(escape(given), quote=False)
    for each in "\\|*_`[]":
        found = found.replace(each, f"\\{each}")
    return found


def _html(block: Block, href: Href) -> str:
    if isinstance(block, Heading):
        return f"<h2>{html.escape(block.text)}</h2>"
    if isinstance(block, Line):
        code = f"<code>{html.escape(block.code)}</code>" if block.code else ""
        address = href(block.finding) if block.finding else ""
        link = f' <a href="{address}">picture</a>' if address else ""
        return f'<p class="l{block.level}">{html.escape(escape(block.text))}{code}{link}</p>'
    if isinstance(block, Listing):
        return f"<details><summary>the run</summary><pre>{html.escape(block.text)}</pre></details>"
    header = "".join(f"<th>{html.escape(each)}</th>" for each in block.header)
    rows = "\n".join(f"<tr>{''.join(_cell(each, href) for each in row)}</tr>" for row in block.rows)
    return f"<table>\n<tr>{header}</tr>\n{rows}\n</table>"


def _cell(item: Item, href: Href) -> str:
    kind = f' class="{item.kind.replace(" ", "-")}"' if item.kind else ""
    about = f' title="{html.escape(item.about)}"' if item.about else ""
    text = html.escape(escape(item.text))
    address = href(item.finding) if item.finding else ""
    linked = f'<a href="{address}">{text}</a>' if address else text
    return f"<td{kind}{about}>{linked}</td>"
