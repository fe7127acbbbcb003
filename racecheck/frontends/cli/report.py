"""``racecheck report``: findings for the browser, and for an issue."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from racecheck.frontends.cli.options import OUTPUT, WHAT, Command, finding_given, option, output_file
from racecheck.frontends.printing import say
from racecheck.frontends.working import display
from racecheck.gate import layouts, pages, store
from racecheck.model import config
from racecheck.model.errors import UsageError
from racecheck.report.files import load, write_text
from racecheck.report.markdown import markdown
from racecheck.report.picture.document import write
from racecheck.report.picture.lists import findings_below, href, index
from racecheck.report.results import shown_path


@click.command(
    "report",
    cls=Command,
    examples=(
        "racecheck report .racecheck/overwrite-8e53/b0e3dc349a.json",
        "racecheck report .racecheck/overwrite-8e53/b0e3dc349a.json -o race.html",
        "racecheck report .racecheck/overwrite-8e53/b0e3dc349a.json --markdown",
        "racecheck report --all",
    ),
)
@click.argument("finding", type=click.Path(path_type=Path), required=False)
@option("--all", "every", group=WHAT, is_flag=True, help="List and draw all findings, beside the matrix of a gate.")
@output_file(
    "-o", "output", does="Write to this file (default: the page beside the finding, Markdown to standard output)."
)
@option("--markdown", "as_markdown", group=OUTPUT, is_flag=True, help="Write Markdown for an issue or a pull request.")
def report(finding: Path | None, *, every: bool, output: Path | None, as_markdown: bool) -> None:
    """Draw FINDING as one HTML file: what failed, in which order, and the directory at each step."""
    if every and finding is not None:
        raise UsageError("name one finding or use --all, not both")
    if every and as_markdown:
        raise UsageError("--markdown takes one finding: leave out --all")
    if every:
        say(shown_path(_write_index(config.read().findings, output)))
        return
    finding = finding_given(finding)
    if as_markdown and output is None:
        say(_markdown(finding).rstrip())
    elif as_markdown and output is not None:
        write_text(_markdown(finding), output, finding)
        say(shown_path(output))
    else:
        with display("drawing the finding"):
            path = write(finding, output)
        say(shown_path(path))


def _markdown(finding: Path) -> str:
    return markdown(load(finding), f"racecheck replay {shlex.quote(shown_path(finding))}")


def _write_index(directory: Path, output: Path | None) -> Path:
    """Write the page that lists all findings; returns its path.  Raises `UsageError`."""
    path = output or directory / "index.html"
    with display("drawing findings") as show:
        listed = findings_below(directory, show)
    cells = store.kept(directory)
    drawn = {str(each.file.absolute()): each.page for each in listed if each.page is not None}

    def address(finding: str) -> str:
        page = drawn.get(str(Path(finding).absolute()))
        return href(page, path.parent) if page is not None else ""

    matrix = f"<h1>The last gate</h1>{layouts.section(pages.overview(cells), address)}" if cells else ""
    write_text(index(listed, path.parent, matrix), path)
    return path
