"""``racecheck guide``: the pages of the guide, as the package ships them."""

from __future__ import annotations

import shutil
import sys

import click
from rich.console import Console
from rich.markdown import Markdown

from racecheck.frontends.cli.options import Command
from racecheck.frontends.printing import printable, say
from racecheck.report.guide import INDEX, page


def _rendered(text: str) -> str:
    """Return Markdown as a terminal shows it."""
    console = Console(width=min(shutil.get_terminal_size().columns, _WIDTH))
    with console.capture() as found:
        console.print(Markdown(text))
    return found.get()


_WIDTH = 120


@click.command("guide", cls=Command, examples=("racecheck guide", "racecheck guide faults"))
@click.argument("name", metavar="[PAGE]", default=INDEX)
def guide(name: str) -> None:
    """Show a PAGE of the guide, or the list of its pages.

    In a terminal the text is paged; in a pipe it is plain.
    """
    text = page(name.lower() if name != INDEX else name)
    if sys.stdout.isatty():
        click.echo_via_pager(_rendered(printable(text)))
    else:
        say(text)
