"""One run of a scenario in tests/programs under control, and what is in it."""

from __future__ import annotations

from random import Random

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.model.nouns import Collective, Outcome, Returned
from racecheck.scheduling.strategies import RandomWalk, Replay
from racecheck.sessions.session import Session
from racecheck.targets.scenarios import make_world
from tests.support.targets import target


def run(session: Session, name: str, *, seed: int = 0, file: str = "worlds", ranks: int | None = None) -> Outcome:
    scenario = target(file, name)
    world = make_world(scenario.world, ranks=ranks)
    runner.warm_up(session, RunRequest.of(scenario, world, Replay(()), seed="0"))
    strategy = RandomWalk()
    strategy.begin(Random(seed))
    return runner.run(session, RunRequest.of(scenario, world, strategy, seed="0"))


def controlled(session: Session, file: str, name: str) -> Outcome:
    """A run in which nothing went by the real clock."""
    outcome = run(session, name, file=file)
    assert not outcome.coverage.holes
    return outcome


def made(outcome: Outcome) -> list[str]:
    """The files that were opened to be made, in order."""
    return [op.path for op in outcome.ops if op.call == "open" and "O_CREAT" in op.flags]


def collectives(outcome: Outcome) -> list[Collective]:
    return [event for event in outcome.trace if isinstance(event, Collective)]


def values(outcome: Outcome) -> list[object]:
    assert all(isinstance(each, Returned) for each in outcome.results), outcome.results
    return [each.value for each in outcome.results if isinstance(each, Returned)]
