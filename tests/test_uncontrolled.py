"""Each scenario once at full speed: what came of it must be something that exploring finds, too.

Otherwise control has taken something away from the program, and a PASS would say nothing.

With 2 ranks no scenario has more than seven effects, and of 400 schedules each, the rarest came from one in
a hundred.  So `BUDGET` schedules miss an effect that a free run has had with a probability of at most
0.99 ** 1000 = 4e-5, and free runs have the rare ones rarely, too (one in a hundred): a false alarm in two
million runs.  The common effects take a few schedules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from racecheck import Outcome, Scenario, World, compare, runner, storage, targets
from racecheck.model import Event, Point
from racecheck.scenarios import make_world
from racecheck.world import free
from racecheck.world.session import Session

BUDGET = 1000
FILES = sorted((Path(__file__).parents[1] / "scenarios").glob("test_*.py"))
SCENARIOS = [
    each
    for file in FILES
    for each in targets.scenarios_in(targets.load_file(file))
    if not (storage.make(each.world).per_node or storage.view(each.world) or each.world.skew or each.world.faults)
]
"""Without control there is one disk, one clock, and nothing that goes wrong."""
RANDOM_CONTENT = (".metadata",)
"""DCP's metadata has an id in it that is random where nobody answers ``getrandom`` from a seed."""


class Bursts:
    """Carries on with the same thread, or not, with a probability that is drawn for each run.

    Uncontrolled ranks run in bursts, too; a random walk hardly ever does.
    """

    def begin(self, rng: Random) -> bool:
        self._rng, self._carry_on = rng, rng.choice([0.0, 0.5, 0.8, 0.95])
        return True

    def choose(self, point: Point) -> int:
        return 0 if self._rng.random() < self._carry_on else self._rng.randrange(len(point.options))

    def end(self, trace: tuple[Event, ...]) -> None:
        pass


def effect(outcome: Outcome) -> object:
    """What came of a run, comparable between free and controlled ones."""
    disk = {
        path: replace(entry, digest="") if path.endswith(RANDOM_CONTENT) else entry
        for path, entry in outcome.disk.items()
    }
    return compare.effect(replace(outcome, disk=disk))


def explored(session: Session, scenario: Scenario, world: World) -> Iterator[object]:
    """The effects of `BUDGET` schedules, one after another."""
    strategy = Bursts()
    for number in range(BUDGET):
        strategy.begin(Random(f"uncontrolled:{number}"))
        yield effect(runner.run_once(session, scenario, world, strategy, seed="0", stacks=False))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_free_run_is_among_the_explored(session: Session, scenario: Scenario) -> None:
    world = make_world(scenario.world, ranks=2, timeout=10)
    session.request("import", target=scenario.reference)
    happened = effect(free.run(session, scenario.reference, world, seed="0"))
    assert happened in explored(session, scenario, world)
