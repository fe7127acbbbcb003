"""Requests: a run to make, and a search to make."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from racecheck.explore.resume import SavedSearch
from racecheck.model.nouns import Invariant, Outcome, World
from racecheck.scheduling import strategies
from racecheck.scheduling.strategies import Strategy
from racecheck.targets.scenarios import Scenario

KnownRecoveries = dict[Hashable, Outcome]
"""Outcomes of recoveries by their conditions (disk, world, seed, time): the same disk need not be loaded twice."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run to make.  It has no live object, so another process can make it."""

    target: str
    """The scenario, by the full path of its file."""
    world: World
    steering: Strategy
    """Answers the points of the run, which has begun for it; `racecheck.explore.runner.run` calls its ``end``."""
    seed: str
    recovery: World | None = None
    """The world of the recovery that follows, None if the scenario has none."""
    stacks: bool = True
    """Ops carry the Python stack that made them."""
    contents: bool = False
    """The outcome has the contents of checkpoint files."""
    names: tuple[str, ...] = ()
    """Patterns of names that differ from run to run."""
    keep: bool = False
    """The run is on the disk that the last one has left."""
    free: bool = False
    """The run is at full speed, and the steering chooses faults alone."""
    pace: int = 1
    """By which factor an op takes longer, in virtual time."""

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        world: World,
        steering: Strategy,
        *,
        seed: str,
        stacks: bool = True,
        contents: bool = False,
        names: tuple[str, ...] = (),
        keep: bool = False,
        free: bool = False,
    ) -> RunRequest:
        """Return the run of a scenario in a world of any size."""
        recovery = scenario.fresh_world(world) if scenario.has_recovery else None
        return cls(scenario.reference, world, steering, seed, recovery, stacks, contents, names, keep, free)


@dataclass(frozen=True, slots=True)
class Search:
    """The scenario to explore, and how far: ``schedules`` runs, and no longer than ``seconds`` (0: no limit).

    Runs before a cut do not count.  ``keep_going``: also after a violation, and ``until``: but for
    one of this invariant, by its name; ``earlier`` is a search that was cut short,
    to go on with.  ``findings`` is where findings go; None keeps none.  ``names`` are patterns of names that are known
    to differ from run to run, ``slot`` is the number of the session's.  ``explain`` is the time in seconds for an
    explanation, which also ends with ``seconds``: the first failing run is repeated, and the smallest run that fails
    like it becomes the finding.  ``swept`` is how many single faults and stale reads are tried, which then do not count
    as schedules; None tries all, and counts them.  ``states`` is how many crash states of a run are judged, None all.
    ``recoveries`` are those of earlier searches of scenarios with the same recovery, and get the ones of this.
    ``base`` is an undisturbed run of another scenario whose ranks do the same: it shows whether the first run repeats.
    """

    scenario: Scenario
    world: World
    invariants: Sequence[Invariant]
    strategy: str = strategies.DEFAULT
    schedules: int = 100
    seed: str = "0"
    free: bool = False
    stacks: bool = True
    findings: Path | None = None
    names: tuple[str, ...] = ()
    slot: int = 0
    seconds: float = 0.0
    keep_going: bool = False
    until: str = ""
    earlier: SavedSearch | None = None
    explain: float = 0.0
    swept: int | None = None
    states: int | None = None
    base: Outcome | None = None
    recoveries: KnownRecoveries | None = None
