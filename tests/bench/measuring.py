"""Timing, statistics and printing for the benchmarks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from random import Random
from statistics import median

from racecheck import Outcome, Scenario
from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.invariants import judge
from racecheck.model import config
from racecheck.scheduling.strategies import RandomWalk, Replay
from racecheck.sessions.session import Session
from racecheck.supervisor.free import full_speed
from racecheck.targets import resolve
from racecheck.targets.scenarios import make_world

HERE = Path(__file__).parent
SCENARIOS = HERE.parents[1] / "scenarios"
TARGETS = HERE.parent / "programs"

Timed = Callable[[], float]
"""Does something and gives its seconds."""


@dataclass
class Bench:
    """How much to do, and what came out wrong."""

    quick: bool
    only: Sequence[str] = ()
    replays: int = 500
    wrong: list[str] = field(default_factory=list)

    def times(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def row(self, what: str, measured: str, target: str = "") -> None:
        print(f"  {what:<52} {measured:<40} {target and 'target: ' + target}".rstrip(), flush=True)

    def must(self, right: bool, what: str) -> None:
        """Note a wrong result; a slow machine is none."""
        if not right:
            self.wrong.append(what)
            print(f"  WRONG: {what}", flush=True)


@contextmanager
def session() -> Iterator[Session]:
    with Session(config.read().runs) as started:
        yield started


def load(name: str, *, ranks: int = 0) -> Scenario:
    """The scenario ``file::name`` of scenarios/ or of this directory, with ``ranks`` ranks if given."""
    file = name.partition("::")[0]
    base = SCENARIOS if (SCENARIOS / file).exists() else HERE
    found = copy(resolve.load(f"{base}/{name}"))
    found.world = make_world(found.world, ranks=ranks or None)
    return found


def schedules(started: Session, scenario: Scenario, seeds: Sequence[str], *, stacks: bool = True) -> Iterator[Outcome]:
    """A random walk from each seed, as a search runs them."""
    runner.warm_up(started, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    for seed in seeds:
        strategy = RandomWalk()
        strategy.begin(Random(seed))
        yield runner.run(started, RunRequest.of(scenario, scenario.world, strategy, seed="0", stacks=stacks))


def timed_schedules(started: Session, scenario: Scenario, outcomes: list[Outcome], block: int) -> Timed:
    """Seconds for a schedule (fork, init, run, teardown and judging, stacks on) in a search for ``block``."""

    def once() -> float:
        begun = time.perf_counter()
        seeds = [f"bench:{len(outcomes) + number}" for number in range(block)]
        for outcome in schedules(started, scenario, seeds):
            judge(outcome, scenario.invariants)
            outcomes.append(outcome)
        return (time.perf_counter() - begun) / block

    return once


def timed_free(started: Session, scenario: Scenario, block: int) -> Timed:
    """The same forked world at full speed."""

    def once() -> float:
        begun = time.perf_counter()
        for _ in range(block):
            judge(full_speed.run(started, scenario.reference, scenario.world, seed="0"), scenario.invariants)
        return (time.perf_counter() - begun) / block

    return once


@contextmanager
def timed_spawn(scenario: Scenario) -> Iterator[Timed]:
    """The same race with ``torch.multiprocessing.spawn``."""
    arguments = [scenario.reference, str(scenario.world.ranks), str(config.read().runs)]
    child = subprocess.Popen(
        [sys.executable, str(HERE / "spawned.py"), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    asking, answering = child.stdin, child.stdout

    def once() -> float:
        asking.write("\n")
        asking.flush()
        return float(answering.readline())

    try:
        yield once
    finally:
        child.communicate()


def medians(rounds: int, *competitors: Timed) -> list[float]:
    """Of the seconds of each competitor; they take turns, because the machine may be slower for a while.

    The first time of each is not counted.
    """
    for once in competitors:
        once()
    found = [[once() for once in competitors] for _ in range(rounds)]
    return [median(seconds) for seconds in zip(*found, strict=True)]


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Processes that do nothing, as fast as they can."""
    loop = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"  # who measures may be killed
    started = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(loops)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """The 95% interval for a probability (E. B. Wilson, JASA 22, 1927)."""
    z = 1.959964
    share = hits / tries
    middle = share + z * z / (2 * tries)
    spread = z * sqrt(share * (1 - share) / tries + z * z / (4 * tries * tries))
    scale = 1 + z * z / tries
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)
