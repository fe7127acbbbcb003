"""A finding's run again, several times."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

from racecheck.explore import observed_saves
from racecheck.explore.findings import Finding
from racecheck.explore.recovery.judge import judge_crashes
from racecheck.explore.requests import RunRequest
from racecheck.explore.runner import Progress, run, undisturbed, warm_up
from racecheck.explore.runs.runs import Runs
from racecheck.explore.runs.tasks import OneRun
from racecheck.explore.runs.workers import Workers
from racecheck.invariants import UNJUDGED, all_shards_present, judge, name_of, resume_equals, wants_contents
from racecheck.model.compare import first_difference
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Invariant, Judgement, Outcome, Verdict, World
from racecheck.scheduling.strategies import Replay, Strategy
from racecheck.scheduling.strategies.following.constrained import Constrained
from racecheck.scheduling.strategies.following.default import Default
from racecheck.sessions.session import Session
from racecheck.supervisor.finish.recorder import Recorder
from racecheck.targets.programs import Program
from racecheck.targets.scenarios import Scenario

S = TypeVar("S", bound=Strategy)

_AHEAD = 64
"""How many runs before its turn a run may be made."""


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
    elsewhere: str = ""
    """How a run in a worker's directory differs from the counted runs, which are in this one; "" if none does."""

    @property
    def verdict(self) -> Verdict:
        if self.reproduced == self.times:
            return Verdict.FAIL
        return Verdict.UNKNOWN if self.diverged or self.reproduced or self.doubts else Verdict.PASS


