"""Blocks as text for a terminal, as Markdown, and as HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence

from racecheck.gate.pages import Block, Grid, Heading, Item, Line, Listing
from racecheck.report.words import escape

_MANY = 6
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { border: 1px solid #ccc; padding: .25rem .5rem; text-align: left; vertical-align: top; }
.fail { background: #f6c7c3; font-weight: bold; } .unknown { background: #fbe7b0; }
.exhausted { background: #b7e3bd; } .budget { background: #dff2df; } .not-held, .not-asked { color: #777; }
pre { background: #f5f5f5; padding: 1rem; overflow-x: auto; } code { background: #f5f5f5; }
.l1 { margin-left: 2rem; } .l2 { margin-left: 4rem; } p { margin: .2rem 0; }
@media (prefers-color-scheme: dark) {
  body { background: #1b1b1b; color: #ddd; } pre, code { background: #2a2a2a; } th, td { border-color: #555; }
  .fail { background: #7c2a24; } .unknown { background: #6b5410; } .exhausted { background: #1f5a2a; }
  .budget { background: #2c4a31; }
}
"""


def text(blocks: Iterable[Block], width: int = 120) -> str:
    """Return text for a terminal, with only the first of the listings."""
    return "\n".join(line for each in blocks for line in _text(each, width)).strip()


def markdown(blocks: Iterable[Block]) -> str:
    """Return GitHub's Markdown."""
    return "\n".join(line for each in blocks for line in _markdown(each)).strip() + "\n"


def page(blocks: Iterable[Block]) -> str:
    """Return one HTML file that needs no other."""
    body = "\n".join(map(_html, blocks))
    head = f'<meta charset="utf-8"><title>racecheck gate</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


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


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h2>{html.escape(block.text)}</h2>"
    if isinstance(block, Line):
        code = f"<code>{html.escape(block.code)}</code>" if block.code else ""
        return f'<p class="l{block.level}">{html.escape(escape(block.text))}{code}</p>'
    if isinstance(block, Listing):
        return f"<details><summary>the run</summary><pre>{html.escape(block.text)}</pre></details>"
    header = "".join(f"<th>{html.escape(each)}</th>" for each in block.header)
    rows = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in block.rows)
    return f"<table>\n<tr>{header}</tr>\n{rows}\n</table>"


def _cell(item: Item) -> str:
    kind = f' class="{item.kind.replace(" ", "-")}"' if item.kind else ""
    about = f' title="{html.escape(item.about)}"' if item.about else ""
    return f"<td{kind}{about}>{html.escape(escape(item.text))}</td>"
