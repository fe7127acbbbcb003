"""Tasks of `racecheck.explore.runs.tasks` without processes: a run is of a generated program, in memory."""

from __future__ import annotations

from collections.abc import Callable

from racecheck.explore.requests import RunRequest
from racecheck.model.nouns import Outcome
from racecheck.scheduling.strategies import Strategy
from tests.generated.programs import Program, dump, load
from tests.generated.toy import Toy, world_of


def requests_of(program: Program) -> Callable[[Strategy], RunRequest]:
    """Return a function from a steering to the request for its run; the target is the program as text."""
    return lambda steering: RunRequest(dump(program), world_of(program), steering, seed="0")


def run(session: object, request: RunRequest) -> Outcome:
    """Make a run as `racecheck.explore.runner.run` does."""
    del session
    outcome, _ = Toy(load(request.target), request.steering.choose).run()
    request.steering.end(outcome)
    return outcome
