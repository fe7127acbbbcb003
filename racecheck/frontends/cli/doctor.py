"""``racecheck doctor``."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from racecheck.frontends.cli.options import JSON, Command
from racecheck.frontends.cli.output import EXIT
from racecheck.frontends.printing import say
from racecheck.frontends.working import display
from racecheck.model.nouns import Verdict
from racecheck.sessions.doctor import examination


@click.command("doctor", cls=Command, examples=("racecheck doctor",))
@JSON
def doctor(as_json: bool) -> int:
    """Check whether this machine can run controlled worlds, and how to fix what is missing."""
    with display("checking this machine"):
        checks = examination.check()
    verdict = Verdict.PASS if all(each.ok or not each.required for each in checks) else Verdict.UNKNOWN
    data = {"verdict": verdict.name, "checks": [asdict(each) for each in checks]}
    say(json.dumps(data) if as_json else examination.text(checks))
    return EXIT[verdict]
