"""``racecheck merge``: the verdict of a gate that was made in shards."""

from __future__ import annotations

from pathlib import Path

import click

from racecheck.frontends.cli.gate import before_of, check_outputs, of_result, told, updated
from racecheck.frontends.cli.options import Command
from racecheck.gate import baseline, shards
from racecheck.gate.result import GateResult
from racecheck.model import config
from racecheck.model.errors import UsageError


@click.command("merge", cls=Command, examples=("racecheck merge racecheck-shard-*-of-3.json --junit gate.xml",))
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@of_result
def merge(
    files: tuple[Path, ...],
    known: Path | None,
    update: bool,
    junit_: Path | None,
    markdown: Path | None,
    html_: Path | None,
    full: bool,
    as_json: bool,
) -> int:
    """Join the FILES of all shards of a gate: print and write what one machine would have."""
    if not files:
        raise UsageError("name the files that racecheck gate --shard has written: racecheck-shard-*-of-N.json")
    if update and known is None:
        raise UsageError("--update-baseline needs --baseline FILE")
    check_outputs(known if update else None, junit_, markdown, html_)
    found = shards.merged(files, config.read().findings)
    before = before_of(known, [*dict.fromkeys(each.checkpointer for each in found.cells)], update=update)
    result = GateResult(
        tuple(found.cells), baseline.compare(found.cells, before), found.terms, found.seconds, tuple(found.wrong)
    )
    if update and known is not None:
        result = updated(result, before, known)
    return told(result, junit_, markdown, html_, full=full, as_json=as_json)
