"""racecheck finds, explains and replays race conditions in distributed checkpoint code, on real processes.

The modules, from the top; imports go down this list, never up:

    cli                 the command line
    pytest_plugin       the options, the marker, and where the fixture comes from
    conformance         the suite for checkpointers, in tests
    gate                the suite on the command line: cells, matrix, baseline
    mutation            are the checks good enough?  they judge savers with a safeguard taken out
    fixture             what a test asks the fixture for, what a failing test prints
    properties          property tests with hypothesis: schedules, worlds and phases to draw
    trials              single runs under given schedules, each carried out once
    sessions            the session of this process
    progress            what is shown while a search lasts, and how it may end
    doctor              can this machine run controlled worlds?
    probes, subject     what it tries, each by doing it
    selftest            are the models of crashes right about real file systems?
    listing             the scenarios in files
    search              explore: begin, run, judge; budget and seed
    explain             what a failing run comes down to
    resume              a search that was cut short, on disk
    runner              one run, and a finding's run again
    results             what a search came to, for people and for programs
    report              a run as text: the interleaving in columns
    predict             what one passing run says of others: its races, and what its collectives are for
    minimise            a failing run made small, and what it owes its failure to
    crash               what a crash can leave: persistence models, the states that they allow, and judging these
    record, compare     findings on disk; are two outcomes the same?
    world               processes: zygote, guardian, the agent in a rank, the supervisor's loop
    strategies          what to choose at a point, one small file each
    claims              what runs show beyond themselves: covered, conditions, doubts
    happens_before      the order of a run, and its races
    timed               ops whose order a program has learned from the times of files
    relation            what the ops of a world touch: files, and the memory that threads share
    storage             what a node sees of the files, and what an op touches of them
    targets             how a target on the command line names a scenario
    checkpointers       savers under test: their protocol, what they must stand, and the ones that everybody uses
    scenarios           functions that every rank runs, and their worlds
    faults              what goes wrong on purpose: its grammar, and which ops it meets
    kernel              system calls: the table, the filter, memory, /proc
    invariants          plain functions from an outcome to violations
    dependence          footprints: could two ops tell each other's order?
    lockops             what ops say of file locks
    storeops            what ops on the store say of its keys
    locking             file locks: who holds which, and who waits
    naming              ops and paths by names that survive changes of the code
    config              the one reader of the environment
    model, errors       the nouns
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from racecheck.errors import CannotRun, InternalError, RacecheckError, UsageError
from racecheck.invariants import (
    DEFAULT,
    all_shards_present,
    atomic_publish,
    consistent_weights,
    durable_after_ack,
    equal_collectives,
    error_honesty,
    gc_safety,
    judges_crashes,
    latest_consistency,
    liveness,
    monotonic_step,
    no_deadlock,
    no_file_errors,
    no_stale_shards,
    no_torn_files,
    no_unexpected_errors,
    nothing_left_over,
    nothing_outside,
    old_survives,
    reads_contents,
    recovers,
    same_checkpoint,
    snapshot_isolation,
)
from racecheck.model import (
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
from racecheck.scenarios import Rank, Scenario, scenario

if TYPE_CHECKING:
    from racecheck.conformance import CheckpointerSuite, check_checkpointer
    from racecheck.properties import Phases, check, run, schedules, worlds
    from racecheck.strategies.switches import Switches

__version__ = "0.1.0"

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
    "UsageError",
    "Verdict",
    "Violation",
    "Weights",
    "World",
    "all_shards_present",
    "atomic_publish",
    "check",
    "check_checkpointer",
    "consistent_weights",
    "durable_after_ack",
    "equal_collectives",
    "error_honesty",
    "gc_safety",
    "judges_crashes",
    "latest_consistency",
    "liveness",
    "monotonic_step",
    "no_deadlock",
    "no_file_errors",
    "no_stale_shards",
    "no_torn_files",
    "no_unexpected_errors",
    "nothing_left_over",
    "nothing_outside",
    "old_survives",
    "reads_contents",
    "recovers",
    "run",
    "same_checkpoint",
    "scenario",
    "schedules",
    "snapshot_isolation",
    "worlds",
]

_LATE = {
    **dict.fromkeys(("Phases", "check", "run", "schedules", "worlds"), "racecheck.properties"),
    **dict.fromkeys(("CheckpointerSuite", "check_checkpointer"), "racecheck.conformance"),
    "Switches": "racecheck.strategies.switches",
}


def __getattr__(name: str) -> Any:
    """What needs hypothesis or pytest is imported when it is asked for."""
    if name in _LATE:
        return getattr(importlib.import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
