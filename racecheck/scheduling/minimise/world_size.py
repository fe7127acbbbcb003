"""The same failure in a smaller world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.nouns import Outcome, Size, World
from racecheck.scheduling.minimise.attempts import Spent
from racecheck.scheduling.minimise.failure import Fails

_T = TypeVar("_T")
_OTHERS = 12
_AGREEING = 5
"""How many runs are made with clocks that agree, if they were apart."""

FindRun = Callable[[World, int], Outcome | None]
"""Looks for a certain run of a world with a limited number of runs; or raises `Spent`."""


@dataclass(slots=True)
class Smaller:
    """``outcome`` is a failing run of the smallest world that has one; None if that is the world already known.

    ``tried`` are the worlds in which none was found, and ``impossible`` says why others could not be run; ``cut``: not
    all were tried.  ``agreeing`` is how many runs with clocks that agree were made, if none of them fails.
    """

    outcome: Outcome | None = None
    tried: list[World] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    cut: bool = False
    agreeing: int = 0


def smaller_world(
    outcome: Outcome, search: FindRun, fails: Fails, *, budget: int = 50, passing: FindRun | None = None
) -> Smaller:
    """Look for the failure with clocks that agree and with whole calls, then in a smaller world.

    That has fewer ranks, smaller sizes, and lacks some of the faults.

    ``search`` looks for a failing run, ``passing`` for a passing one; it is None if all runs of the given world fail.
    Else a smaller world counts only if some of its runs pass: if all fail, the other side of the race may be missing.

    Each time the smallest comes first, and each world gets ``budget`` runs of each kind at most; with smaller sizes and
    fewer faults no more than `_OTHERS` worlds are tried.
    """
    steps = _WorldShrinking(outcome.world, search, fails, budget, passing)
    try:
        steps.take()
    except Spent:
        steps.smaller.cut = True
    return steps.smaller


@dataclass(slots=True)
class _WorldShrinking:
    """The search for a smaller world; ``world`` is the smallest known one."""

    world: World
    search: FindRun
    fails: Fails
    budget: int
    passing: FindRun | None
    smaller: Smaller = field(default_factory=Smaller)

    def take(self) -> None:
        if _are_apart(self.world):
            self._take_first([replace(self.world, skew=())], _AGREEING)
            self.smaller.agreeing = _AGREEING * _are_apart(self.world)
        if self.world.parts:
            self._take_first([replace(self.world, parts=())])
        for part in self.world.parts[: _OTHERS if len(self.world.parts) > 1 else 0]:
            self._take_first([replace(self.world, parts=_without(self.world.parts, part))])
        self._take_first(fewer_ranks(self.world, 1 if self.passing is None else 2))
        most = len(self.smaller.tried) + _OTHERS
        for size in self.world.sizes:
            self._take_first(islice(resized(self.world, size), max(0, most - len(self.smaller.tried))))
        for fault in self.world.faults[: max(0, most - len(self.smaller.tried))]:
            self._take_first([replace(self.world, faults=_without(self.world.faults, fault))])

    def _take_first(self, worlds: Iterable[World], runs: int = 0) -> None:
        """Take the first that fails, if one does; ``runs`` of each kind, or the budget."""
        for each in worlds:
            try:
                found = self._failing(each, runs or self.budget)
            except (CannotRun, UsageError) as error:
                self.smaller.impossible.append(str(error))
                continue
            if found is not None:
                self.smaller.outcome, self.world = found, each
                return
            self.smaller.tried.append(each)

    def _failing(self, world: World, runs: int) -> Outcome | None:
        """Return a failing run of a world, if some of its runs pass, as far as that is asked."""
        found = self.search(world, runs)
        if found is None or self.fails(found) is None:
            return None
        return found if self.passing is None or self.passing(world, runs) is not None else None


def _are_apart(world: World) -> bool:
    """Return whether clocks of ranks differ."""
    return len({*world.skew, *[0.0] * (world.ranks - len(world.skew))}) > 1


def _without(every: tuple[_T, ...], one: _T) -> tuple[_T, ...]:
    return tuple(each for each in every if each is not one)


def fewer_ranks(world: World, least: int = 1) -> Iterator[World]:
    """Return worlds of fewer ranks on as many nodes or fewer, or of as many on fewer, in ascending order."""
    for ranks in range(least, world.ranks + 1):
        for nodes in range(1, world.nodes + 1):
            if ranks % nodes == 0 and (ranks, nodes) != (world.ranks, world.nodes):
                yield replace(world, ranks=ranks, nodes=nodes, skew=_fewer(world.skew, ranks))


def _fewer(skew: tuple[float, ...], ranks: int) -> tuple[float, ...]:
    """Return the clocks of fewer ranks; they are apart if they were, unless there is only one."""
    first, others = skew[:ranks], [each for each in skew[ranks:] if each != skew[0]]
    return (*first[:-1], others[0]) if ranks > 1 and len({*first}) == 1 and others else first


def resized(world: World, size: Size) -> Iterator[World]:
    """Return worlds in which that size is 1, 2, 4, ... and one less instead."""
    values = [1 << power for power in range((size.value - 1).bit_length())]
    for value in dict.fromkeys([*values, *([size.value - 1] if size.value > 1 else [])]):
        smaller = replace(size, value=value)
        yield replace(world, sizes=tuple(smaller if each == size else each for each in world.sizes))
