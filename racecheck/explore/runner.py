"""One controlled run, and a finding's run again."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from racecheck.crash.recovery.judge import judge_crashes
from racecheck.explore import observed_saves
from racecheck.explore.findings import Finding
from racecheck.invariants import UNJUDGED, all_shards_present, judge, name_of, wants_contents
from racecheck.model.compare import first_difference
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Invariant, Judgement, Outcome, Point, Verdict, World
from racecheck.model.ops.unstable_names import Names, learn
from racecheck.processes.session import Session
from racecheck.scheduling.strategies import Replay, Strategy
from racecheck.scheduling.strategies.following.constrained import Constrained
from racecheck.scheduling.strategies.following.default import Default
from racecheck.supervisor import free
from racecheck.supervisor.controlled import Supervisor
from racecheck.supervisor.recorder import Recorder
from racecheck.targets.programs import Program
from racecheck.targets.scenarios import Scenario

_WARM_UPS = 3
_LESSONS, _REPEATS = 4, 3
"""How often names that differ from run to run are learned, and from how many runs more each time."""

_PAUSE = 60 * 10**9
"""How long after a run its recovery begins, in nanoseconds of virtual time."""

Recoveries = dict[Hashable, Outcome]
"""Outcomes of recoveries by their conditions (disk, world, seed, time): the same disk need not be loaded twice."""

Progress = Callable[[int, int, float, str], None]
"""Called after each run with the number of runs, how many of them count (distinct, or reproduced), the seconds so far,
and a remark."""


def run_once(
    session: Session,
    scenario: Scenario,
    world: World,
    strategy: Strategy,
    *,
    seed: str,
    stacks: bool = True,
    contents: bool = False,
    names: Sequence[str] = (),
    keep: bool = False,
    recorder: Recorder | None = None,
    recoveries: Recoveries | None = None,
) -> Outcome:
    """One controlled run; the strategy has begun already and its ``end`` is called.

    If the scenario has a recovery, that follows, in one fixed schedule and without faults.  ``contents``: the outcome
    says what is in checkpoint files.  ``names`` are patterns of names that differ from run to run.  ``keep``: on the
    disk that the last run has left.  ``recorder`` keeps what ops write.  ``recoveries`` are those of earlier runs of
    scenarios with the same recovery, and get this one.
    """
    session.load(scenario.reference)
    known = Names(names)
    supervisor = Supervisor(
        session, scenario.reference, world, strategy.choose, seed=seed, stacks=stacks, contents=contents, names=known,
        keep=keep, recorder=recorder,
    )  # fmt: skip
    outcome = supervisor.run()
    if scenario.has_recovery:
        since = max((op.time for op in outcome.ops), default=0) + _PAUSE
        key = _begins(session, scenario, world, seed, since) if recoveries is not None else None
        resumed = recoveries.get(key) if recoveries is not None else None
        if resumed is None:
            resumed = _recovery(session, scenario, world, seed=seed, since=since, stacks=stacks, names=known).run()
        if recoveries is not None:
            recoveries[key] = resumed
        outcome = replace(outcome, recovery=resumed)
    strategy.end(outcome)
    return outcome


def run_free(session: Session, scenario: Scenario, world: World, strategy: Strategy, *, seed: str) -> Outcome:
    """Make one run at full speed, and the recovery; the strategy, which has begun already, chooses faults alone."""
    session.load(scenario.reference)
    outcome = free.run(session, scenario.reference, world, seed=seed, choose=strategy.choose)
    if not scenario.has_recovery:
        return outcome
    fresh = scenario.fresh_world(world)
    return replace(outcome, recovery=free.run(session, scenario.reference, fresh, seed=seed, recovering=True))


def _recovery(
    session: Session, scenario: Scenario, world: World, *, seed: str, since: int, stacks: bool, names: Names
) -> Supervisor:
    fresh, target = scenario.fresh_world(world), scenario.reference
    return Supervisor(
        session, target, fresh, _default, seed=seed, stacks=stacks, recovering=True, since=since, names=names
    )  # fmt: skip


def _begins(session: Session, scenario: Scenario, world: World, seed: str, since: int) -> Hashable:
    """Return the conditions of a recovery: its world, the disk, the seed, and the time of day in seconds."""
    return replace(scenario.fresh_world(world), faults=()), session.slot.left(), seed, since // 10**9


def _default(_: Point) -> int:
    return 0


def warm_up(
    session: Session, scenario: Scenario, world: World, *, seed: str, contents: bool = False, names: Sequence[str] = ()
) -> Outcome | None:
    """Run the scenario in the default schedule until the zygote has imported all that its ranks import.

    A rank that finds a module imported does less than one that has to import it, so this comes before the first run
    that counts.  Returns the first run in which nothing was left to import, if there was one.
    """
    if not session.first(scenario.reference):
        return None
    world = replace(world, faults=())
    for _ in range(_WARM_UPS):
        default = Default()
        default.begin(Random(0))
        outcome = run_once(
            session, scenario, world, default, seed=seed, stacks=False, contents=contents, names=names
        )  # fmt: skip
        if not session.learn():
            return outcome
    return None


def undisturbed(session: Session, scenario: Scenario, world: World, *, seed: str) -> tuple[Outcome, float]:
    """Run the default schedule without faults when all is imported; return the outcome, and the seconds of a run."""
    outcome = warm_up(session, scenario, world, seed=seed)
    if outcome is None:
        default = Default()
        default.begin(Random(0))
        outcome = run_once(session, scenario, replace(world, faults=()), default, seed=seed)
    return outcome, outcome.seconds + (outcome.recovery.seconds if outcome.recovery is not None else 0.0)


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


def run_crashed(session: Session, scenario: Scenario, finding: Finding, strategy: Strategy) -> tuple[Outcome, str]:
    """Run a finding's schedule and leave what its crash left; returns the outcome and the difference, "" for none.

    Where the recovery gets on with it now, that is the outcome of the run.
    """
    recorder, crash = Recorder(session.slot.path / "record"), finding.outcome.crash
    assert crash is not None
    outcome = run_once(
        session, scenario, finding.outcome.world, strategy, seed=str(finding.seed), names=finding.outcome.names,
        recorder=recorder,
    )  # fmt: skip
    found = judge_crashes(
        session, scenario, outcome, recorder, (crash.model,), scenario.invariants, seed=str(finding.seed), only=crash
    )
    recorder.close()
    if found.judged == 0:
        return outcome, f"the crash no longer leaves this state: {'; '.join(found.reasons) or 'the run has changed'}"
    if not found.groups:
        return outcome, ""
    left = found.groups[0].witnesses[0].outcome
    return left, first_difference(finding.outcome, left)


def fitted(session: Session, scenario: Scenario, finding: Finding) -> tuple[Invariant, ...]:
    """Return a scenario's invariants; of a program with what an undisturbed run says of its saves and loads.

    A finding has the names of invariants only.
    """
    asked, world = scenario.invariants, finding.outcome.world
    of_saves = {name_of(each) for each in observed_saves.FOR_OBSERVED if each is not all_shards_present}
    if not isinstance(scenario, Program) or of_saves.isdisjoint(map(name_of, asked)) or finding.strategy == "free":
        return asked
    outcome, _ = undisturbed(session, scenario, replace(world, skew=(), faults=()), seed=str(finding.seed))
    found = {name_of(each): each for each in observed_saves.fitting(outcome, world.faults)[0]}
    kept = [each for each in asked if name_of(each) in found or name_of(each) not in of_saves]
    return tuple(found.get(name_of(each), each) for each in kept)


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a replay went: of ``times`` runs, how many broke the same invariants, and how many left the schedule.

    ``doubts`` are reasons for which a run that did not break them is no PASS, which the finding's run did not have.
    """

    times: int
    reproduced: int
    diverged: int
    divergence: str = ""
    outcome: Outcome | None = None
    judgement: Judgement = field(default_factory=lambda: Judgement(Verdict.UNKNOWN))
    doubts: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        if self.reproduced == self.times:
            return Verdict.FAIL
        return Verdict.UNKNOWN if self.diverged or self.reproduced or self.doubts else Verdict.PASS


