"""Standard output: text that any terminal, file or pipe can show."""

from __future__ import annotations

import re
import sys

import click

from racecheck.report.words import escape

_KEPT = re.compile(r"(\n|\x1b\[[\d;]*m)")
"""Line breaks and the sequences that set a colour."""


def say(text: str) -> None:
    """Print to standard output."""
    click.echo(printable(text))


def printable(text: str) -> str:
    """Return a text as standard output can show it: with line breaks and colours, but no other control characters."""
    encoding = sys.stdout.encoding or "utf-8"
    pieces = _KEPT.split(text)
    pieces[::2] = (each if each.isascii() and each.isprintable() else escape(each) for each in pieces[::2])
    return "".join(pieces).encode(encoding, "backslashreplace").decode(encoding)
