"""racecheck finds, explains and replays race conditions in distributed checkpoint code, on real processes.

The rooms, from the top; imports go down this list, never up:

    frontends   What people and CI start: the command line, the pytest plugin, property tests, the suite in tests.
    gate        The conformance suite as a gate for CI: cells, matrix, baseline, budget.
    report      Runs, searches and findings as text for people and data for programs.
    explore     Searches: many runs of a scenario, their findings on disk, and a finding's run again.
    crash       Crash states: the disks that a crash can leave of a run.
    supervisor  One run of a world: what each thread is stopped at, which op goes next, and how it is done.
    sessions    Processes that racecheck starts and ends: sessions with their disks, launchers, the doctor.
    agent       The code that runs in a process with torch: ranks, the zygote that forks them, readers of checkpoints.
    scheduling  Orders of ops: which of them differ, which to try next, and what a failing one owes its failure to.
    targets     What is tested: scenarios, how a name leads to one, and checkpointers.
    storage     What a node sees of the files, and what an op touches of them.
    invariants  From an outcome to violations.
    faults      What goes wrong on purpose: its grammar, and which ops it meets.
    kernel      Linux: system calls, the filter, memory, /proc, how a path is walked.  Knows no run and no torch.
    model       The nouns, what ops say, and the words for them.  Standard library only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from racecheck.model.package import VERSION

if TYPE_CHECKING:
    from racecheck.frontends.checkpointer_suite import CheckpointerSuite, check_checkpointer
    from racecheck.frontends.property_tests import Phases, check, run, schedules, worlds
    from racecheck.invariants import (
        DEFAULT,
        all_shards_present,
        atomic_publish,
        consistent_weights,
        damage_refused,
        durable_after_ack,
        ends_in_time,
        equal_collectives,
        error_honesty,
        gc_safety,
        judges_crashes,
        latest_consistency,
        liveness,
        monotonic_step,
        no_deadlock,
        no_file_errors,
        no_lost_writes,
        no_stale_shards,
        no_torn_files,
        no_unexpected_errors,
        nothing_left_over,
        nothing_outside,
        old_survives,
        reads_contents,
        recovers,
        resume_equals,
        same_checkpoint,
        snapshot_isolation,
    )
    from racecheck.model.errors import CannotRun, InternalError, RacecheckError, UsageError
    from racecheck.model.nouns import (
        Collective,
        Content,
        Died,
        DiskEntry,
        Fault,
        Op,
        Outcome,
        Piece,
        Raised,
        Returned,
        Size,
        Stopped,
        Verdict,
        Violation,
        Weights,
        World,
    )
    from racecheck.scheduling.strategies.following.switches import Switches
    from racecheck.targets.launched import launch
    from racecheck.targets.programs import acked
    from racecheck.targets.scenarios import Rank, Scenario, scenario
    from racecheck.targets.suite.protocol import Training

__version__ = VERSION

__all__ = [
    "DEFAULT",
    "CannotRun",
    "CheckpointerSuite",
    "Collective",
    "Content",
    "Died",
    "DiskEntry",
    "Fault",
    "InternalError",
    "Op",
    "Outcome",
    "Phases",
    "Piece",
    "RacecheckError",
    "Raised",
    "Rank",
    "Returned",
    "Scenario",
    "Size",
    "Stopped",
    "Switches",
    "Training",
    "UsageError",
    "Verdict",
    "Violation",
    "Weights",
    "World",
    "acked",
    "all_shards_present",
    "atomic_publish",
    "check",
    "check_checkpointer",
    "consistent_weights",
    "damage_refused",
    "durable_after_ack",
    "ends_in_time",
    "equal_collectives",
    "error_honesty",
    "gc_safety",
    "judges_crashes",
    "latest_consistency",
    "launch",
    "liveness",
    "monotonic_step",
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
    "run",
    "same_checkpoint",
    "scenario",
    "schedules",
    "snapshot_isolation",
    "worlds",
]

_NAMES = {
    "racecheck.invariants": (
        "DEFAULT all_shards_present atomic_publish consistent_weights damage_refused durable_after_ack ends_in_time "
        "equal_collectives error_honesty gc_safety judges_crashes latest_consistency liveness monotonic_step "
        "no_deadlock no_file_errors no_lost_writes no_stale_shards no_torn_files no_unexpected_errors "
        "nothing_left_over nothing_outside old_survives reads_contents recovers resume_equals same_checkpoint "
        "snapshot_isolation"
    ),
    "racecheck.model.errors": "CannotRun InternalError RacecheckError UsageError",
    "racecheck.model.nouns": (
        "Collective Content Died DiskEntry Fault Op Outcome Piece Raised Returned Size Stopped Verdict "
        "Violation Weights World"
    ),
    "racecheck.targets.launched": "launch",
    "racecheck.targets.programs": "acked",
    "racecheck.targets.scenarios": "Rank Scenario scenario",
    "racecheck.targets.suite.protocol": "Training",
    "racecheck.frontends.property_tests": "Phases check run schedules worlds",
    "racecheck.frontends.checkpointer_suite": "CheckpointerSuite check_checkpointer",
    "racecheck.scheduling.strategies.following.switches": "Switches",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    """Import the module of a public name when the name is first used: most programs and commands use a few."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
