"""``racecheck gate``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click

from racecheck.gate import baseline, junit, layouts, pages
from racecheck.gate.baseline import Baseline
from racecheck.gate.judging import Terms
from racecheck.gate.result import Result, data
from racecheck.gate.running import Asked, Gate
from racecheck.model import config
from racecheck.model.errors import UsageError
from racecheck.model.nouns import World
from racecheck.report.progress import display, say
from racecheck.report.results import EXIT
from racecheck.targets.scenarios import COLLECTIVES, make_world
from racecheck.targets.suite import CHECKS, NAMES

INTERRUPTED = 130
_SHORTEST, _LONGEST = 1, 1_000_000
_STDOUT = Path("-")
_FILE = click.Path(path_type=Path)

_CHECKS = "\n".join(["\b", "The checks:", *(f"  {name:<28}{check.about}" for name, check in CHECKS.items())])


@click.command("gate", epilog=_CHECKS)
@click.argument("checkpointer", required=False)
@click.option("--all", "every", is_flag=True, help=f"Those that racecheck has adapters for: {', '.join(NAMES)}.")
@click.option("--check", "checks", multiple=True, metavar="NAME", help="Only this check; repeatable.")
@click.option("--storage", "storages", multiple=True, metavar="NAME", help="Only checks on this storage; repeatable.")
@click.option("--ranks", type=click.IntRange(1), help="How many ranks (default: 2, but where a check says more).")
@click.option("--collectives", metavar="KIND", help=f"{', '.join(COLLECTIVES)} (as early as MPI and NCCL allow).")
@click.option("--seconds", type=float, default=300.0, show_default=True, help="For each checkpointer, about.")
@click.option("--seed", default="0", show_default=True, help="What everything random is drawn from.")
@click.option("--baseline", "known", type=_FILE, metavar="FILE", help="Findings that are known do not fail.")
@click.option("--update-baseline", "update", is_flag=True, help="Write what was found to the baseline.")
@click.option(
    "--anew", is_flag=True, help="Make also the cells that an earlier gate, interrupted or of --all, has made."
)
@click.option("--junit", "junit_", type=_FILE, metavar="FILE", help="Write JUnit XML.")
@click.option("--markdown", type=_FILE, metavar="FILE", help="Write Markdown; - for standard output.")
@click.option("--html", "html_", type=_FILE, metavar="FILE", help="Write one HTML file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def gate(
    *,
    checkpointer: str | None,
    every: bool,
    checks: tuple[str, ...],
    storages: tuple[str, ...],
    ranks: int | None,
    collectives: str | None,
    seconds: float,
    seed: str,
    known: Path | None,
    update: bool,
    anew: bool,
    junit_: Path | None,
    markdown: Path | None,
    html_: Path | None,
    as_json: bool,
) -> int:
    """Judge a CHECKPOINTER by the conformance suite: package.module:Class, path/to/file.py::Class, or a known name."""
    if every == (checkpointer is not None):
        raise UsageError("name one checkpointer (package.module:Class), or give --all")
    if not _SHORTEST <= seconds <= _LONGEST:
        raise UsageError(f"--seconds must be from {_SHORTEST} to {_LONGEST}, not {seconds}")
    if update and known is None:
        raise UsageError("--update-baseline needs --baseline FILE, to be written")
    if as_json and markdown == _STDOUT:
        raise UsageError("standard output takes one of --json and --markdown -: give one of them a file")
    make_world(World(), collectives=collectives)
    findings = config.read().findings
    for file in (known if update else None, junit_, markdown, html_, findings / "gate.json"):
        _check_writable(file)
    before = baseline.load(known) if known is not None and (known.exists() or not update) else Baseline()
    asked = Asked([*NAMES] if checkpointer is None else [checkpointer], checks, storages, goes_on=every, anew=anew)
    with display("starting") as show:
        result = Gate(asked, Terms(ranks, seed, seconds, findings, collectives or "gloo"), _tell, show).run(before)
    if not result.cells and not result.interrupted and not result.wrong:
        raise UsageError("none of the checks is both among those named and on a storage named: leave one out")
    if update and known is not None and not result.interrupted:
        after = baseline.updated(before, result.comparison)
        baseline.save(after, known)
        result = replace(result, comparison=baseline.compare(result.cells, after))
    if markdown != _STDOUT:
        say(json.dumps(data(result)) if as_json else layouts.text(pages.blocks(result)))
    _write(result, junit_, markdown, html_)
    return INTERRUPTED if result.interrupted else EXIT[result.verdict]


def _write(result: Result, junit_: Path | None, markdown: Path | None, html_: Path | None) -> None:
    blocks = [*pages.blocks(result)]
    files: Sequence[tuple[Path | None, Callable[[], str]]] = (
        (junit_, lambda: junit.xml(result.cells, result.comparison)),
        (markdown, lambda: layouts.markdown(blocks)),
        (html_, lambda: layouts.page(blocks)),
    )
    for path, text in files:
        if path == _STDOUT:
            say(text().rstrip())
        elif path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text(), encoding="utf-8")
            except OSError as error:
                raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _check_writable(file: Path | None) -> None:
    """Before time is spent; raises `UsageError`."""
    if file is None or file == _STDOUT:
        return
    folder = file.absolute().parent
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    if file.is_dir() or not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write {file}: name a file in a directory of yours")


def _tell(line: str) -> None:
    """On standard error, above what is shown."""
    click.echo(" ".join(line.split()), err=True)
