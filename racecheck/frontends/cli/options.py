"""Commands whose help shows options in groups and examples at the end, and the options that several commands take."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from racecheck.kernel.real_files import real
from racecheck.model import config
from racecheck.model.errors import UsageError
from racecheck.targets.scenarios import COLLECTIVES, checked_seed

F = TypeVar("F", bound=Callable[..., Any])

_FINDING = re.compile(r"[0-9a-f]{10}\.json")
WHAT, SEARCH, GOES_WRONG, OUTPUT = "What to run", "How to search", "What goes wrong", "Output"


class Command(click.Command):
    """A command with ``examples``: lines that its help shows at the end."""

    def __init__(self, *given: Any, examples: Sequence[str] = (), **named: Any) -> None:
        super().__init__(*given, **named)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {each}\n" for each in self.examples))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx) if isinstance(each, click.Option) else None
            if record is not None:
                groups.setdefault(getattr(each, "group", "") or "Options", []).append(record)
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


class _GroupedOption(click.Option):
    def __init__(self, *given: Any, group: str = "", **named: Any) -> None:
        super().__init__(*given, **named)
        self.group = group


def option(*names: str, group: str = "", **named: Any) -> Callable[[F], F]:
    """Return `click.option` with the group that the option is shown in; "" is "Options"."""
    return click.option(*names, cls=_GroupedOption, group=group, **named)


def finding_given(finding: Path | None) -> Path:
    """Return the finding that a command was given; raises `UsageError` for none, with the newest one."""
    if finding is not None and finding != Path():
        return finding
    files = [each for each in config.read().findings.glob("*/*.json") if _FINDING.fullmatch(each.name)]
    newest = max(files, key=lambda each: each.stat().st_mtime_ns, default=None)
    hint = f"the newest is {newest}" if newest is not None else "racecheck run prints its path if it finds a failure"
    raise UsageError(f"name a finding; {hint}")


JSON = option("--json", "as_json", group=OUTPUT, is_flag=True, help="Print one JSON object.")
RANKS = option("--ranks", group=WHAT, type=int, help="Number of ranks (default: the scenario's).")
COLLECTIVES_ = option(
    "--collectives",
    group=GOES_WRONG,
    metavar="KIND",
    help=f"When collectives return: {' or '.join(COLLECTIVES)}; weakest is as early as MPI and NCCL allow.",
)
SEED = option(
    "--seed", group=SEARCH, default="0", show_default=True, help="Random seed.",
    callback=lambda _context, _option, seed: checked_seed(seed),
)  # fmt: skip


def output_file(*names: str, does: str) -> Callable[[F], F]:
    """Return the option that names a file to write; ``does`` is its help text."""
    return option(*names, group=OUTPUT, type=click.Path(path_type=Path), metavar="FILE", help=does)


def check_output(file: Path) -> None:
    """Raise `UsageError` before time is spent, if a file that is asked for cannot be written."""
    folder = real(file.absolute()).parent
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    if real(file).is_dir() or not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write {file}: name a file in a writable directory")


def check_findings(directory: Path) -> None:
    """Raise `UsageError` before a search is spent on a finding that cannot be kept."""
    directory, folder = directory.absolute(), real(directory)
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write findings to {directory}: set RACECHECK_FINDINGS")
