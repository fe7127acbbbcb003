"""``racecheck gate``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from racecheck.frontends.cli.jobs import CLUSTER, JOBS, workers_of
from racecheck.frontends.cli.options import (
    COLLECTIVES_,
    JSON,
    OUTPUT,
    SEARCH,
    SEED,
    WHAT,
    Command,
    F,
    check_output,
    option,
    output_file,
)
from racecheck.frontends.cli.output import EXIT, INTERRUPTED
from racecheck.frontends.printing import say
from racecheck.frontends.working import display
from racecheck.gate import baseline, junit, layouts, pages, parts, shards
from racecheck.gate.baseline import Baseline
from racecheck.gate.effort import DEFAULT, EFFORTS
from racecheck.gate.result import GateResult, data
from racecheck.gate.running import Asked, Gate
from racecheck.gate.tasks import Terms
from racecheck.model import config
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Verdict, World
from racecheck.report.picture.document import write
from racecheck.report.picture.lists import href
from racecheck.report.words import escape
from racecheck.targets.scenarios import make_world
from racecheck.targets.suite import CHECKS, NAMES

_SHORTEST, _LONGEST = 1, 1_000_000
_STDOUT = Path("-")
_NAMED = 5
"""The most names of checkpointers in an error."""
_FILE = click.Path(path_type=Path)

_KNOWN = "Known findings"
_CHECKS = "\n".join(["\b", "The checks:", *(f"  {name:<32} {check.about}" for name, check in CHECKS.items())])


def of_result(command: F) -> F:
    """Add the options of a gate's result: the known findings, and the files to write."""
    known = option(
        "--baseline",
        "known",
        group=_KNOWN,
        type=_FILE,
        metavar="FILE",
        help="Findings that do not fail the gate (default: none).",
    )
    update = option(
        "--update-baseline", "update", group=_KNOWN, is_flag=True, help="Write the findings to the baseline file."
    )
    junit_ = output_file("--junit", "junit_", does="Write JUnit XML.")
    markdown = output_file("--markdown", does="Write Markdown; - for standard output.")
    html = output_file("--html", "html_", does="Write one HTML file.")
    full = option("--full", group=OUTPUT, is_flag=True, help="Show whole exception texts.")
    for each in (JSON, full, html, markdown, junit_, update, known):
        command = each(command)
    return command


@click.command(
    "gate",
    cls=Command,
    epilog=_CHECKS,
    examples=(
        "racecheck gate mypkg.saver:Mine --effort quick --junit gate.xml",
        "racecheck gate mine.py::Mine --check kill --check power-loss",
        "racecheck gate --all --html matrix.html",
    ),
)
@click.argument("checkpointer", required=False)
@option("--all", "every", group=WHAT, is_flag=True, help=f"Every known checkpointer: {', '.join(NAMES)}.")
@option("--check", "checks", group=WHAT, multiple=True, metavar="NAME", help="Only this check; repeatable.")
@option(
    "--storage",
    "storages",
    group=WHAT,
    multiple=True,
    metavar="NAME",
    help="Only checks on this storage model; repeatable.",
)
@option(
    "--ranks",
    group=WHAT,
    type=click.IntRange(1),
    metavar="N",
    help="Number of ranks (default: 2, unless a check sets its own).",
)
@option(
    "--effort",
    group=SEARCH,
    type=click.Choice([*EFFORTS]),
    default=DEFAULT,
    show_default=True,
    help="How much is tried; the same on every machine.",
)
@option(
    "--seconds",
    group=SEARCH,
    type=float,
    metavar="SECONDS",
    help="Time limit for each checkpointer; checks cut off by it are UNKNOWN (default: none).",
)
@SEED
@JOBS
@CLUSTER
@option(
    "--shard",
    group=SEARCH,
    metavar="I/N",
    help="Make part I of N of the checks, and write one file; racecheck merge joins the files.",
)
@option("--fresh", group=SEARCH, is_flag=True, help="Ignore the cached results of an earlier gate.")
@COLLECTIVES_
@of_result
def gate(
    *,
    checkpointer: str | None,
    every: bool,
    checks: tuple[str, ...],
    storages: tuple[str, ...],
    ranks: int | None,
    collectives: str | None,
    effort: str,
    seconds: float | None,
    seed: str,
    known: Path | None,
    update: bool,
    fresh: bool,
    jobs: int,
    cluster: str | None,
    shard: str | None,
    junit_: Path | None,
    markdown: Path | None,
    html_: Path | None,
    full: bool,
    as_json: bool,
) -> int:
    """Run the conformance suite on a CHECKPOINTER: package.module:Class, path/to/file.py::Class or a known name."""
    if every == (checkpointer is not None):
        some = ", ".join([*NAMES][:_NAMED])
        raise UsageError(f"name one checkpointer (package.module:Class, or {some}, ...) or use --all, not both")
    if seconds is not None and not _SHORTEST <= seconds <= _LONGEST:
        raise UsageError(f"--seconds must be from {_SHORTEST} to {_LONGEST}, not {seconds}")
    if update and known is None:
        raise UsageError("--update-baseline needs --baseline FILE")
    if as_json and markdown == _STDOUT:
        raise UsageError("--json and --markdown - both write to standard output: give --markdown a file")
    make_world(World(), collectives=collectives)
    part = parts.part(shard) if shard is not None else None
    if part is not None and (known or junit_ or markdown or html_ or as_json):
        raise UsageError("--shard: give --baseline, --json and the files to write to racecheck merge")
    findings = config.read().findings
    own = shards.file_of(part) if part is not None else None
    check_outputs(known if update else None, junit_, markdown, html_, findings / "gate.json", own)
    names = [*NAMES] if checkpointer is None else [checkpointer]
    before = before_of(known, names, update=update)
    asked = Asked(names, checks, storages, goes_on=every, fresh=fresh)
    with workers_of(jobs, cluster) as workers, display("starting") as show:
        terms = Terms(ranks, seed, effort, seconds or 0.0, findings, collectives or "gloo")
        one = Gate(asked, terms, _tell, show, workers, part)
        if part is not None:
            return _part(one)
        result = one.run(before)
    if not result.cells and not result.interrupted and not result.wrong:
        raise UsageError("no check matches both --check and --storage: leave one out")
    if update and known is not None and not result.interrupted:
        result = updated(result, before, known)
    return told(result, junit_, markdown, html_, full=full, as_json=as_json)


