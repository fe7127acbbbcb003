"""Timing, statistics and printing for the benchmarks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from random import Random

from racecheck import Outcome, Scenario, config, runner, targets
from racecheck.invariants import judge
from racecheck.strategies import RandomWalk
from racecheck.world import free
from racecheck.world.session import Session

HERE = Path(__file__).parent
SCENARIOS = HERE.parents[1] / "scenarios"

Timed = Callable[[], float]
"""Does something once and gives its seconds."""


@dataclass
class Bench:
    """How much to do, and what came out wrong."""

    quick: bool
    wrong: list[str] = field(default_factory=list)

    def times(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def row(self, what: str, measured: str, target: str = "") -> None:
        print(f"  {what:<44} {measured:<40} {target and 'target: ' + target}".rstrip(), flush=True)

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
    found = copy(targets.load(f"{base}/{name}"))
    found.world = targets.make_world(found.world, ranks=ranks or None)
    return found


def controlled(started: Session, scenario: Scenario, seed: str, *, stacks: bool = True) -> Outcome:
    """One schedule of a random walk."""
    strategy = RandomWalk()
    strategy.begin(Random(seed))
    return runner.run_once(started, scenario, scenario.world, strategy, seed="0", stacks=stacks)


def timed_schedule(started: Session, scenario: Scenario, outcomes: list[Outcome]) -> Timed:
    """Fork, init, run, teardown and judging of one schedule after another, stacks on."""

    def once() -> float:
        begun = time.perf_counter()
        outcome = controlled(started, scenario, f"bench:{len(outcomes)}")
        judge(outcome, scenario.invariants)
        outcomes.append(outcome)
        return time.perf_counter() - begun

    return once


def timed_free(started: Session, scenario: Scenario) -> Timed:
    """The same forked world at full speed."""

    def once() -> float:
        begun = time.perf_counter()
        judge(free.run(started, scenario.reference, scenario.world, seed="0"), scenario.invariants)
        return time.perf_counter() - begun

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


def interleaved(rounds: int, *competitors: tuple[Timed, int]) -> list[list[float]]:
    """Seconds of each competitor, each given with how often it runs in a round.

    They take turns because the machine may be slower for a while.  The first time of each is not counted.
    """
    for once, _ in competitors:
        once()
    found: list[list[float]] = [[] for _ in competitors]
    for _ in range(rounds):
        for seconds, (once, times) in zip(found, competitors, strict=True):
            seconds.extend(once() for _ in range(times))
    return found


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Processes that do nothing, as fast as they can."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
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
