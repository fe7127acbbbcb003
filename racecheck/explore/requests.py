"""All that one run follows from."""

from __future__ import annotations

from dataclasses import dataclass

from racecheck.model.nouns import World
from racecheck.scheduling.strategies import Strategy
from racecheck.targets.scenarios import Scenario


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
    """The outcome says what is in checkpoint files."""
    names: tuple[str, ...] = ()
    """Patterns of names that differ from run to run."""
    keep: bool = False
    """The run is on the disk that the last one has left."""
    free: bool = False
    """The run is at full speed, and the steering chooses faults alone."""

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
