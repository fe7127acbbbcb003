"""``racecheck guide``: the pages of the guide, as the package ships them."""

from __future__ import annotations

import sys
from importlib import resources

import click

from racecheck.frontends.cli.options import Command
from racecheck.model.errors import UsageError
from racecheck.report.progress import printable, say

_PAGES = resources.files("racecheck") / "guide"
INDEX = "README"


def pages() -> list[str]:
    """Return the names of all pages but the index."""
    found = (each.name.removesuffix(".md") for each in _PAGES.iterdir() if each.name.endswith(".md"))
    return sorted(each for each in found if each != INDEX)


def page(name: str = INDEX) -> str:
    """Return the text of a page in Markdown.  Raise `UsageError` if there is no such page."""
    if name != INDEX and name not in pages():
        raise UsageError(f"unknown page {name!r}; pages: {', '.join(pages())}")
    return (_PAGES / f"{name}.md").read_text("utf-8")


@click.command("guide", cls=Command, examples=("racecheck guide", "racecheck guide faults"))
@click.argument("name", metavar="[PAGE]", default=INDEX)
def guide(name: str) -> None:
    """Show a PAGE of the guide, or the list of its pages.

    In a terminal the text is paged; in a pipe it is plain.
    """
    text = page(name.lower() if name != INDEX else name)
    if sys.stdout.isatty():
        click.echo_via_pager(printable(text))
    else:
        say(text)