def replay(
    session: Session, scenario: Scenario, finding: Finding, times: int = 1, progress: Progress | None = None
) -> Replayed:
    """Run a finding's schedule again; every run must have the recorded trace and results.

    Of one of free mode there is nothing but the faults to be run again: it may take several times.
    """
    started, is_free = time.perf_counter(), finding.strategy == "free"
    if not is_free:
        warm_up(session, scenario, finding.outcome.world, seed=str(finding.seed))
    scenario.invariants = fitted(session, scenario, finding)
    done = Replayed(times, 0, 0)
    broken = {violation.invariant for violation in finding.judgement.violations}
    for number in range(times):
        strategy = Replay(finding.outcome.schedule, labels=not is_free)
        strategy.begin(Random(0))
        if is_free:
            divergence = ""
            outcome = run_free(session, scenario, finding.outcome.world, strategy, seed=str(finding.seed))
        elif finding.outcome.crash is not None:
            outcome, divergence = run_crashed(session, scenario, finding, strategy)
            divergence = strategy.divergence or divergence
        else:
            outcome = run_once(
                session, scenario, finding.outcome.world, strategy, seed=str(finding.seed),
                contents=wants_contents(scenario.invariants), names=finding.outcome.names,
            )  # fmt: skip
            divergence = strategy.divergence or first_difference(finding.outcome, outcome)
        judgement = judge(outcome, scenario.invariants)
        same = broken <= {violation.invariant for violation in judgement.violations}
        done = replace(
            done,
            reproduced=done.reproduced + (same and not divergence),
            diverged=done.diverged + bool(divergence),
            divergence=done.divergence or divergence,
            outcome=outcome,
            judgement=judgement,
            doubts=_doubts(done, finding, judgement),
        )
        if progress is not None:
            progress(number + 1, done.reproduced, time.perf_counter() - started, "")
    return done


