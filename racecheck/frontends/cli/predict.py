"""``racecheck predict``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from racecheck import storage
from racecheck.explore import predicting
from racecheck.explore.predicting import Foreseen
from racecheck.explore.requests import Search
from racecheck.frontends import launching
from racecheck.frontends.cli.options import COLLECTIVES_, JSON, RANKS, SEED, Command, check_findings
from racecheck.frontends.cli.output import EXIT, unknown
from racecheck.frontends.cli.targets import load_target
from racecheck.frontends.cli.terminal import terminal_page
from racecheck.frontends.printing import say
from racecheck.frontends.working import Counter, with_session
from racecheck.model import config
from racecheck.model.errors import CannotRun
from racecheck.report import results
from racecheck.targets.scenarios import make_world

if TYPE_CHECKING:
    from racecheck.explore.runner import Progress
    from racecheck.sessions.session import Session


@click.command("predict", cls=Command, examples=("racecheck predict scenarios/test_makedirs_without_barrier.py::racy",))
@click.argument("target")
@RANKS
@SEED
@COLLECTIVES_
@JSON
def predict(target: str, ranks: int | None, collectives: str | None, seed: str, as_json: bool) -> int:
    """Find the races of one passing run of TARGET, and what each collective orders."""
    settings = config.read()
    scenario, starting = launching.started(load_target(target), settings)
    with starting:
        world = make_world(scenario.world, ranks=ranks, collectives=collectives)
        storage.make(world)
        check_findings(settings.findings)
        counter = Counter("race", "tried", 0)

        def work(session: Session, progress: Progress) -> Foreseen:
            asked = Search(scenario, world, scenario.invariants, seed=seed, findings=settings.findings)
            return predicting.foresee(session, asked, progress)

        try:
            found = with_session(starting, work, counter)
        except CannotRun as error:
            return unknown({"target": scenario.target, "verdict": "UNKNOWN", "reasons": [str(error)]}, as_json=as_json)
    say(json.dumps(results.prediction_data(found)) if as_json else results.prediction_text(found, terminal_page()))
    return EXIT[found.verdict]