def told(
    result: GateResult, junit_: Path | None, markdown: Path | None, html_: Path | None, *, full: bool, as_json: bool
) -> int:
    """Print a result, and write it to the files that are asked for; returns the exit status."""
    if markdown != _STDOUT:
        say(json.dumps(data(result)) if as_json else layouts.text(pages.blocks(result, full=full)))
    _write(result, junit_, markdown, html_, full=full)
    return INTERRUPTED if result.interrupted else EXIT[result.verdict]


def check_outputs(*files: Path | None) -> None:
    """Raise `UsageError` for a file that cannot be written; None and - are none."""
    for file in files:
        if file is not None and file != _STDOUT:
            check_output(file)


def _part(gate_: Gate) -> int:
    """Make a shard and write its file; returns the exit status, which is 0 even if checks fail."""
    made = gate_.shard()
    if made is None:
        return INTERRUPTED
    file, total = shards.save(made), sum(len(each.checks) for each in made.work.checkpointers.values())
    say(
        f"shard {made.part.number} of {made.part.count}: {len(made.cells)} of {total} checks are in {file}\n"
        f"Verdict: racecheck merge racecheck-shard-*-of-{made.part.count}.json"
    )
    return 0


def before_of(known: Path | None, names: Sequence[str], *, update: bool) -> Baseline:
    """Return the baseline, and say so if it is about other checkpointers; one to be written need not be there yet."""
    if known is None or (update and not known.exists()):
        return Baseline()
    before = baseline.load(known)
    if others := baseline.others(before, names):
        _tell(f"racecheck: {known} has no line about {names[0]}; its lines are about {', '.join(others)}")
    return before


def updated(result: GateResult, before: Baseline, known: Path) -> GateResult:
    """Write the baseline and return the result compared with it; a gate that is UNKNOWN otherwise writes none."""
    after = baseline.updated(before, result.comparison)
    compared = baseline.compare(result.cells, after)
    if baseline.verdict(result.cells, compared) is Verdict.UNKNOWN:
        _tell(f"racecheck: {known} was not written: this gate is UNKNOWN but for its findings; see the reasons below")
        return result
    baseline.save(after, known)
    return replace(result, comparison=compared)


def _write(
    result: GateResult, junit_: Path | None, markdown: Path | None, html_: Path | None, *, full: bool = False
) -> None:
    blocks = [*pages.blocks(result, full=full)]
    files: Sequence[tuple[Path | None, Callable[[], str]]] = (
        (junit_, lambda: junit.xml(result.cells, result.comparison)),
        (markdown, lambda: layouts.markdown(blocks)),
        (html_, lambda: layouts.page(blocks, partial(_picture, start=(html_ or _STDOUT).parent))),
    )
    for path, text in files:
        if path == _STDOUT:
            say(text().rstrip())
        elif path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text(), encoding="utf-8", errors="backslashreplace")
            except OSError as error:
                raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _picture(finding: str, start: Path) -> str:
    """Draw a finding and return the address of its page; "" if it is gone or cannot be drawn."""
    with suppress(UsageError):
        return href(write(Path(finding)), start)
    return ""


def _tell(line: str) -> None:
    """Print lines to standard error, above the live line."""
    click.echo(escape(" ".join(line.split())), err=True)
