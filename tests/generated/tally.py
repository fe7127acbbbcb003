"""Many generated programs: how many were searched to the end, and what was missed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from racecheck.model.errors import InternalError
from racecheck.scheduling.strategies import Diverged

from . import judge
from .drawing import FEATURES, draw
from .programs import Program
from .searching import search


@dataclass(slots=True)
class Tally:
    """``missed`` are the seeds of programs about which a search is wrong, with what is wrong."""

    programs: Counter[str] = field(default_factory=Counter)
    proofs: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    outcomes: int = 0
    missed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        shares = ", ".join(f"{each} {self.proofs[each]}/{count}" for each, count in sorted(self.programs.items()))
        total = sum(self.programs.values())
        return f"{total} programs, {self.runs} runs, {self.outcomes} outcomes; EXHAUSTED: {shares}"


def program_of(seed: str) -> Program:
    """The program of a seed, "feature:number"."""
    return draw(Random(seed), seed.partition(":")[0])


def seeds(first: int, count: int, features: Iterable[str] = tuple(FEATURES)) -> list[str]:
    """So many seeds, the features in turn."""
    names = [*features]
    return [f"{names[number % len(names)]}:{number}" for number in range(first, first + count)]


def count(tally: Tally, seed: str, most: int = 400, *, memory: bool = True) -> None:
    """Search one program, and hold that against the judge; see `search`."""
    program, feature = program_of(seed), seed.partition(":")[0]
    try:
        every = judge.outcomes(program)
        searched = search(program, most, memory=memory)
    except judge.TooMany:
        return
    except (InternalError, Diverged) as error:
        tally.missed[seed] = f"{type(error).__name__}: {error}"
        return
    tally.programs[feature] += 1
    tally.proofs[feature] += searched.proof
    tally.runs += searched.runs
    tally.outcomes += len(every)
    if wrong := searched.found - every:
        tally.missed[seed] = f"an outcome that cannot be: {wrong.pop()}"
    elif searched.proof and (missed := every - searched.found):
        tally.missed[seed] = f"{searched.claim}, and missed: {min(map(str, missed))}"
