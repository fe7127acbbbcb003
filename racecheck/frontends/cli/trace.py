"""``racecheck trace``: a finding for Perfetto."""

from __future__ import annotations

from pathlib import Path

import click

from racecheck.frontends.cli.options import Command, finding_given, output_file
from racecheck.frontends.printing import say
from racecheck.report.files import load, write_text
from racecheck.report.results import shown_path
from racecheck.report.trace_events import trace_json


@click.command(
    "trace",
    cls=Command,
    examples=("racecheck trace .racecheck/overwrite-8e53/b0e3dc349a.json -o trace.json",),
)
@click.argument("finding", type=click.Path(path_type=Path), required=False)
@output_file("-o", "output", does="Write the trace to this file (default: beside the finding).")
def trace(finding: Path | None, output: Path | None) -> None:
    """Write the run of FINDING as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open."""
    finding = finding_given(finding)
    path = output or finding.with_suffix(".trace.json")
    write_text(trace_json(load(finding)), path, finding)
    say(shown_path(path))
