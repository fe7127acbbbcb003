"""Programs whose threads wait for one another in memory: a schedule repeats, whatever the machine is busy with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.model import config
from racecheck.model.compare import first_difference
from racecheck.model.nouns import Returned
from racecheck.scheduling.strategies import RandomWalk, Replay
from racecheck.sessions.session import Session
from racecheck.targets.scenarios import Scenario
from tests.programs.waiting import COLLECTIVES, SAVES, WAYS
from tests.support import soak
from tests.support.targets import target

SIZES = (4, 1 << 12, 1 << 22)
"""Numbers of elements: torch releases the GIL for a moment, or for milliseconds."""

UNORDERED = {"pipe", "selected pipe", "sockets"}
"""The kernel wakes a thread that waits for these while the one that has written continues: what they then do to memory
is not ordered (`racecheck explain "two runs of the same schedule differ"`).
"""


def draw(rng: Random) -> dict[str, Any]:
    """A program of both ranks: their savers, and what the main threads do."""
    savers = [(rng.choice([*WAYS]), rng.choice([*SAVES]), rng.choice([*WAYS])) for _ in range(rng.randint(1, 3))]
    numbers = range(len(savers))
    middle = [f"go#{each}" for each in numbers] + ["update"] * rng.randint(0, 2) + ["touch"] * rng.randint(0, 1)
    middle += rng.choices([*COLLECTIVES], k=rng.randint(1, 3))
    rng.shuffle(middle)
    end = [f"join#{each}" for each in numbers] + ["update"] * rng.randint(0, 1)
    end += rng.choices([*COLLECTIVES], k=rng.randint(0, 2))
    rng.shuffle(end)
    return {
        "size": rng.choice(SIZES), "savers": savers, "main": [*(f"start#{each}" for each in numbers), *middle, *end]
    }  # fmt: skip


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Scenario, Path]]:
    """A session of its own: its ranks inherit the name of the program's file."""
    file = tmp_path_factory.mktemp("waiting") / "program.json"
    file.write_text(json.dumps(draw(Random(0))), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RACECHECK_PROGRAM", str(file))
        with Session(config.read().runs) as session:
            scenario = target("waiting", "carry_out")
            runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
            yield session, scenario, file


def check(carried_out: tuple[Session, Scenario, Path], seeds: Iterable[int]) -> None:
    session, scenario, file = carried_out
    for seed in seeds:
        program = draw(Random(seed))
        file.write_text(json.dumps(program), encoding="utf-8")
        walk = RandomWalk()
        walk.begin(Random(seed))
        first = runner.run(session, RunRequest.of(scenario, scenario.world, walk, seed="0", stacks=False))
        again = Replay(first.schedule)
        again.begin(Random(0))
        second = runner.run(session, RunRequest.of(scenario, scenario.world, again, seed="0", stacks=False))
        assert first.results == (Returned(None), Returned(None)), (seed, program)
        assert not first.coverage.holes, (seed, program)
        if UNORDERED.isdisjoint(way for told, _, done in program["savers"] for way in (told, done)):
            assert (again.divergence or first_difference(first, second)) == "", (seed, program)


def test_threads_that_wait_for_each_other_repeat(carried_out: tuple[Session, Scenario, Path]) -> None:
    check(carried_out, range(12))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(2))
def test_many_waiting_programs(carried_out: tuple[Session, Scenario, Path], chunk: int) -> None:
    check(carried_out, range(1000 * (chunk + 1), 1000 * (chunk + 1) + 30))


@pytest.mark.soak
def test_fresh_waiting_programs(carried_out: tuple[Session, Scenario, Path]) -> None:
    for seed in soak.seeds():
        check(carried_out, range(seed, seed + 1))
