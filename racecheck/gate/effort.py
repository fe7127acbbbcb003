"""How much a gate tries: an effort is counts alone, so that one commit has one result on every machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from racecheck.explore.requests import Search
from racecheck.faults import hits
from racecheck.model.nouns import Op, Outcome, World
from racecheck.storage import make
from racecheck.targets.scenarios import Scenario
from racecheck.targets.suite import Check

_STATES_IN_A_RUN = 60
"""About how many crash states are loaded in the time of a run."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is tried of each check.

    ``is_all``: every check, and not only those with `Check.quick`.  ``faults`` is how many
    single faults and stale reads of the default schedule are tried (None: all), ``schedules`` how many schedules of a
    check that has no faults, and ``crashed`` how many runs are cut by power loss.  ``states`` is how many disks
    that a crash may leave the recovery loads for each run and model (None: all), ``explained`` how many defects are
    explained (None: all).
    """

    name: str
    is_all: bool
    faults: int | None
    schedules: int
    crashed: int
    states: int | None
    explained: int | None

    def checks(self, asked: Sequence[Check]) -> list[Check]:
        """Return those of the checks that this effort makes."""
        return [each for each in asked if self.is_all or each.quick]

    def search(self, scenario: Scenario, world: World) -> Search:
        """Return the search of a check."""
        if is_swept(world):
            strategy, schedules = "round-robin", 1
        else:
            strategy, schedules = "auto", self.crashed if _has_crashes(world) else self.schedules
        swept = sys.maxsize if self.faults is None else self.faults
        return Search(
            scenario, world, scenario.invariants, strategy, schedules, swept=swept, states=self.states, keep_going=True
        )


EFFORTS: Mapping[str, Effort] = {
    each.name: each
    for each in (
        Effort("quick", is_all=False, faults=16, schedules=4, crashed=1, states=200, explained=1),
        Effort("normal", is_all=True, faults=24, schedules=5, crashed=1, states=300, explained=2),
        Effort("full", is_all=True, faults=None, schedules=200, crashed=30, states=None, explained=None),
    )
}
DEFAULT = "normal"


def is_swept(world: World) -> bool:
    """Return whether there are single faults to try, one after the other."""
    return any(not fault.nth for fault in world.faults)


def _has_crashes(world: World) -> bool:
    return any(fault.what in {"crash", "damage"} for fault in world.faults)


@dataclass(frozen=True, slots=True)
class EffortExtent:
    """About how much there is to try: the checks, their single faults, and the runs of two ranks that it takes."""

    checks: int = 0
    faults: int = 0
    runs: float = 0.0

    def __add__(self, other: EffortExtent) -> EffortExtent:
        return EffortExtent(self.checks + other.checks, self.faults + other.faults, self.runs + other.runs)


def extent(effort: Effort, check: Check, world: World, base: Outcome) -> EffortExtent:
    """Return about how much there is to try of a check.

    ``base`` is a run without faults: of all steps of a training, else of two saves, of which other checks make more,
    with the same ops in each.
    """
    bases = 1.0 if check.of_training else check.saves / 2
    size = world.ranks / max(1, base.world.ranks) * max(1, bases)
    if is_swept(world):
        met = sum(hits(fault, op, world.node(op.rank)) for fault in world.faults for op in base.ops)
        due = round(met * bases)
        faults = due if effort.faults is None else min(due, effort.faults)
        return EffortExtent(1, faults, (1 + faults) * size)
    is_parallel = len({op.rank for op in base.ops if _changes(op)}) > 1 or make(world).has_views
    runs = effort.schedules if is_parallel else 2
    if not _has_crashes(world):
        return EffortExtent(1, 0, runs * size)
    disks = len(base.ops) * bases * 4
    loaded = disks if effort.states is None else min(disks, 2 * effort.states)
    return EffortExtent(1, 0, min(runs, effort.crashed) * size + loaded / _STATES_IN_A_RUN)


def _changes(op: Op) -> bool:
    return op.call in {"write", "mkdir", "rename", "unlink", "rmdir"}
