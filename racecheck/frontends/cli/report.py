"""``racecheck report``: findings as pages for the browser."""

from __future__ import annotations

from pathlib import Path

import click

from racecheck.frontends.cli.options import OUTPUT, Command, option
from racecheck.report.picture.document import write
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
