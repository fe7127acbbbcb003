"""The same failure with fewer ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from racecheck.errors import CannotRun, UsageError
from racecheck.minimise.attempts import Spent
from racecheck.minimise.failure import Fails
from racecheck.model import Outcome, World

Search = Callable[[World, int], Outcome | None]
"""Looks for a failing run of a world with so many runs at most; or raises `Spent`."""


@dataclass(frozen=True, slots=True)
class Smaller:
    """``outcome`` is a failing run of the smallest world that has one; None if that is the one that is known already.

    ``tried`` are the worlds in which none was found, and ``impossible`` says why others could not be run.
    """

    outcome: Outcome | None
    tried: tuple[World, ...]
    impossible: tuple[str, ...]


def fewer_ranks(outcome: Outcome, search: Search, fails: Fails, *, budget: int = 50) -> Smaller:
    """Look for the failure in smaller worlds, the smallest first, in each with ``budget`` runs at most."""
    tried: list[World] = []
    impossible: list[str] = []
    for world in smaller_worlds(outcome.world):
        try:
            found = search(world, budget)
        except Spent:
            break
        except (CannotRun, UsageError) as error:
            impossible.append(str(error))
            continue
        if found is not None and fails(found) is not None:
            return Smaller(found, tuple(tried), tuple(impossible))
        tried.append(world)
    return Smaller(None, tuple(tried), tuple(impossible))


def smaller_worlds(world: World) -> Iterator[World]:
    """Worlds of 2 ranks or more on as many nodes or fewer, in ascending order."""
    for ranks in range(2, world.ranks + 1):
        for nodes in range(1, world.nodes + 1):
            if ranks % nodes == 0 and (ranks, nodes) != (world.ranks, world.nodes):
                yield replace(world, ranks=ranks, nodes=nodes, skew=world.skew[:ranks])
