"""Launch commands on the command line: capture the program, and watch its directory at its own path."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from racecheck.explore.launcher_check import check_launcher
from racecheck.frontends.cli.options import WHAT, Command, option
from racecheck.frontends.cli.output import EXIT
from racecheck.frontends.printing import say
from racecheck.frontends.working import display
from racecheck.kernel import given_files
from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.hints import meant
from racecheck.model.nouns import Verdict
from racecheck.report import comparison
from racecheck.sessions.doctor.examination import Starting
from racecheck.sessions.launchers import capture
from racecheck.targets.programs import Program
from racecheck.targets.scenarios import Scenario

WATCH = option(
    "--watch",
    group=WHAT,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where a launch command writes its checkpoints, . for the working directory: its ranks are controlled there. "
    "No real file changes (default: the directory in which one run leaves most checkpoints).",
)
FROM = option(
    "--from",
    "from_",
    group=WHAT,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The contents of the watched directory at the start of a run (default: its contents now).",
)


class RunCommand(Command):
    """The command that takes a launch command where others take a TARGET, with or without ``--`` before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _separated(args, self.params))


def _separated(words: list[str], known: Sequence[click.Parameter]) -> list[str]:
    """Return the words of a command line with ``--`` before a launch command, whose options are its own."""
    options = [each for each in known if isinstance(each, click.Option) and not each.is_flag]
    with_value = {name for each in options for name in each.opts}
    place = 0
    while place < len(words) and words[place] != "--":
        if not words[place].startswith("-"):
            is_one = capture.is_launcher(words[place]) or is_script(words[place])
            return [*words[:place], "--", *words[place:]] if is_one else words
        place += 2 if words[place] in with_value else 1
    return words


def is_script(word: str) -> bool:
    """Return whether a word names a Python file, and nothing in it."""
    return word.endswith(".py") and "::" not in word and Path(word).is_file()


def as_command(words: Sequence[str]) -> str:
    """Return the line with which racecheck runs a launch command, or a script as one."""
    launcher = ["torchrun", "--nproc-per-node=2"] if is_script(words[0]) else []
    return f"racecheck run -- {shlex.join([*launcher, *words])}"


def unknown_command(words: Sequence[str], known: Iterable[str]) -> str:
    """Return the answer to a command line that begins with no command of racecheck."""
    name = words[0]
    if capture.is_launcher(name) or is_script(name):
        return f"{name} is no command of racecheck; to run it: {as_command(words)}"
    if ":" in name:
        return f"{name} is no command of racecheck; to explore it: racecheck run {shlex.join(words)}"
    return f"unknown command {name!r}; {meant(name, known)}"


def only_target(words: Sequence[str], start: Path | None, resume_with: str | None, own: Sequence[str]) -> str:
    """Return the one target that was given; raises `UsageError` for several, and for options of launch commands."""
    if is_script(words[0]) and b"racecheck" not in given_files.read(Path(words[0])):
        raise UsageError(f"{words[0]} has no scenario; to run it as a training script: {as_command(words)}")
    if len(words) > 1:
        raise UsageError(f"name one TARGET, not {len(words)}; or a launch command, such as torchrun train.py")
    for name, given in (("--from", start), ("--resume-with", resume_with), ("--invariant", own or None)):
        if given is not None:
            raise UsageError(f"{name} is for a launch command: add -- COMMAND")
    return words[0]


def compare(scenario: Scenario, starting: Starting, *, seed: str, as_json: bool) -> int:
    """Compare one run by the real launcher with one by racecheck, and print the result; returns the exit status."""
    if not isinstance(scenario, Program):
        raise UsageError("--check-launcher is for a launch command: add --watch DIR -- COMMAND")
    if capture.is_script(scenario.launch.command) and not scenario.launch.in_script:
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
