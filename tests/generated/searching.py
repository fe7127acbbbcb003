"""Holds a search of the engine against all outcomes that a generated program has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from racecheck.model.errors import InternalError
from racecheck.scheduling.relation import Relation
from racecheck.scheduling.strategies import DPOR, Diverged

from . import judge
from .programs import Program, smaller
from .toy import Toy, world_of

_RUNS = 400


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search has found; ``claim`` is what it says of itself."""

    found: set[judge.Outcome]
    proof: bool
    claim: str
    runs: int


def search(program: Program, most: int = _RUNS, *, memory: bool = True) -> Searched:
    """The engine's exploration of a program in memory; without ``memory`` its threads share only what is controlled."""
    strategy = DPOR(Relation(world_of(program), memory=memory))
    found: set[judge.Outcome] = set()
    runs = 0
    while runs < most and strategy.begin(Random(0)):
        runs += 1
        outcome, effect = Toy(program, strategy.choose).run()
        strategy.end(outcome)
        found.add(effect)
    claim = str(strategy.claim())
    return Searched(found, claim.startswith("EXHAUSTED"), claim, runs)


def complaint(program: Program, most: int = _RUNS) -> str:
    """What is wrong with the search of a program, "" for nothing."""
    try:
        searched = search(program, most)
        every = judge.outcomes(program)
    except judge.TooMany:
        return ""
    except (InternalError, Diverged) as error:
        return f"{type(error).__name__}: {error}"
    if wrong := searched.found - every:
        return f"an outcome that cannot be: {wrong.pop()}"
    if searched.proof and (missed := every - searched.found):
        return f"{searched.claim}, and missed: {min(map(str, missed))}"
    return ""


def shrunk(program: Program, most: int = 300) -> Program:
    """A smaller program with something wrong of the same kind."""
    kind, tries = _kind(complaint(program)), iter(range(most))

    def steps(now: Program) -> Iterator[Program]:
        for each in smaller(now):
            if next(tries, None) is None:
                return
            if _fails(each, kind):
                yield each

    while (less := next(steps(program), None)) is not None:
        program = less
    return program


def _fails(program: Program, kind: str) -> bool:
    try:
        return _kind(complaint(program)) == kind
    except (KeyError, IndexError):
        return False


def _kind(text: str) -> str:
    return text.partition(" ")[0]
