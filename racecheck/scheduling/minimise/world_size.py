"""The same failure in a smaller world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.nouns import Outcome, Size, World
from racecheck.scheduling.minimise.attempts import Spent
from racecheck.scheduling.minimise.failure import Fails

_OTHERS = 12

Search = Callable[[World, int], Outcome | None]
"""Looks for a certain run of a world with a limited number of runs; or raises `Spent`."""


@dataclass(slots=True)
class Smaller:
    """``outcome`` is a failing run of the smallest world that has one; None if that is the world already known.

    ``tried`` are the worlds in which none was found, and ``impossible`` says why others could not be run; ``cut``: not
    all were tried.
    """

    outcome: Outcome | None = None
    tried: list[World] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    cut: bool = False


def smaller_world(
    outcome: Outcome, search: Search, fails: Fails, *, budget: int = 50, passing: Search | None = None
) -> Smaller:
    """Look for the failure with whole calls, with fewer ranks, with smaller sizes, and without each of the faults.

    ``search`` looks for a failing run, ``passing`` for a passing one; it is None if all runs of the given world fail.
    Else a smaller world counts only if some of its runs pass: if all fail, the other side of the race may be missing.

    Each time the smallest comes first, and each world gets ``budget`` runs of each kind at most; with smaller sizes and
    fewer faults no more than `_OTHERS` worlds are tried.
    """
    smaller, world = Smaller(), outcome.world

    def take_first(worlds: Iterable[World]) -> World:
        """Return the first that fails, or the one that was known to."""
        for each in worlds:
            try:
                found = search(each, budget)
                is_one = found is not None and fails(found) is not None
                is_one = is_one and (passing is None or passing(each, budget) is not None)
            except (CannotRun, UsageError) as error:
                smaller.impossible.append(str(error))
                continue
            if is_one:
                smaller.outcome = found
                return each
            smaller.tried.append(each)
        return world

    try:
        if world.parts:
            world = take_first([replace(world, parts=())])
        for part in world.parts[: _OTHERS if len(world.parts) > 1 else 0]:
            world = take_first([replace(world, parts=tuple(each for each in world.parts if each != part))])
        world = take_first(fewer_ranks(world, 1 if passing is None else 2))
        most = len(smaller.tried) + _OTHERS
        for size in world.sizes:
            world = take_first(islice(resized(world, size), max(0, most - len(smaller.tried))))
        for fault in world.faults[: max(0, most - len(smaller.tried))]:
            world = take_first([replace(world, faults=tuple(each for each in world.faults if each is not fault))])
    except Spent:
        smaller.cut = True
    return smaller


def fewer_ranks(world: World, least: int = 1) -> Iterator[World]:
    """Return worlds of fewer ranks on as many nodes or fewer, or of as many on fewer, in ascending order."""
    for ranks in range(least, world.ranks + 1):
        for nodes in range(1, world.nodes + 1):
            if ranks % nodes == 0 and (ranks, nodes) != (world.ranks, world.nodes):
                yield replace(world, ranks=ranks, nodes=nodes, skew=world.skew[:ranks])


def resized(world: World, size: Size) -> Iterator[World]:
    """Return worlds in which that size is 1, 2, 4, ... and one less instead."""
    values = [1 << power for power in range((size.value - 1).bit_length())]
    for value in dict.fromkeys([*values, *([size.value - 1] if size.value > 1 else [])]):
        smaller = replace(size, value=value)
        yield replace(world, sizes=tuple(smaller if each == size else each for each in world.sizes))
