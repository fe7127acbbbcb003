"""``racecheck run``: explore a scenario or a launch command."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from racecheck import faults, storage
from racecheck.explore import findings, search
from racecheck.explore import resume as saved
from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.runs.workers import Workers
from racecheck.frontends import launching
from racecheck.frontends.cli import program
from racecheck.frontends.cli.jobs import CLUSTER, JOBS, workers_of
from racecheck.frontends.cli.options import (
    COLLECTIVES_,
    GOES_WRONG,
    JSON,
    OUTPUT,
    RANKS,
    SEARCH,
    SEED,
    WHAT,
    check_findings,
    check_output,
    option,
    output_file,
)
from racecheck.frontends.cli.output import EXIT, INTERRUPTED, complain, unknown
from racecheck.frontends.cli.targets import load_invariant, load_target
from racecheck.frontends.cli.terminal import terminal_page
from racecheck.frontends.printing import say
from racecheck.frontends.working import Counter, Teller, with_session
from racecheck.model import config
from racecheck.model.config import Config
from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.nouns import Verdict, World
from racecheck.report import results
from racecheck.report.picture.document import write
from racecheck.report.results import Page
from racecheck.scheduling import strategies
from racecheck.sessions.doctor.examination import Starting
from racecheck.sessions.launchers import capture
from racecheck.targets.programs import sharing
from racecheck.targets.scenarios import LONGEST, Scenario, make_world

if TYPE_CHECKING:
    from racecheck.sessions.session import Session


@click.command(
    "run",
    cls=program.RunCommand,
    examples=(
        "racecheck run scenarios/test_readme.py::overwrite",
        "racecheck run mine.py::saves --ranks 4 --fault 'ENOSPC on write nth=each'",
        "racecheck run 'mypkg.saver:Mine[power-loss]' --seconds 60",
        "racecheck run -- torchrun --nproc-per-node=2 train.py",
        "racecheck run --watch checkpoints/my_run -- torchrun --nproc-per-node=4 train.py --overwrite",
    ),
)
@click.argument("target", nargs=-1, metavar="TARGET")
@program.WATCH
@program.FROM
@option(
    "--resume-with",
    group=WHAT,
    metavar="COMMAND",
    help="Launch this on what each run, kill and crash leaves: the recovery (default with --fault: the same command).",
)
@option(
    "--check-launcher",
    "compares",
    group=WHAT,
    is_flag=True,
    help="Explore nothing: compare one run by the real launcher with one by racecheck, op by op.",
)
@RANKS
@option("--nodes", group=WHAT, type=int, help="Number of nodes that share the ranks (default: the scenario's).")
@option(
    "--size",
    "sizes",
    group=WHAT,
    multiple=True,
    metavar="NAME=NUMBER",
    help="Set one of the scenario's sizes; repeatable.",
)
@option(
    "--invariant",
    "own",
    group=WHAT,
    multiple=True,
    metavar="FILE::NAME",
    help="Judge a COMMAND by this function of an Outcome, too; repeatable (racecheck guide invariants).",
)
@option(
    "--shared",
    group=WHAT,
    multiple=True,
    metavar="PATTERN",
    help="Let several ranks write the files of a COMMAND that match, such as '*.log'; repeatable.",
)
@option(
    "--storage",
    "storage_",
    group=WHAT,
    metavar="NAME",
    help=f"Storage model: {', '.join(storage.NAMES)}, optionally with (OPTIONS) (default: the scenario's).",
)
@option(
    "--mode",
    group=WHAT,
    type=click.Choice(["controlled", "free"]),
    default="controlled",
    show_default=True,
    help="controlled: racecheck orders every op; free: full speed, only faults are injected.",
)
@option(
    "--timeout",
    group=WHAT,
    type=float,
    metavar="SECONDS",
    help="Stop a run after this time without a next op, or of real-time waits in total (default: the scenario's).",
)
@option(
    "--strategy",
    group=SEARCH,
    metavar="NAME",
    help=f"Strategy: {', '.join(strategies.NAMES)} (default: auto). pct:N sets the depth.",
)
@option(
    "--schedules",
    group=SEARCH,
    type=click.IntRange(1),
    metavar="N",
    default=100,
    show_default=True,
    help="Maximum number of schedules.",
)
@option(
    "--seconds",
    group=SEARCH,
    type=float,
    metavar="SECONDS",
    help="Time budget: end the search after this time, also within a run (default: none).",
)
@option(
    "--explain",
    group=SEARCH,
    type=float,
    default=search.EXPLAIN,
    show_default=True,
    metavar="SECONDS",
    help="Processor time for the explanation of a failure, within --seconds; 0 turns it off.",
)
@JOBS
@CLUSTER
@option(
    "--keep-going",
    group=SEARCH,
    is_flag=True,
    help="Do not stop at a violation; list the distinct results of the runs. Explains none.",
)
@option(
    "--resume",
    group=SEARCH,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Continue a saved search (auto and dpor only).",
)
@SEED
@option(
    "--fault",
    "faults_",
    group=GOES_WRONG,
    multiple=True,
    metavar="SPEC",
    help=f"Inject a fault, such as 'EIO on fsync nth=each'; repeatable. Grammar: {faults.GRAMMAR}",
)
@option("--skew", group=GOES_WRONG, multiple=True, metavar="RANK=SECONDS", help="Set a rank's clock ahead; repeatable.")
@COLLECTIVES_
@option("--full", group=OUTPUT, is_flag=True, help="Do not shorten the interleaving.")
@option("--show-passing", group=OUTPUT, is_flag=True, help="Show the interleaving of a run that passed, too.")
@output_file("--html", "html_", does="If it fails, draw the finding as one HTML file.")
@JSON
def run(**given: Any) -> int:
    """Explore the scenario TARGET (path/to/file.py::name, package.module:name or CHECKPOINTER[check]), or a COMMAND."""
    options = Options(**given)
    options.check()
    settings = config.read()
    with ExitStack() as stack:
        workers = stack.enter_context(workers_of(options.jobs, options.cluster))
        scenario, starting = options.started(stack, settings, workers)
        stack.enter_context(starting)
        if options.compares:
            return program.compare(scenario, starting, seed=options.seed, as_json=options.as_json)
        asked = options.search(scenario, settings.findings)
        page = terminal_page(full=options.full, passing=options.show_passing)
        return _search(asked, starting, workers, page, options.html_, as_json=options.as_json)


@dataclass(frozen=True, slots=True)
class Options:
    """The arguments of the command, as people gave them."""

    target: tuple[str, ...]
    watch: Path | None
    from_: Path | None
    resume_with: str | None
    compares: bool
    ranks: int | None
    nodes: int | None
    skew: tuple[str, ...]
    collectives: str | None
    sizes: tuple[str, ...]
    own: tuple[str, ...]
    shared: tuple[str, ...]
    strategy: str | None
    schedules: int
    seconds: float | None
    explain: float
    jobs: int
    cluster: str | None
    keep_going: bool
    resume: Path | None
    seed: str
    mode: str
    storage_: str | None
    faults_: tuple[str, ...]
    timeout: float | None
    full: bool
    show_passing: bool
    html_: Path | None
    as_json: bool

    @property
    def is_free(self) -> bool:
        return self.mode == "free"

    @property
    def is_command(self) -> bool:
        return self.watch is not None or capture.is_launcher(self.target[0])

    def check(self) -> None:
        """Raise `UsageError` for errors that need no look at a scenario."""
        if self.is_free and self.strategy:
            raise UsageError("--strategy has no effect in free mode: leave it out")
        for name, limit in (("timeout", self.timeout), ("seconds", self.seconds)):
            if limit is not None and not 0 < limit <= LONGEST:  # float accepts nan
                raise UsageError(f"--{name} must be more than 0 and at most {LONGEST} seconds, not {limit}")
        if not 0 <= self.explain <= LONGEST:
            raise UsageError(f"--explain must be at least 0 and at most {LONGEST} seconds, not {self.explain}")
        if not self.target:
            raise UsageError("name a scenario (path/to/file.py::name) or a launch command (-- torchrun ... train.py)")

    def started(self, stack: ExitStack, settings: Config, workers: Workers) -> tuple[Scenario, Starting]:
        """Return the scenario, and its session to be; ``stack`` closes their resources.  Raises `UsageError`."""
        if not self.is_command:
            target = program.only_target(self.target, self.from_, self.resume_with, self.own)
            return launching.started(load_target(target), settings, self.faults_, workers)
        for each in self.own:
            load_invariant(each)
        again = "" if self.resume_with is None and self.faults_ and not self.compares else self.resume_with
        return launching.launched(
            stack, settings, workers, self.target, self.watch, self.from_, again, self.asks,
        )  # fmt: skip

    @property
    def asks(self) -> list[str]:
        """The places of the user's own invariants, which judge a launch command."""
        return [os.path.abspath(each) for each in self.own]

    def world(self, scenario: Scenario) -> World:
        """Return the world to run a scenario in; raises `UsageError`."""
        return make_world(
            scenario.world, ranks=self.ranks, nodes=self.nodes, storage=self.storage_, timeout=self.timeout,
            collectives=self.collectives, **({"skew": _skews(self.skew)} if self.skew else {}),
            **({"sizes": _numbers(self.sizes)} if self.sizes else {}),
            **({"faults": self.faults_} if self.faults_ else {}),
        )  # fmt: skip

    def search(self, scenario: Scenario, directory: Path) -> Search:
        """Return the search to make, whose findings go to a directory; raises `UsageError`."""
        world, strategy = self.world(scenario), self.strategy or strategies.DEFAULT
        launching.check(scenario, world, free=self.is_free)
        earlier = None
        if self.resume is not None:
            earlier = saved.load(self.resume, findings.reference(scenario), world, self.seed)
        strategies.make(strategy, world, earlier.progress if earlier is not None else None)
        check_findings(directory)
        if self.html_ is not None:
            check_output(self.html_)
        invariants = sharing(scenario.invariants, self.shared) if self.shared else scenario.invariants
        if self.is_command:
            invariants = (*invariants, *map(load_invariant, self.asks))
        return Search(
            scenario, world, invariants, strategy, self.schedules, self.seed, free=self.is_free,
            seconds=self.seconds or 0.0, keep_going=self.keep_going, earlier=earlier,
            explain=0.0 if self.keep_going else self.explain, findings=directory,
        )  # fmt: skip


