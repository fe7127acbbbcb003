"""From the outcome of a run to violations; `judging` merges the results of all invariants of a scenario.

Not here: whether two runs are the same (`model.compare`), the contents of checkpoint files (`agent.contents`).
Imports: model.
"""

from __future__ import annotations

from racecheck.invariants.after_faults import ends_in_time, liveness
from racecheck.invariants.checkpoints import all_shards_present, no_stale_shards, recovers
from racecheck.invariants.damage import damage_refused
from racecheck.invariants.disk import nothing_left_over, nothing_outside
from racecheck.invariants.durability import durable_after_ack, old_survives
from racecheck.invariants.honesty import error_honesty
from racecheck.invariants.judging import (
    UNJUDGED,
    after_crash,
    doubts_of,
    judge,
    judges_crashes,
    name_of,
    reads_contents,
    wants_contents,
)
from racecheck.invariants.lost_writes import no_lost_writes
from racecheck.invariants.publishing import atomic_publish
from racecheck.invariants.ranks import equal_collectives, no_deadlock, no_file_errors, no_unexpected_errors
from racecheck.invariants.resuming import resume_equals
from racecheck.invariants.retention import gc_safety
from racecheck.invariants.staleness import latest_consistency, monotonic_step
from racecheck.invariants.tearing import no_torn_files
from racecheck.invariants.weights import consistent_weights, same_checkpoint, snapshot_isolation
from racecheck.model.nouns import Invariant

__all__ = [
    "ALL",
    "DEFAULT",
    "UNJUDGED",
    "after_crash",
    "all_shards_present",
    "atomic_publish",
    "consistent_weights",
    "damage_refused",
    "doubts_of",
    "durable_after_ack",
    "ends_in_time",
    "equal_collectives",
    "error_honesty",
    "gc_safety",
    "judge",
    "judges_crashes",
    "latest_consistency",
    "liveness",
    "monotonic_step",
    "name_of",
    "no_deadlock",
    "no_file_errors",
    "no_lost_writes",
    "no_stale_shards",
    "no_torn_files",
    "no_unexpected_errors",
    "nothing_left_over",
    "nothing_outside",
    "old_survives",
    "reads_contents",
    "recovers",
    "resume_equals",
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
"""The invariants of a scenario that names none of its own."""

ALL: tuple[Invariant, ...] = (
    *DEFAULT,
    nothing_left_over,
    all_shards_present,
    consistent_weights,
    resume_equals,
    damage_refused,
    snapshot_isolation,
    same_checkpoint,
    atomic_publish,
    no_torn_files,
    no_lost_writes,
    durable_after_ack,
    old_survives,
    error_honesty,
    liveness,
    ends_in_time,
    gc_safety,
    no_stale_shards,
    monotonic_step,
    latest_consistency,
)
