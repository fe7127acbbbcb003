"""``racecheck report``: findings as pages for the browser."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from racecheck.explore import findings
from racecheck.frontends.cli.options import OUTPUT, Command, option
from racecheck.model.errors import UsageError
from racecheck.report.picture.document import page
from racecheck.report.progress import display, say
from racecheck.report.results import shown_path


@click.command(
    "report",
    cls=Command,
    examples=(
        "racecheck report .racecheck/overwrite/c811243b72.json",
        "racecheck report .racecheck/overwrite/c811243b72.json -o race.html",
    ),
)
@click.argument("finding", type=click.Path(path_type=Path))
@option(
    "-o",
    "output",
    group=OUTPUT,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the page to this file (default: beside the finding).",
)
def report(finding: Path, output: Path | None) -> None:
    """Draw FINDING as one HTML file: what failed, in which order, and the directory at each step."""
    with display("drawing the finding"):
        path = write(finding, output)
    say(str(shown_path(path)))


def write(finding: Path, output: Path | None = None) -> Path:
    """Write the page of a finding, beside it if no ``output`` is named; returns its path.  Raises `UsageError`."""
    found = findings.load(finding)
    path = output or finding.with_suffix(".html")
    if path.absolute() == finding.absolute():
        raise UsageError(f"{path} is the finding: name another file with -o")
    text = page(found, f"racecheck replay {shlex.quote(shown_path(finding))}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; name another file with -o") from None
    return path