def _search(
    asked: Search, starting: Starting, workers: Workers, page: Page, drawing: Path | None, *, as_json: bool
) -> int:
    """Make a search and print its result: a FAIL at once, and the explanation when it is there.

    Returns the exit status.
    """
    counter = Counter("schedule", "distinct", asked.schedules, limit=asked.seconds)
    budget = asked.schedules + (asked.earlier.past.runs if asked.earlier is not None else 0)
    announced = []

    def work(session: Session, tell: Teller) -> Report:
        def announce(report: Report) -> None:
            if not as_json:
                announced.append(report)
                tell.say(results.verdict_text(report, budget, page))

        return search.explore(session, asked, tell, announce, workers)

    try:
        report = with_session(starting, work, counter, f"{asked.world.ranks} ranks of {asked.scenario.name}")
    except CannotRun as error:
        report = search.unrun(asked, (counter.done, counter.counted, counter.seconds), error)
        if report.verdict is Verdict.UNKNOWN:
            return unknown(results.search_data(report), as_json=as_json)
    cut = _keep_cut(report, asked.findings)
    text = results.grounds_text(report, page, cut) if announced else results.search_text(report, budget, page, cut)
    say(json.dumps(results.search_data(report, cut)) if as_json else text)
    _draw(report, drawing)
    return INTERRUPTED if report.interrupted else EXIT[report.verdict]


