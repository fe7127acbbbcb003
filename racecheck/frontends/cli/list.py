"""``racecheck list``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from racecheck.frontends.cli.options import JSON, Command
from racecheck.frontends.cli.output import complain
from racecheck.frontends.printing import say
from racecheck.frontends.working import display
from racecheck.targets import listing


@click.command("list", cls=Command, examples=("racecheck list", "racecheck list scenarios/test_readme.py"))
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@JSON
def list_(paths: tuple[str, ...], as_json: bool) -> int:
    """List the scenarios in files and directories (default: ./scenarios)."""
    with display("importing scenarios"):
        found = listing.scenarios(paths or ("scenarios",))
    if as_json:
        say(json.dumps(found))
    elif found["scenarios"]:
        say(_table(["target", "expected", "invariant", "report"], found["scenarios"]))
    else:
        complain(f"no scenarios in {', '.join(paths) or 'scenarios'}", 0)
    for each in () if as_json else found["broken"]:
        say(f"{each['file']}  not listed: {each['reason']}")
    return 0


def _table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    cells = [list(columns), *([str(row[column]) for column in columns] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    padded = (zip(row, widths, strict=True) for row in cells)
    return "\n".join("  ".join(cell.ljust(width) for cell, width in row).rstrip() for row in padded)
