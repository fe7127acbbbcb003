"""The page that standard output shows: as wide and colourful as the terminal, or plain."""

from __future__ import annotations

from rich.console import Console

from racecheck.report.results import Page


def terminal_page(*, full: bool = False, passing: bool = False) -> Page:
    """Return the page of standard output.

    ``full``: interleavings are not shortened.  ``passing``: those of runs that passed are shown, too.
    """
    console = Console()
    if not console.is_terminal:
        return Page(full=full, passing=passing)
    colour = not console.no_color and console.color_system is not None
    return Page(console.width, colour=colour, full=full, cut=True, passing=passing)
