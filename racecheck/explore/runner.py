"""One run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from dataclasses import replace

from racecheck.explore.requests import KnownRecoveries, RunRequest
from racecheck.model.compare import first_difference
from racecheck.model.nouns import Outcome, Point, Returned, World
from racecheck.model.ops.unstable_names import Names, learn
from racecheck.scheduling.strategies.following.default import Default
from racecheck.sessions.session import Session
from racecheck.supervisor.finish.recorder import Recorder
from racecheck.supervisor.free import full_speed
from racecheck.supervisor.one_run import Supervisor
from racecheck.targets.scenarios import Scenario

_WARM_UPS = 3
_LESSONS, _REPEATS = 4, 3
"""How often names that differ from run to run are learned, and from how many runs more each time."""

_PAUSE, _RESTART = 60 * 10**9, 10**9
"""How long after a run its recovery begins, in nanoseconds of virtual time: a new job, or a restart by the launcher."""

_OF_THE_JOB = frozenset({"crash", "kill-job", "kill-node", "preempt", "term"})
"""Faults with which the launcher ends, too."""

Progress = Callable[[int, int, float, str], None]
"""Called after each run with the number of runs, how many of them count (distinct, or reproduced), the seconds so far,
and a remark."""


def run(
    session: Session, request: RunRequest, recorder: Recorder | None = None, recoveries: KnownRecoveries | None = None
) -> Outcome:
    """Make one run, and call the ``end`` of its steering.

    If the scenario has a recovery, that follows, in one fixed schedule and without faults.  ``recorder`` keeps what ops
    write.  ``recoveries`` are those of earlier runs of scenarios with the same recovery, and get this one.
    """
    session.load(request.target)
    outcome = _run_free(session, request) if request.free else _run(session, request, recorder, recoveries)
    request.steering.end(outcome)
    return outcome


def _run(
    session: Session, request: RunRequest, recorder: Recorder | None, recoveries: KnownRecoveries | None
) -> Outcome:
    names = Names(request.names)
    outcome = Supervisor(
        session, request.target, request.world, request.steering.choose, seed=request.seed, stacks=request.stacks,
        contents=request.contents, names=names, keep=request.keep, pace=request.pace,
        recorder=recorder,
    ).run()  # fmt: skip
    if request.recovery is None:
        return outcome
    restarts = _is_restarted(session, request.target, outcome)
    since = max((op.time for op in outcome.ops), default=0) + (_RESTART if restarts else _PAUSE)
    key = _begins(session, request, since, restarts=restarts) if recoveries is not None else None
    resumed = recoveries.get(key) if recoveries is not None else None
    if resumed is None:
        resumed = Supervisor(
            session, request.target, request.recovery, _default, seed=request.seed, stacks=request.stacks,
            recovering=True, restarted=restarts, since=since, names=names,
        ).run()  # fmt: skip
    if recoveries is not None:
        recoveries[key] = resumed
    return replace(outcome, recovery=resumed)


def _run_free(session: Session, request: RunRequest) -> Outcome:
    """Make one run at full speed, and the recovery; the steering chooses faults alone."""
    target, seed = request.target, request.seed
    outcome = full_speed.run(session, target, request.world, seed=seed, choose=request.steering.choose)
    if request.recovery is None:
        return outcome
    return replace(outcome, recovery=full_speed.run(session, target, request.recovery, seed=seed, recovering=True))


def _is_restarted(session: Session, target: str, outcome: Outcome) -> bool:
    """Return whether the launcher itself starts the ranks again: one has failed, and the launcher is still there."""
    happened = {fault.what for fault, times in zip(outcome.world.faults, outcome.fired, strict=False) if times}
    has_failed = not all(isinstance(each, Returned) for each in outcome.results)
    return session.restarts(target) and has_failed and happened.isdisjoint(_OF_THE_JOB)


def _begins(session: Session, request: RunRequest, since: int, *, restarts: bool) -> Hashable:
    """Return the conditions of a recovery: its world, the disk, the seed, and the time of day in seconds."""
    return request.recovery, session.slot.left(), request.seed, since // 10**9, restarts


def _default(_: Point) -> int:
    return 0


def warm_up(session: Session, request: RunRequest) -> Outcome | None:
    """Make a run in the default schedule until the zygote has imported all that its ranks import.

    A rank that finds a module imported does less than one that has to import it, so this comes before the first run
    that counts.  Returns the first run in which nothing was left to import, if there was one.
    """
    if not session.first(request.target):
        return None
    for _ in range(_WARM_UPS):
        outcome = run(session, replace(_by_default(request), stacks=False))
        if not session.learn():
            return outcome
    return None


def undisturbed(session: Session, scenario: Scenario, world: World, *, seed: str) -> tuple[Outcome, float]:
    """Run the default schedule without faults when all is imported; return the outcome, and the seconds of a run."""
    request = RunRequest.of(scenario, world, Default(), seed=seed)
    outcome = warm_up(session, request) or run(session, _by_default(request))
    return outcome, outcome.seconds + (outcome.recovery.seconds if outcome.recovery is not None else 0.0)


def _by_default(request: RunRequest) -> RunRequest:
    """Return the same run in the default schedule, and without faults."""
    return replace(request, world=replace(request.world, faults=()), steering=Default())


def confirm(first: Outcome, again: Callable[[Outcome, bool], tuple[Outcome, str]]) -> tuple[Outcome, str, bool]:
    """Run the same schedule again and compare trace, results and disk.

    ``again(outcome, labels)`` runs an outcome's schedule again, with the names that it knows to differ, and returns the
    outcome and where it left the schedule (if ``labels`` count).  Names that differ from run to run are learned:
    returns the first run as it is then shown, the difference that remains, "" for none, and whether that is rare: some
    of the later runs are alike.
    """
    difference, is_rare = "", False
    for _ in range(_LESSONS):
        second, divergence = again(first, True)
        difference = divergence or first_difference(first, second)
        if not difference:
            break
        runs = [again(first, False)[0] for _ in range(_REPEATS)]
        fresh = [each for each in learn([first, *runs]) if each not in first.names]
        if not fresh:
            later = [second, *runs]
            is_rare = any(not first_difference(one, other) for one, other in itertools.pairwise(later))
            break
        first, _ = again(replace(first, names=(*first.names, *fresh)), False)
    return first, difference, is_rare
