"""The options of commands that make several runs at once, and the workers that make them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import click
from click.core import ParameterSource

from racecheck.explore.runs.workers import Workers
from racecheck.frontends import cluster
from racecheck.frontends.cli.options import SEARCH, option
from racecheck.frontends.cli.output import complain
from racecheck.model import config

JOBS = option(
    "--jobs", group=SEARCH, type=click.IntRange(1, config.MOST_JOBS), metavar="N",
    help="Make N runs at once; the result is the same (default: RACECHECK_JOBS, or the usable cores).",
    callback=lambda _context, _option, jobs: jobs or config.jobs(),
)  # fmt: skip

CLUSTER = option(
    "--cluster", group=SEARCH, metavar="ADDRESS",
    help=f"Make runs on the nodes of a Ray cluster, too: HOST:PORT, or {cluster.LOCAL}. --jobs limits how many.",
)  # fmt: skip


@contextmanager
def workers_of(jobs: int, address: str | None, most: int = config.MOST_JOBS) -> Iterator[Workers]:
    """Lend workers for ``jobs`` runs at once, ``most`` at most, on this machine or in a cluster.

    At the end says which of them were not used.  Raises `UsageError` if there is no such cluster.
    """
    count = min(jobs, most) - 1
    if address is not None:
        is_limited = click.get_current_context().get_parameter_source("jobs") is not ParameterSource.DEFAULT
        there = cluster.cores(address)
        count = min(there, most - 1, jobs - 1 if is_limited else there)
    with Workers(count, address or "") as found:
        try:
            yield found
        finally:
            for why, times in Counter(found.lost).items():
                several = f"{times} workers were" if times > 1 else "a worker was"
                complain(f"{several} not used, or not to the end: {why}", 0)
