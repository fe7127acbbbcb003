"""Blocks as text for a terminal, as Markdown, and as HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from racecheck.gate.pages import Card, Grid, Heading, ListItem, PageBlock, PageLine
from racecheck.report.picture.lists import list_page
from racecheck.report.words import escape

_MANY = 6
_ABOUT = (
    "racecheck runs checkpoint code in all orders that matter, kills it, and judges what a restart loads"
    " (<code>pip install torch-racecheck</code>)."
)

Href = Callable[[str], str]
"""Returns the address of the picture of a finding, "" if there is none."""


def text(blocks: Iterable[PageBlock], width: int = 120) -> str:
    """Return text for a terminal, with the run of the first defect alone."""
    every = [*blocks]
    first = next((each for each in every if isinstance(each, Card) and each.listing), None)
    return "\n".join(line for each in every for line in _text(each, width, is_first=each is first)).strip()


def markdown(blocks: Iterable[PageBlock]) -> str:
    """Return GitHub's Markdown."""
    return "\n".join(line for each in blocks for line in _markdown(each)).strip() + "\n"


def page(blocks: Iterable[PageBlock], href: Href = lambda _: "") -> str:
    """Return one HTML file that needs no other; failures link to the pictures of their findings."""
    return list_page("racecheck gate", section(blocks, href), _ABOUT)


def section(blocks: Iterable[PageBlock], href: Href = lambda _: "") -> str:
    """Return the blocks as HTML."""
    return "\n".join(_html(each, href, is_first=number == 0) for number, each in enumerate(blocks))


def _text(block: PageBlock, width: int, *, is_first: bool) -> Iterator[str]:
    if isinstance(block, Heading):
        yield from ("", block.text)
    elif isinstance(block, PageLine):
        yield _line(block)
    elif isinstance(block, Card):
        yield from ("", f"  {escape(block.title)}", *map(_line, block.lines))
        yield from ("", block.listing, "") if is_first else ()
    elif block.is_first:
        yield from ("", block.title) if block.title else ()
        yield from _columns(block, width)


def _line(line: PageLine) -> str:
    return f"{'  ' * (line.level + 1)}{escape(line.text)}{line.code}"


def _columns(grid: Grid, width: int) -> Iterator[str]:
    """Return an aligned table; where that is too wide, the columns have numbers, which are explained below."""
    lines = _aligned(grid.header, grid.rows)
    if max(map(len, lines)) <= width or len(grid.header) < _MANY:
        yield from lines
        return
    numbers = {str(number): name for number, name in enumerate(grid.header[1:], 1)}
    yield from _aligned((grid.header[0], *numbers), grid.rows)
    yield f"  {'; '.join(f'{number} {name}' for number, name in numbers.items())}"


def _aligned(header: Sequence[str], rows: Sequence[Sequence[ListItem]]) -> list[str]:
    cells = [list(header), *([escape(item.text) for item in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    padded = (zip(row, widths, strict=True) for row in cells)
    return ["  " + "  ".join(cell.ljust(width) for cell, width in row).rstrip() for row in padded]


def _markdown(block: PageBlock) -> Iterator[str]:
    if isinstance(block, Heading):
        yield from ("", f"### {_plain(block.text)}", "")
    elif isinstance(block, PageLine):
        yield _bullet(block, block.level)
    elif isinstance(block, Card):
        yield from ("", f"#### {_plain(block.title)}", "", *(_bullet(each, 0) for each in block.lines))
        yield from ("", *_folded(block.listing)) if block.listing else ()
    else:
        yield from ("", f"### {_plain(block.title)}", "") if block.title else ()
        yield _bar(block.header)
        yield _bar(["---"] * len(block.header))
        yield from (_bar([item.text for item in row]) for row in block.rows)
        yield ""


def _bullet(line: PageLine, level: int) -> str:
    return f"{'  ' * level}* {_plain(line.text)}{f'`{line.code}`' if line.code else ''}"


def _folded(listing: str) -> Iterator[str]:
    """Yield a listing that people unfold; the fence is longer than any in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", listing)), default=0))
    yield from ("<details><summary>the run</summary>", "", f"{fence}text", listing, fence, "", "</details>")


def _bar(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(_plain, cells))} |"


def _plain(given: str) -> str:
    """Return a text with Markdown's own characters escaped."""
    found = html.escape(escape(given), quote=False)
    for each in "\\|*_`[]":
        found = found.replace(each, f"\\{each}")
    return found


def _html(block: PageBlock, href: Href, *, is_first: bool) -> str:
    if isinstance(block, Heading):
        return f"<h1>{html.escape(block.text)}</h1>" if is_first else f"<h2>{html.escape(block.text)}</h2>"
    if isinstance(block, PageLine):
        return _paragraph(block, href)
    if isinstance(block, Card):
        return _card(block, href)
    header = "".join(f'<th scope="col">{html.escape(each)}</th>' if each else "<td></td>" for each in block.header)
    rows = "\n".join(_row(row, href) for row in block.rows)
    title = f"<h2>{html.escape(block.title)}</h2>\n" if block.title else ""
    about = html.escape(block.title or block.header[0])
    return (
        f'{title}<div class="wide" role="region" tabindex="0" aria-label="table: {about}">\n'
        f"<table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>"
    )


def _card(card: Card, href: Href) -> str:
    lines = "\n".join(_paragraph(each, href) for each in card.lines)
    listing = ""
    if card.listing:
        listing = (
            f'<details open><summary>the run</summary><pre tabindex="0">{html.escape(card.listing)}</pre></details>'
        )
    kind = "card defect" if card.counts else "card"
    return f'<section class="{kind}">\n<h3>{html.escape(escape(card.title))}</h3>\n{lines}\n{listing}</section>'


def _paragraph(line: PageLine, href: Href) -> str:
    code = f"<code>{html.escape(line.code)}</code>" if line.code else ""
    address = href(line.finding) if line.finding else ""
    link = f' <a href="{address}">picture</a>' if address else ""
    return f'<p class="l{line.level}">{html.escape(escape(line.text))}{code}{link}</p>'


def _row(row: Sequence[ListItem], href: Href) -> str:
    """Return a row, with a class that says whether anything in it failed, is unknown, or all is well."""
    kinds = {each.kind for each in row}
    worst = next((each for each in ("fail", "unknown") if each in kinds), "well")
    first, *others = row
    cells = "".join(_cell(each, href) for each in others)
    return f'<tr class="{worst}-row"><th scope="row">{_inner(first, href)}</th>{cells}</tr>'


def _cell(item: ListItem, href: Href) -> str:
    kind = f' class="{item.kind.replace(" ", "-")}"' if item.kind else ""
    about = f' title="{html.escape(item.about)}"' if item.about else ""
    return f"<td{kind}{about}>{_inner(item, href)}</td>"


def _inner(item: ListItem, href: Href) -> str:
    text = html.escape(escape(item.text))
    address = href(item.finding) if item.finding else ""
    return f'<a href="{address}">{text}</a>' if address else text
