"""Launch commands on the command line: capture the program, and watch its directory at its own path."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from racecheck.explore.launcher_check import check_launcher
from racecheck.frontends.cli.output import EXIT
from racecheck.frontends.printing import say
from racecheck.frontends.working import display
from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.nouns import Verdict
from racecheck.processes.doctor.examination import Starting
from racecheck.report import comparison
from racecheck.targets.programs import Program
from racecheck.targets.scenarios import Scenario


def only_target(words: Sequence[str], start: Path | None, resume_with: str | None) -> str:
    """Return the one target that was given; raises `UsageError` for a command without ``--watch``."""
    if len(words) > 1:
        raise UsageError("name one TARGET, or the directory that a launch command writes to: --watch DIR -- COMMAND")
    for option, given in (("--from", start), ("--resume-with", resume_with)):
        if given is not None:
            raise UsageError(f"{option} is for a launch command: add --watch DIR -- COMMAND")
    return words[0]


def compare(scenario: Scenario, starting: Starting, *, seed: str, as_json: bool) -> int:
    """Compare one run by the real launcher with one by racecheck, and print the result; returns the exit status."""
    if not isinstance(scenario, Program):
        raise UsageError("--check-launcher is for a launch command: add --watch DIR -- COMMAND")
    if scenario.launch.spawns:
        raise UsageError("--check-launcher is for a launcher; a script starts its ranks itself")
    launcher = Path(scenario.launch.command[0]).name
    with display(f"running {launcher}, then racecheck"), starting.lent() as session:
        try:
            found = check_launcher(session, scenario, seed=seed)
        except CannotRun as error:
            data = {"verdict": Verdict.UNKNOWN.name, "reasons": [str(error)]}
            say(json.dumps(data) if as_json else f"UNKNOWN  {error}")
            return EXIT[Verdict.UNKNOWN]
    say(json.dumps(comparison.data(found)) if as_json else comparison.text(found))
    return EXIT[found.verdict]
