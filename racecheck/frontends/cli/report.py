"""``racecheck report`` and ``racecheck trace``: findings for the browser and for Perfetto."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from racecheck.frontends.cli.options import OUTPUT, Command, option
from racecheck.report.files import load, write_text
from racecheck.report.markdown import markdown
from racecheck.report.picture.document import write
from racecheck.report.progress import display, say
from racecheck.report.results import shown_path
from racecheck.report.trace_events import trace_json


@click.command(
    "report",
    cls=Command,
    examples=(
        "racecheck report .racecheck/overwrite/c811243b72.json",
        "racecheck report .racecheck/overwrite/c811243b72.json -o race.html",
        "racecheck report .racecheck/overwrite/c811243b72.json --markdown",
    ),
)
@click.argument("finding", type=click.Path(path_type=Path))
@option(
    "-o",
    "output",
    group=OUTPUT,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to this file (default: the page beside the finding, Markdown to standard output).",
)
@option("--markdown", "as_markdown", group=OUTPUT, is_flag=True, help="Write Markdown for an issue or a pull request.")
def report(finding: Path, output: Path | None, as_markdown: bool) -> None:
    """Draw FINDING as one HTML file: what failed, in which order, and the directory at each step."""
    if as_markdown:
        text = markdown(load(finding), f"racecheck replay {shlex.quote(shown_path(finding))}")
        if output is None:
            say(text.rstrip())
            return
        write_text(text, output, finding)
    else:
        with display("drawing the finding"):
            output = write(finding, output)
    say(shown_path(output))


@click.command(
    "trace",
    cls=Command,
    examples=("racecheck trace .racecheck/overwrite/c811243b72.json -o trace.json  # open it in ui.perfetto.dev",),
)
@click.argument("finding", type=click.Path(path_type=Path))
@option(
    "-o",
    "output",
    group=OUTPUT,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the trace to this file (default: beside the finding).",
)
def trace(finding: Path, output: Path | None) -> None:
    """Write the run of FINDING as a trace that Perfetto and chrome://tracing open."""
    path = output or finding.with_suffix(".trace.json")
    write_text(trace_json(load(finding)), path, finding)
    say(shown_path(path))
