"""Searches of toy programs by DPOR, and a storage that a comparison with brute force has to notice."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from racecheck import Outcome, World
from racecheck.model.nouns import Op
from racecheck.model.ops.footprint import Footprint
from racecheck.scheduling.relation import Relation
from racecheck.scheduling.strategies import DPOR
from racecheck.storage.shared import Shared
from tests.support import toys
from tests.support.toys import Program


def runs(program: Program, strategy: DPOR) -> Iterator[Outcome]:
    """The runs of a search."""
    while strategy.begin(Random(0)):
        outcome = toys.run(program, strategy.choose)
        strategy.end(outcome)
        yield outcome


def searched(program: Program) -> tuple[DPOR, list[Outcome]]:
    strategy = DPOR(Relation(World(ranks=len(program.actors), faults=program.faults)))
    return strategy, [*runs(program, strategy)]


class Blind(Shared):
    """A storage that overlooks one kind of location."""

    def __init__(self, kind: str) -> None:
        super().__init__(World())
        self._kind = kind

    def footprint(self, op: Op) -> Footprint:
        return {where: mode for where, mode in super().footprint(op).items() if where.kind != self._kind}