def replay(
    session: Session,
    scenario: Scenario,
    finding: Finding,
    times: int = 1,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> Replayed:
    """Run a finding's schedule again; every run must have the recorded trace and results.

    Of one of free mode there is nothing but the faults to be run again: it may take several times.
    """
    is_free = finding.strategy == "free"
    replaying = _Replaying(session, scenario, finding, times, progress, workers)
    steerings = [Replay(finding.outcome.schedule, labels=not is_free) for _ in range(times)]

    def difference(outcome: Outcome, steering: Replay) -> str:
        return "" if is_free else steering.divergence or first_difference(finding.outcome, outcome)

    if finding.outcome.crash is not None:
        for number, steering in enumerate(steerings):
            outcome, changed = _crashed(session, scenario, finding, replaying.request(steering))
            replaying.take(number, outcome, steering.divergence or changed)
        return replaying.done
    for number, (outcome, steering) in enumerate(replaying.runs(steerings)):
        divergence = difference(outcome, steering)
        if not divergence or not replaying.was_elsewhere(number):
            replaying.take(number, outcome, divergence)
            continue
        here = Replay(finding.outcome.schedule)
        now = run(session, replaying.request(here))
        replaying.stay_here(divergence)
        replaying.take(number, now, difference(now, here))
    return replaying.done


def replay_constraints(
    session: Session,
    scenario: Scenario,
    finding: Finding,
    times: int = 1,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> Replayed:
    """Run random schedules that keep the finding's constraints, and nothing else of it.

    Raises `UsageError` if one of them names an op that never happens, neither in any of the runs nor in the finding's
    own; or in none of the runs, and none of them fails.
    """
    replaying = _Replaying(session, scenario, finding, times, progress, workers)
    steerings = [Constrained(finding.constraints) for _ in range(times)]
    for number, steering in enumerate(steerings):
        steering.begin(Random(f"{finding.seed}:{number}"))
    unmet: list[dict[str, str]] = []
    for number, (outcome, steering) in enumerate(replaying.runs(steerings)):
        unmet.append({str(each): why for each, why in steering.unmet.items()})
        replaying.take(number, outcome)
    own = Constrained(finding.constraints)
    own.begin(Random(0))
    own.end(finding.outcome)
    unknown = {str(each) for each in own.unmet}
    for constraint, why in unmet[0].items():
        is_missing = "never happens" in why and all(each.get(constraint) == why for each in unmet)
        if is_missing and (constraint in unknown or not replaying.done.reproduced):
            raise UsageError(
                f"{constraint}: {why}; create the finding again with racecheck run {finding.scenario.target}"
            )
    return replaying.done


class _Replaying:
    """The runs of a replay; ``done`` is how they went so far."""

    def __init__(
        self,
        session: Session,
        scenario: Scenario,
        finding: Finding,
        times: int,
        progress: Progress | None,
        workers: Workers | None,
    ) -> None:
        self._started, self._scenario, self._finding, self._progress = time.perf_counter(), scenario, finding, progress
        self._is_free = finding.strategy == "free"
        if not self._is_free:
            warm_up(session, self.request(Replay(())))
        scenario.invariants = fitted(session, scenario, finding)
        self._broken = {violation.invariant for violation in finding.judgement.violations}
        self.done = Replayed(times, 0, 0)
        self._runs = Runs(lambda: nullcontext(session), scenario.reference, None if self._is_free else workers)

    def runs(self, steerings: Sequence[S]) -> Iterator[tuple[Outcome, S]]:
        """Make a run for each steering; yields its outcome, and the steering as it is then."""
        asked = 0
        for number in range(len(steerings)):
            for each in steerings[asked : number + _AHEAD]:
                self._runs.submit(asked, OneRun(self.request(each)))
                asked += 1
            yield self._runs.result(number)

    def was_elsewhere(self, number: int) -> bool:
        """Return whether a worker has made a run."""
        return number in self._runs.elsewhere

    def stay_here(self, why: str) -> None:
        """Let no worker make a run from now on: in its directory a run differs from those here."""
        self._runs.stay_here()
        self.done = replace(self.done, elsewhere=why)

    def request(self, steering: Strategy) -> RunRequest:
        """Return a run of the finding's world."""
        found = self._finding.outcome
        return RunRequest.of(
            self._scenario, found.world, steering, seed=str(self._finding.seed), names=found.names, free=self._is_free,
            contents=wants_contents(self._scenario.invariants) and found.crash is None,
        )  # fmt: skip

    def take(self, number: int, outcome: Outcome, divergence: str = "") -> None:
        """Count a run; ``divergence`` says where it left the finding's."""
        judgement = judge(outcome, self._scenario.invariants)
        same = self._broken <= {violation.invariant for violation in judgement.violations}
        done = self.done
        self.done = done = replace(
            done,
            reproduced=done.reproduced + (same and not divergence),
            diverged=done.diverged + bool(divergence),
            divergence=done.divergence or divergence,
            outcome=outcome,
            judgement=judgement,
            doubts=_doubts(done, self._finding, judgement),
        )
        if self._progress is not None:
            self._progress(number + 1, done.reproduced, time.perf_counter() - self._started, "")


def _crashed(session: Session, scenario: Scenario, finding: Finding, request: RunRequest) -> tuple[Outcome, str]:
    """Run a finding's schedule and leave what its crash left; returns the outcome and the difference, "" for none.

    Where the recovery gets on with it now, that is the outcome of the run.
    """
    assert finding.outcome.crash is not None
    recorder, crash = Recorder(session.slot.path / "record"), finding.outcome.crash.of_run
    outcome = run(session, request, recorder)
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
    """Return a scenario's invariants, with what an undisturbed run says of a program's saves and loads, or of training.

    A finding has the names of invariants only.
    """
    asked, world = scenario.invariants, finding.outcome.world
    of_saves = {name_of(each) for each in observed_saves.FOR_OBSERVED if each is not all_shards_present}
    told = of_saves if isinstance(scenario, Program) else {name_of(resume_equals)}
    if told.isdisjoint(map(name_of, asked)) or finding.strategy == "free":
        return asked
    outcome, _ = undisturbed(session, scenario, replace(world, skew=(), faults=()), seed=str(finding.seed))

    def again(world: World, seed: str) -> Outcome:
        return run(session, replace(RunRequest.of(scenario, world, Default(), seed=seed), pace=2))

    if not isinstance(scenario, Program):
        return observed_saves.with_reference(asked, outcome, again)
    found = {name_of(each): each for each in observed_saves.fitting(outcome, again, world.faults)[0]}
    kept = [each for each in asked if name_of(each) in found or name_of(each) not in of_saves]
    return tuple(found.get(name_of(each), each) for each in kept)


def _doubts(done: Replayed, finding: Finding, judgement: Judgement) -> tuple[str, ...]:
    """Return the reasons for doubt of the runs so far and of one more; what broke in the finding may not be judged."""
    broken = {each.invariant for each in finding.judgement.violations}
    unjudged = [each for each in judgement.reasons if each.partition(UNJUDGED)[0] in broken]
    fresh = [each for each in judgement.reasons if each not in finding.judgement.reasons]
    return tuple(dict.fromkeys((*done.doubts, *unjudged, *fresh)))
