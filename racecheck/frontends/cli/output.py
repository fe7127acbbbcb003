"""The last lines that commands print, and their exit statuses."""

from __future__ import annotations

import json
from typing import Any

import click

from racecheck.frontends.printing import say
from racecheck.model.nouns import Verdict
from racecheck.report.words import escape

WRONG, INTERRUPTED = 2, 130
EXIT = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 3}
"""The exit status that goes with a verdict."""


def complain(text: str, status: int) -> int:
    """Print one line to standard error; returns ``status``."""
    click.echo(f"racecheck: {escape(' '.join(text.split()))}", err=True)
    return status


def unknown(data: dict[str, Any], *, as_json: bool) -> int:
    """Report that a run was impossible; returns the exit status.  ``data`` has the reasons."""
    say(json.dumps(data) if as_json else f"UNKNOWN  {data['reasons'][0]}")
    return EXIT[Verdict.UNKNOWN]