def _draw(report: Report, file: Path | None) -> None:
    """Draw the first finding of a search, if one is asked for; an error here does not change the verdict."""
    if file is None:
        return
    if report.finding is None:
        complain(f"no finding to draw: {file} is not written", 0)
        return
    try:
        write(report.finding, file)
    except UsageError as error:
        complain(str(error), 0)


def _keep_cut(report: Report, directory: Path | None) -> Path | None:
    """Keep a search that has more to try."""
    if report.cut is None or directory is None:
        return None
    try:
        return saved.save(report.cut, directory)
    except UsageError as error:
        complain(f"the search was not kept, so it cannot be resumed: {error}", 0)
        return None


def _skews(given: Sequence[str]) -> tuple[float, ...]:
    """Return seconds by rank; raises `UsageError` for text that is no RANK=SECONDS."""
    found: dict[int, float] = {}
    for each in given:
        match = re.fullmatch(r"(\d{1,6})=([+-]?[\d.]+)", each)
        try:
            rank, seconds = (int(match[1]), float(match[2])) if match else (-1, 0.0)
        except ValueError:
            rank = -1
        if rank < 0:
            raise UsageError(f"--skew takes RANK=SECONDS, such as 1=0.5, not {each!r}")
        if rank in found:
            raise UsageError(f"--skew is given twice for rank {rank}: leave one out")
        found[rank] = seconds
    return tuple(found.get(rank, 0.0) for rank in range(max(found) + 1))


def _numbers(given: Sequence[str]) -> dict[str, int]:
    """Return sizes by name; raises `UsageError` for text that is no NAME=NUMBER."""
    found: dict[str, int] = {}
    for each in given:
        match = re.fullmatch(r"(\w+)=(\d{1,9})", each, re.ASCII)
        if match is None:
            raise UsageError(f"--size takes NAME=NUMBER, such as steps=3, not {each!r}")
        if match[1] in found:
            raise UsageError(f"--size is given twice for {match[1]}: leave one out")
        found[match[1]] = int(match[2])
    return found
