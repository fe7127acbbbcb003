"""Invariants: what must hold of the outcome of every run.

An invariant is a pure function from an `Outcome` to the violations that it finds there, so it can judge a
stored finding as well as a fresh run.  People know it by its name, the function's with dashes
(`name_of`).  `judge` asks all invariants of a scenario and merges what they say into one verdict.
"""

from __future__ import annotations

from racecheck.invariants.checkpoints import all_shards_present, recovers
from racecheck.invariants.disk import nothing_left_over, nothing_outside
from racecheck.invariants.judging import judge, name_of, reads_contents, wants_contents
from racecheck.invariants.publishing import atomic_publish
from racecheck.invariants.ranks import equal_collectives, no_deadlock, no_file_errors, no_unexpected_errors
from racecheck.invariants.tearing import no_torn_files
from racecheck.invariants.weights import consistent_weights, same_checkpoint, snapshot_isolation
from racecheck.model import Invariant

__all__ = [
    "DEFAULT",
    "all_shards_present",
    "atomic_publish",
    "consistent_weights",
    "equal_collectives",
    "judge",
    "name_of",
    "no_deadlock",
    "no_file_errors",
    "no_torn_files",
    "no_unexpected_errors",
    "nothing_left_over",
    "nothing_outside",
    "reads_contents",
    "recovers",
    "same_checkpoint",
    "snapshot_isolation",
    "wants_contents",
]

DEFAULT: tuple[Invariant, ...] = (
    no_file_errors,
    no_unexpected_errors,
    no_deadlock,
    equal_collectives,
    nothing_outside,
    recovers,
)
"""What a scenario is held to that names no invariants of its own."""
