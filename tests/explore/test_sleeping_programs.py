"""Programs of sleeps, daemons, children, kills and ends: none meets what racecheck calls a bug of its own."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from racecheck import faults
from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model import config
from racecheck.model.nouns import Outcome, Verdict, Violation, World
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from racecheck.targets.scenarios import Scenario
from tests.support import soak
from tests.support.targets import target

SCHEDULES = 8
LENGTHS = (0, 0.01, 0.5, 1, 2, 3, 4.9, 5, 6, 60, 3600)
FAULTS = ("kill on any nth=2", "kill-job on sleep", "term on any nth=3", "slow on stat seconds=3", "kill on unlink")
Step = tuple[Any, ...]


def draw(rng: Random) -> tuple[list[list[Step]], World]:
    """A program for two or three ranks, and the world that it runs in."""
    ranks = rng.choice((1, 2, 2, 2, 3))
    program = [[_step(rng, 2) for _ in range(rng.randint(1, 4))] for _ in range(ranks)]
    chosen = [faults.parse(rng.choice(FAULTS))] if rng.random() < 0.3 else []
    for steps in program:
        if rng.random() < 0.3:
            length = rng.choice(LENGTHS[1:])
            timer = rng.choice((("alarm", length, rng.random() < 0.7), ("limited", length, rng.choice(LENGTHS))))
            steps.insert(rng.randint(0, len(steps)), timer)
    return program, World(ranks=ranks, faults=tuple(chosen), max_ops=2000)


def _step(rng: Random, depth: int) -> Step:
    what = rng.choices(
        ("sleep", "look", "make", "remove", "poll", "thread", "child", "left", "wait", "end"),
        (6, 4, 4, 2, 3, 5 if depth else 0, 2, 1, 2, 1),
    )[0]  # fmt: skip
    name, length = rng.choice("ab"), rng.choice(LENGTHS)
    arguments: dict[str, tuple[Any, ...]] = {
        "sleep": (length,),
        "look": (name,),
        "make": (name,),
        "remove": (name,),
        "poll": (name, rng.choice((0.1, 0.5, 1)), rng.choice((1, 3, 20))),
        "child": (length, rng.choice((0.5, 2, 4))),
        "left": (length, rng.choice((signal.SIGTERM, signal.SIGKILL))),
        "wait": (rng.choice((0.1, 2, 7)),),
        "end": (rng.choice(("exit", "kill", "raise")),),
    }
    if what == "thread":
        steps = [_step(rng, depth - 1) for _ in range(rng.randint(1, 3))]
        return what, rng.random() < 0.6, rng.random() < 0.2, steps
    return what, *arguments[what]


def holds(_: Outcome) -> Iterator[Violation]:
    """An invariant of every run."""
    yield from ()


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Scenario, Path]]:
    """A session of its own: its ranks inherit the name of the program's file."""
    file = tmp_path_factory.mktemp("sleeping") / "program.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RACECHECK_PROGRAM", str(file))
        with Session(config.read().runs) as session:
            yield session, target("sleeping", "carry_out"), file


def search(carried_out: tuple[Session, Scenario, Path], seed: int) -> Report:
    session, scenario, file = carried_out
    program, world = draw(Random(seed))
    file.write_text(json.dumps(program), encoding="utf-8")
    return explore(session, Search(scenario, world, (holds,), schedules=SCHEDULES, stacks=False))


def check(carried_out: tuple[Session, Scenario, Path], seeds: Iterable[int]) -> str:
    claims: Counter[str] = Counter()
    for seed in seeds:
        report = search(carried_out, seed)
        said = [*report.reasons, *report.claim.against]
        program, _ = draw(Random(seed))
        wrong = [each for each in said if any(words in each for words in ("bug in racecheck", "differ", "no progress"))]
        assert not wrong, f"{seed}: {wrong}\n{program}"
        claims[str(report.claim).partition(":")[0]] += 1
    return str(dict(claims))


def test_sleeps_daemons_and_ends(carried_out: tuple[Session, Scenario, Path]) -> None:
    """In the first four a daemon sleeps longer than its rank lives: its sleep is in no race with the end.

    In the fifth a child handles the SIGTERM that ends its rank; in the sixth and seventh a timer interrupts a sleep.
    """
    print(check(carried_out, (0, 5, 26, 35, 101885, 101318, 101723, *range(40, 44))))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(2))
def test_many_sleeping_programs(carried_out: tuple[Session, Scenario, Path], chunk: int) -> None:
    print(check(carried_out, range(1000 * (chunk + 1), 1000 * (chunk + 1) + 50)))


@pytest.mark.soak
def test_fresh_sleeping_programs(carried_out: tuple[Session, Scenario, Path]) -> None:
    for seed in soak.seeds():
        check(carried_out, range(seed, seed + 1))


LONG = """
import time
import racecheck

@racecheck.scenario(ranks=2, max_ops=10**6)
def sleeps(rank):
    while time.monotonic() > 0:
        time.sleep(0.001)

@racecheck.scenario(ranks=1)
def computes(rank):
    while True:
        pass

@racecheck.scenario(ranks=2)
def changes(rank):
    for number in range(4):
        (rank.path / str(number)).touch()
        sum(range(2_000_000))
"""


@pytest.mark.parametrize(("name", "is_ended"), [("sleeps", False), ("computes", False), ("changes", True)])
def test_the_budget_ends_a_run(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_ended: bool
) -> None:
    monkeypatch.setattr("racecheck.explore.search.LEAST", 1)
    (tmp_path / f"long_{name}.py").write_text(LONG)
    scenario = resolve.load(f"{tmp_path / f'long_{name}.py'}::{name}")
    asked = Search(scenario, scenario.world, scenario.invariants, schedules=10_000, seconds=3)
    begun = time.monotonic()
    report = explore(session, asked)
    assert time.monotonic() - begun < 6
    assert not report.exhaustive
    if is_ended:
        assert report.verdict is Verdict.PASS
        assert report.schedules > 0
    else:
        assert report.verdict is Verdict.UNKNOWN
        assert report.reasons == ("no schedule was run to its end in 3 s",)
        assert report.schedules == 0
