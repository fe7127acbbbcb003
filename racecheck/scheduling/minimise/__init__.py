"""From a failing run to one that a person can use: the least run that fails in the same way, and its causes.

`same_failure` defines the same failure.  In this order:

1. `smaller_world`: a failing run of the smallest world that has one;
2. `shrink`: a run with as few switches between threads as the failure takes;
3. `critical_pair`: the two ops whose order separates it from a run that passes;
4. `fewest_orderings`: constraints with which all runs that were tried fail, for people and for replays of changed code.

All of them run the world through an `Attempt`, take a budget in runs, and keep their results when it ends by `Spent`;
`TimedAttempt` ends it by the clock, or by Ctrl-C.
"""

from __future__ import annotations

from racecheck.scheduling.minimise.attempts import Attempt, Spent, TimedAttempt
from racecheck.scheduling.minimise.critical import Critical, CriticalPair, Flip, critical_pair
from racecheck.scheduling.minimise.failure import Fails, Failure, same_failure
from racecheck.scheduling.minimise.orderings import Orderings, fewest_orderings
from racecheck.scheduling.minimise.shrinking import Shrunk, repeated, shrink, switches
from racecheck.scheduling.minimise.world_size import FindRun, Smaller, smaller_world

__all__ = [
    "Attempt",
    "Critical",
    "CriticalPair",
    "Fails",
    "Failure",
    "FindRun",
    "Flip",
    "Orderings",
    "Shrunk",
    "Smaller",
    "Spent",
    "TimedAttempt",
    "critical_pair",
    "fewest_orderings",
    "repeated",
    "same_failure",
    "shrink",
    "smaller_world",
    "switches",
]
