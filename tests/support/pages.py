"""The README and the guide: their examples, the commands whose output they show, and their generated tables.

``python -m tests.support.pages`` writes the tables into the pages.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import click

import racecheck
from racecheck import invariants
from racecheck.frontends.cli.main import commands
from racecheck.gate.effort import EFFORTS, Effort
from racecheck.invariants.failures import first_line
from racecheck.model.nouns import Invariant
from racecheck.targets import listing
from racecheck.targets.suite import CHECKS, NAMES

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GUIDE = ROOT / "racecheck" / "guide"
PAGES = [README, ROOT / "scenarios" / "README.md", ROOT / "racecheck" / "README.md", *sorted(GUIDE.glob("*.md"))]

_SHOWN = re.compile(r"<!-- \$ (.+?) -->\n```text\n(.*?)\n```", re.DOTALL)
_FILE = re.compile(r"```python\n# ([\w/]+\.py)\n(.*?)```", re.DOTALL)
_TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(?=\n\n|\Z)", re.DOTALL)


def block(name: str, language: str) -> str:
    """The code block after the marker ``name`` of any page, without its last newline."""
    pattern = re.compile(rf"<!-- {name} -->\n```{language}\n(.*?)\n?```", re.DOTALL)
    found = [match[1] for page in PAGES for match in pattern.finditer(page.read_text())]
    assert len(found) == 1, f"{len(found)} blocks are called {name}"
    return found[0]


def shown() -> list[tuple[str, str]]:
    """The commands whose output a page shows, each with the name of the page."""
    return [(str(page.relative_to(ROOT)), match[1]) for page in PAGES for match in _SHOWN.finditer(page.read_text())]


def output(page: str, command: str) -> str:
    """What the page shows of a command's output."""
    (found,) = (match[2] for match in _SHOWN.finditer((ROOT / page).read_text()) if match[1] == command)
    return found


def files(page: str) -> dict[str, str]:
    """The Python files that a page shows whole, by path."""
    return {match[1]: f"# {match[1]}\n{match[2]}" for match in _FILE.finditer((ROOT / page).read_text())}


def run(page: str, command: str, directory: Path) -> str:
    """The output of a command, run in a directory with the repository's scenarios and the files that the page shows."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "scenarios", directory / "scenarios", ignore=ignored, dirs_exist_ok=True)
    for name, text in files(page).items():
        if not (directory / name).exists():
            (directory / name).write_text(text)
    for line in block("run", "bash").splitlines():
        if line.startswith("mkdir"):
            subprocess.run(["bash", "-c", line], cwd=directory, check=True)
    program, *arguments = shlex.split(command)
    assert program in {"racecheck", "pytest"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, "-m", program, *arguments],
        cwd=directory, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.rstrip() or done.stderr.rstrip()


def alike(text: str) -> str:
    """The text without what differs from machine to machine: seconds, and the number of calls that pass."""
    return re.sub(r"\d+ calls? outside", "N calls outside", re.sub(r"\b\d+(\.\d+)? ?s\b", "N s", text))


def is_shown(page: str, printed: str) -> bool:
    """Whether a page shows what was printed, where a line `` ...`` stands for any number of lines."""
    pattern = "".join(r"(?:.*\n)*?" if line == " ..." else re.escape(line) + r"\n" for line in alike(page).splitlines())
    return re.fullmatch(pattern, alike(printed) + "\n") is not None


def every_command() -> dict[str, click.Command]:
    """The commands of racecheck by name, all imported."""
    found = {name: commands.get_command(click.Context(commands), name) for name in commands.known}
    return {name: command for name, command in found.items() if command is not None}


def tables() -> dict[str, str]:
    """The tables that come from the code, by the name in their marker."""
    known = every_command()
    by_command = [(f"`racecheck {name}`", command.get_short_help_str(200)) for name, command in known.items()]
    found = {"rooms": _table(("room", "what it does"), _rooms()), "commands": _table(("command", "does"), by_command)}
    found["invariants"] = _table(("invariant", "holds if"), [_invariant(each) for each in invariants.ALL])
    found["checks"] = _table(("check", "what happens"), [(f"`{name}`", each.about) for name, each in CHECKS.items()])
    found["efforts"] = _table(
        ("effort", "checks", "faults of a check", "schedules of a check without faults", "disks that a crash leaves"),
        [_effort(each) for each in EFFORTS.values()],
    )
    found["evidence"] = _table(("what holds", "see for yourself"), _evidence())
    for name, command in known.items():
        rows = [_option(each) for each in command.params if isinstance(each, click.Option) and not each.hidden]
        if rows:
            found[f"options-{name}"] = _table((f"option of `{name}`", "meaning"), rows)
    return found


def _rooms() -> list[tuple[str, str]]:
    assert racecheck.__doc__ is not None
    rows = [line.split(maxsplit=1) for line in racecheck.__doc__.splitlines() if line.startswith("    ")]
    return [(f"`{name}`", words) for name, words in rows]


@cache
def _evidence() -> list[tuple[str, str]]:
    """What racecheck is checked by, with the command for it."""
    every = listing.scenarios([str(ROOT / "scenarios")])["scenarios"]
    reports = len({each["report"] for each in every if each["report"]})
    racy = sum(each["expected"] == "FAIL" for each in every)
    released = [name for name in NAMES if not name.startswith("control")]
    return [
        (
            f"{reports} reported races: {racy} scenarios fail as reported, and {len(every) - racy} pass, such as fixes",
            "`pytest -n 8 scenarios/`",
        ),
        (
            f"{len(released)} checkpointers of released libraries: [the findings](racecheck/guide/checkpointers.md)",
            "`racecheck gate --all`",
        ),
        ("Of random programs the search finds each trace once, as brute force does", "`pytest tests/scheduling`"),
        (
            "A crash leaves what the models of ext4, XFS and btrfs say",
            "`python -m tests.peers.file_systems.selftest` (needs root)",
        ),
        (
            "No file of yours changes: a layer takes what a launch command writes",
            "`pytest tests/frontends/test_cli_programs.py`",
        ),
    ]


def _invariant(each: Invariant) -> tuple[str, str]:
    star = " \\*" if each in invariants.DEFAULT else ""
    return f"`{each.__name__}`{star}", first_line(inspect.getdoc(each) or "").replace("``", "`")


def _effort(each: Effort) -> tuple[str, ...]:
    checks = [check for check in each.checks([*CHECKS.values()]) if not (check.needs or check.of_training)]
    limits = ("all" if limit is None else f"{limit:,}" for limit in (each.faults, each.schedules, each.states))
    return f"`{each.name}`", str(len(checks)), *limits


def _option(option: click.Option) -> tuple[str, str]:
    names, text = option.get_help_record(click.Context(click.Command(""))) or ("", "")
    return f"`{names}`", text


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def marked_tables() -> list[tuple[str, str, str]]:
    """Each generated table of the pages: the page, the name, and the text that is there."""
    return [
        (str(page.relative_to(ROOT)), match[2], match[0].removeprefix(match[1]))
        for page in PAGES
        for match in _TABLE.finditer(page.read_text())
    ]


if __name__ == "__main__":
    made = tables()
    for each in PAGES:
        each.write_text(_TABLE.sub(lambda match: match[1] + made[match[2]], each.read_text()))
