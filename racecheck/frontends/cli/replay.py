"""``racecheck replay``: run the schedule of a finding again."""

from __future__ import annotations

import copy
import inspect
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from racecheck import invariants
from racecheck.explore import replaying
from racecheck.explore.findings import Finding
from racecheck.explore.runs.workers import Workers
from racecheck.frontends import launching
from racecheck.frontends.cli import trust as trusting
from racecheck.frontends.cli.jobs import CLUSTER, JOBS, workers_of
from racecheck.frontends.cli.options import JSON, Command, finding_given, option
from racecheck.frontends.cli.output import EXIT, complain, unknown
from racecheck.frontends.cli.targets import find_target, load_invariant
from racecheck.frontends.cli.terminal import terminal_page
from racecheck.frontends.printing import say
from racecheck.frontends.working import Counter, with_session
from racecheck.model import config
from racecheck.model.config import Config
from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.nouns import Invariant
from racecheck.report import results
from racecheck.report.files import load
from racecheck.targets.scenarios import Scenario, checked_seed, make_world

if TYPE_CHECKING:
    from racecheck.explore.replaying import Replayed
    from racecheck.explore.runner import Progress
    from racecheck.sessions.session import Session


@click.command(
    "replay",
    cls=Command,
    examples=(
        "racecheck replay .racecheck/overwrite-8e53/b0e3dc349a.json",
        "racecheck replay .racecheck/overwrite-8e53/b0e3dc349a.json --constraints --trust",
    ),
)
@click.argument("finding", type=click.Path(path_type=Path), required=False)
@option("--times", type=click.IntRange(1), metavar="N", default=20, show_default=True, help="Number of runs.")
@option(
    "--constraints",
    is_flag=True,
    help="Replay only the finding's orderings, with random schedules: works after the code has changed.",
)
@JOBS
@CLUSTER
@option("--trust", is_flag=True, help="Run code that has changed, or that is not below the current directory.")
@JSON
def replay(
    finding: Path | None, times: int, constraints: bool, jobs: int, cluster: str | None, trust: bool, as_json: bool
) -> int:
    """Run the schedule of FINDING again and count how often it reproduces."""
    finding = finding_given(finding)
    found = load(finding)
    if constraints and not found.constraints:
        again = f"racecheck run {found.scenario.target}"
        raise UsageError(f"{finding} has no constraints: create a new finding with {again}")
    settings = config.read()
    scenario = _scenario_of(found, settings, changed=constraints, trust=trust)

    def work(workers: Workers, session: Session, progress: Progress) -> Replayed:
        again = replaying.replay_constraints if constraints else replaying.replay
        return again(session, scenario, found, times, progress, workers)

    counter = Counter("time", "reproduced", times)
    try:
        with workers_of(jobs, cluster, times) as workers:
            starting = launching.starting_of(scenario, settings, found.slot, workers)
            with starting:
                done = with_session(starting, partial(work, workers), counter)
    except CannotRun as error:
        data = {"times": times, "reproduced": counter.counted, "diverged": 0, "verdict": "UNKNOWN"}
        return unknown({**data, "divergence": "", "reasons": [str(error)]}, as_json=as_json)
    if done.elsewhere:
        complain(f"a run in a worker's directory differs ({done.elsewhere}); the runs of this one count", 0)
    moved = found.launch is None and starting.slot is not None and starting.slot.number != found.slot
    if done.diverged and moved:
        complain(f"the path of the finding has the number {found.slot:04d}, which was in use: try again later", 0)
    text = results.replay_text(found, done, terminal_page())
    say(json.dumps(results.replay_data(done)) if as_json else text)
    return EXIT[done.verdict]


def _scenario_of(finding: Finding, settings: Config, *, changed: bool, trust: bool) -> Scenario:
    """Return the scenario of a finding, as it was or as it is now (``changed``), once it may be run.

    Raises `UsageError` if it is gone.
    """
    make_world(finding.outcome.world)
    checked_seed(finding.seed)
    if finding.launch is not None:
        made: Scenario = trusting.program_of(finding, finding.launch, settings.findings, changed=changed, trust=trust)
    else:
        made = find_target(trusting.place_of(finding, changed=changed, trust=trust))
    scenario = copy.copy(made)
    scenario.invariants = _asked(finding, scenario)
    return scenario


def _asked(finding: Finding, scenario: Scenario) -> tuple[Invariant, ...]:
    """Return the invariants that the finding was judged by: the scenario's, its module's, or racecheck's own.

    Of the module only functions of one argument that it defines itself count: a finding calls nothing else.
    """
    own = [each for each in vars(sys.modules[scenario.module]).values() if _could_judge(each, scenario.module)]
    own += [load_invariant(each) for each in (finding.launch.asks if finding.launch is not None else ())]
    known = {invariants.name_of(each): each for each in (*invariants.ALL, *own, *scenario.invariants)}
    missing = [name for name in finding.invariants if name not in known]
    if missing:
        names = ", ".join(missing)
        raise UsageError(f"the finding was judged by {names}, not found now: define the function in {scenario.file}")
    return tuple(known[name] for name in finding.invariants)


def _could_judge(each: object, module: str) -> bool:
    return inspect.isfunction(each) and each.__module__ == module and len(inspect.signature(each).parameters) == 1
