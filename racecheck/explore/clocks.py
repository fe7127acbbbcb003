"""Ranks whose clocks are apart: the same program where one of the clocks is a second ahead.

Where several ranks read the time of day, each of them may get another second, and, since every run begins just before
midnight (`racecheck.model.epoch`), another minute, hour and day.  So the default schedule is also run with the
clocks apart.  If the ranks then do something else, a part of the budget is for other schedules of such worlds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from racecheck.model.nouns import Collective, Event, Op, Outcome, World
from racecheck.scheduling import strategies
from racecheck.scheduling.claims import CLOCKS, Claim
from racecheck.scheduling.strategies import Strategy

AHEAD = 1.0
"""Seconds."""
_EVERY = 4
"""Every fourth run is for clocks that are apart, if the ranks then do something else."""
_LEAST = 10
"""How many schedules of each such world are run at least, if it has as many and the budget allows it."""


@dataclass(slots=True)
class ClockTurn:
    """A world in which clocks are apart, and the strategy that chooses its next schedule.

    ``matters``: in the default schedule its ranks do something else than ranks whose clocks agree, and there is more to
    try.
    """

    world: World
    strategy: Strategy
    runs: int = 0
    matters: bool = True

    def begin(self, rng: Random) -> bool:
        """Begin a run, if there is one to try."""
        self.matters = self.matters and self.strategy.begin(rng)
        return self.matters


@dataclass(slots=True)
class Clocks:
    """The runs with clocks apart: ``turns`` are their worlds, empty as long as nothing is known of the program.

    ``first`` is the run of the default schedule with clocks that agree.
    """

    first: Outcome | None = None
    turns: list[ClockTurn] = field(default_factory=list)

    def begin(self, first: Outcome) -> None:
        """Take the run of the default schedule; there is something to try if several ranks read the time of day."""
        if self.first is None:
            self.first = first
            self.turns = [ClockTurn(each, strategies.make(strategies.DEFAULT, each)) for each in worlds(first)]

    def next(self, done: int, *, at_end: bool) -> ClockTurn | None:
        """Return the next turn with clocks apart, None if none is due; ``done`` is how many runs there have been.

        ``at_end``: with clocks that agree there is nothing left to try.
        """
        fresh = next((each for each in self.turns if each.matters and not each.runs), None)
        if fresh is not None:
            return fresh
        useful = [each for each in self.turns if each.matters]
        if not useful:
            return None
        turn = min(useful, key=lambda each: each.runs)
        is_due = turn.runs < _LEAST if at_end else self.runs * _EVERY < done
        return turn if is_due else None

    def take(self, turn: ClockTurn, outcome: Outcome) -> None:
        """Take a run of a turn."""
        turn.runs += 1
        if turn.runs == 1:
            assert self.first is not None
            turn.matters = _deeds(outcome) != _deeds(self.first)

    @property
    def runs(self) -> int:
        """How many runs had clocks apart."""
        return sum(each.runs for each in self.turns)

    def told(self, claim: Claim) -> Claim:
        """Return a claim; its condition on clocks names the runs with clocks apart."""
        if not self.runs:
            return claim
        said = f"{CLOCKS}, {self.runs} of which have clocks {AHEAD:g} s apart"
        return replace(claim, conditions=tuple(said if each == CLOCKS else each for each in claim.conditions))


def worlds(outcome: Outcome) -> list[World]:
    """Return the worlds in which clocks of ranks that read the time of day are apart.

    The last such rank is ahead of the others, or the first; or all of them are but one of these.  The ranks of a node
    have one clock, unless there is only one node: there, one rank may read the clock a second later than another.
    """
    world = outcome.world
    if world.skew or world.faults or len(outcome.times) < 2:
        return []
    node = [world.node(rank) if world.nodes > 1 else rank for rank in range(world.ranks)]
    clocks = sorted({node[rank] for rank in outcome.times})
    ahead = [{clocks[-1]}, {clocks[0]}, {*clocks[1:]}, {*clocks[:-1]}] if len(clocks) > 1 else []
    skews = (tuple(AHEAD * (node[rank] in each) for rank in range(world.ranks)) for each in ahead)
    return [replace(world, skew=each) for each in dict.fromkeys(skews)]


def _deeds(outcome: Outcome) -> tuple[object, ...]:
    """Return the deeds of ranks, without their bytes."""
    return tuple(map(_deed, outcome.trace)), tuple(type(each) for each in outcome.results), tuple(outcome.disk)


def _deed(event: Event) -> object:
    if isinstance(event, Op):
        return event.label, event.result.errno if event.result is not None else ""
    return _names(event)


def _names(event: Collective) -> Sequence[object]:
    return event.kind, event.group, event.number
