"""The effect of each single fault, as a table: op, line of code, loaded checkpoint, violations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from racecheck.explore.struck import Struck
from racecheck.report import words

KEYS = ("number", "op", "at", "fault", "loads", "breaks")
HEADER = ("", "op", "at", "fault", "a restart loads", "breaks")


def rows(found: Sequence[Struck]) -> Iterator[tuple[str, ...]]:
    """Return a row of `HEADER` for each op, in the order of the undisturbed run; violations are "" for none."""
    for each in sorted(found, key=lambda one: one.number):
        yield (
            str(each.number + 1),
            words.escape(f"rank {each.op.rank} {words.call_name(each.op)} {words.subject(each.op)}".rstrip()),
            words.line_of(each.op.stack or (), words.here()),
            each.fault,
            _loads(each),
            ", ".join(each.broken) or ("?" if each.is_doubtful else ""),
        )


def heading(found: Sequence[Struck]) -> str:
    """Return how many of the faults do harm."""
    harmful = sum(bool(each.broken) for each in found)
    breaks = f"{harmful or 'none'} break{'s' * (harmful == 1)} something"
    return f"{words.count(len(found), 'single fault')}, of which {breaks}"


def lines(found: Sequence[Struck]) -> list[str]:
    """Return the table as text, with a heading; none for no faults."""
    if not found:
        return []
    cells = [HEADER, *rows(found)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    table = ["  ".join(map(words.pad, row, widths)).rstrip() for row in cells]
    return [f"{heading(found)}:", *(f"  {each}" for each in table)]


def _loads(found: Struck) -> str:
    if found.fails:
        return "fails"
    if -1 in found.loaded:
        return "no saved step"
    return f"step {' or '.join(map(str, found.loaded))}" if found.loaded else "nothing"
