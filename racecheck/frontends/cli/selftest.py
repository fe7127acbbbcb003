"""``racecheck selftest``."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from racecheck.crash.certify import selftest as certify
from racecheck.frontends.cli.options import JSON, Command, option
from racecheck.frontends.cli.output import EXIT
from racecheck.frontends.printing import say
from racecheck.frontends.working import display


@click.command("selftest", cls=Command, examples=("racecheck selftest --real-fs --programs 20 --fs ext4",))
@option("--real-fs", is_flag=True, required=True, help="Check the crash models against real file systems (required).")
@option(
    "--programs",
    type=click.IntRange(1),
    metavar="N",
    default=100,
    show_default=True,
    help="Random programs per file system.",
)
@option(
    "--fs",
    "names",
    multiple=True,
    type=click.Choice(certify.FILE_SYSTEMS),
    help="Only this file system (default: all); repeatable.",
)
@option("--seed", type=int, default=0, show_default=True, help="Random seed of the programs.")
@JSON
def selftest(*, real_fs: bool, programs: int, names: tuple[str, ...], seed: int, as_json: bool) -> int:
    """Check the crash models against real file systems by crashing random programs. Needs root."""
    del real_fs
    with display("crashing file systems") as show:
        done = certify.selftest(
            names, programs, seed, lambda fs, number: show(f"{fs}: {number} of {programs} programs")
        )
    data = {"verdict": done.verdict.name, "certificates": [asdict(each) for each in done.certificates]}
    say(json.dumps(data) if as_json else done.text)
    return EXIT[done.verdict]
