"""Toy programs that fail, and runs of them as those who minimise want them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from racecheck import Op, Outcome, Violation, World
from racecheck.model.nouns import Invariant
from racecheck.scheduling.minimise import Attempt, Failure, same_failure
from racecheck.scheduling.strategies import RandomWalk, Strategy
from tests.support import toys
from tests.support.toys import Do, Program

ENSURE = Do("stat", "d", otherwise=(Do("mkdir", "d"),))


def noise(name: str, count: int) -> tuple[Do, ...]:
    """What is of no importance."""
    return tuple(Do("stat", f"{name}{number}") for number in range(count))


def attempts(program: Program) -> Attempt:
    """Runs of a program; a smaller world is that of its first actors."""

    def attempt(world: World, strategy: Strategy) -> Outcome:
        found = toys.run(replace(program, actors=program.actors[: world.ranks]), strategy.choose)
        strategy.end(found)
        return found

    return attempt


def run(program: Program, strategy: Strategy, seed: object = 0, *, ranks: int = 0) -> Outcome:
    strategy.begin(Random(str(seed)))
    return attempts(program)(World(ranks=ranks or len(program.actors)), strategy)


def no_errors(outcome: Outcome) -> Iterator[Violation]:
    """Every op goes well; to look in vain is no failure."""
    for index, event in enumerate(outcome.trace):
        if isinstance(event, Op) and event.call != "stat" and event.result is not None and event.result.errno:
            yield Violation("no-errors", event.label, (event.rank,), (index,))


def failing(program: Program, invariant: Invariant) -> tuple[Outcome, Failure]:
    """A failing run of a random walk, and what is the same failure."""
    for seed in range(500):
        found = run(program, RandomWalk(), seed)
        for violation in invariant(found):
            return found, same_failure(found, violation, [invariant])
    raise AssertionError("no run fails")