def _doubts(done: Replayed, finding: Finding, judgement: Judgement) -> tuple[str, ...]:
    """Return the reasons for doubt of the runs so far and of one more; what broke in the finding may not be judged."""
    broken = {each.invariant for each in finding.judgement.violations}
    unjudged = [each for each in judgement.reasons if each.partition(UNJUDGED)[0] in broken]
    fresh = [each for each in judgement.reasons if each not in finding.judgement.reasons]
    return tuple(dict.fromkeys((*done.doubts, *unjudged, *fresh)))


def replay_constraints(
    session: Session, scenario: Scenario, finding: Finding, times: int = 1, progress: Progress | None = None
) -> Replayed:
    """Run random schedules that keep the finding's constraints, and nothing else of it.

    Raises `UsageError` if one of them names an op that never happens, neither in any of the runs nor in the finding's
    own; or in none of the runs, and none of them fails.
    """
    started, world = time.perf_counter(), finding.outcome.world
    warm_up(session, scenario, world, seed=str(finding.seed))
    scenario.invariants = fitted(session, scenario, finding)
    done = Replayed(times, 0, 0)
    broken = {violation.invariant for violation in finding.judgement.violations}
    unmet: list[dict[str, str]] = []
    for number in range(times):
        strategy = Constrained(finding.constraints)
        strategy.begin(Random(f"{finding.seed}:{number}"))
        outcome = run_once(
            session, scenario, world, strategy, seed=str(finding.seed),
            contents=wants_contents(scenario.invariants), names=finding.outcome.names,
        )  # fmt: skip
        judgement = judge(outcome, scenario.invariants)
        unmet.append({str(each): why for each, why in strategy.unmet.items()})
        same = broken <= {violation.invariant for violation in judgement.violations}
        doubts = _doubts(done, finding, judgement)
        done = replace(done, reproduced=done.reproduced + same, outcome=outcome, judgement=judgement, doubts=doubts)
        if progress is not None:
            progress(number + 1, done.reproduced, time.perf_counter() - started, "")
    own = Constrained(finding.constraints)
    own.begin(Random(0))
    own.end(finding.outcome)
    unknown = {str(each) for each in own.unmet}
    for constraint, why in unmet[0].items():
        is_missing = "never happens" in why and all(each.get(constraint) == why for each in unmet)
        if is_missing and (constraint in unknown or not done.reproduced):
            raise UsageError(
                f"{constraint}: {why}; create the finding again with racecheck run {finding.scenario.target}"
            )
    return done
