"""Exploration: begin, run, judge; budget and seed live here.

Run i of a search draws from ``Random(f"{seed}:{i}")``, so any run can be repeated alone.  The first run happens twice
and is compared op by op: if it differs, nothing that follows would mean anything, and the verdict is UNKNOWN.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from racecheck import strategies
from racecheck.compare import fingerprint, first_difference
from racecheck.errors import UsageError
from racecheck.invariants import judge, name_of, wants_contents
from racecheck.model import Coverage, Invariant, Judgement, Outcome, Point, Verdict, Violation, World
from racecheck.record import Finding, Reference, save, source_hash, versions
from racecheck.strategies import Replay, Strategy
from racecheck.targets import Scenario, make_world
from racecheck.world import free
from racecheck.world.names import learn as learn_names
from racecheck.world.session import Session
from racecheck.world.supervisor import Supervisor

_WARM_UPS = 3
_LESSONS, _REPEATS = 4, 3
"""How often names that differ from run to run are learnt, and from how many runs more each time."""

Progress = Callable[[int, int, float], None]
"""Called after each run with the runs done, the distinct schedules among them, and the seconds spent."""


@dataclass(frozen=True, slots=True)
class Found:
    """A violation, the outcome that shows it, and the file of its finding."""

    violation: Violation
    outcome: Outcome
    finding: Path | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a search came to.

    ``reasons`` say why the verdict is UNKNOWN; ``outcome`` is the failing run's, else the last one's.
    """

    target: str
    verdict: Verdict
    world: World
    seed: str
    strategy: str
    schedules: int
    distinct_schedules: int
    seconds: float
    ops: int
    exhaustive: bool = False
    violations: Sequence[Found] = ()
    reasons: Sequence[str] = ()
    coverage: Coverage = field(default_factory=Coverage)
    outcome: Outcome | None = None
    schedule_number: int = 0


@dataclass(frozen=True, slots=True)
class Search:
    """What to explore and how far.  ``findings`` is where findings go; None keeps none.  ``names`` are patterns of
    names that are known to differ from run to run.
    """

    scenario: Scenario
    world: World
    invariants: Sequence[Invariant]
    strategy: str = "random"
    schedules: int = 100
    seed: str = "0"
    free: bool = False
    stacks: bool = True
    findings: Path | None = None
    names: tuple[str, ...] = ()


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
) -> Outcome:
    """One controlled run; the strategy has begun already and its ``end`` is called.

    If the scenario has a recovery, that follows, in one fixed schedule.  ``contents``: the outcome says what is in
    checkpoint files.  ``names`` are patterns of names that differ from run to run.
    """
    session.request("import", target=scenario.reference)
    supervisor = Supervisor(
        session, scenario.reference, world, strategy.choose, seed=seed, stacks=stacks, contents=contents, names=names
    )
    outcome = supervisor.run()
    strategy.end(outcome)
    if scenario.recovery is None:
        return outcome
    resumed = _recovery(session, scenario, world, seed=seed, stacks=stacks, names=names).run()
    return replace(outcome, recovery=resumed)


def _recovery(
    session: Session, scenario: Scenario, world: World, *, seed: str, stacks: bool, names: Sequence[str] = ()
) -> Supervisor:
    fresh, target = make_world(world, **scenario.recovering), scenario.reference
    return Supervisor(session, target, fresh, _tamest, seed=seed, stacks=stacks, recovering=True, names=names)


def _tamest(_: Point) -> int:
    return 0


def warm_up(session: Session, scenario: Scenario, world: World, *, seed: str) -> None:
    """Run the scenario until the zygote has imported all that its ranks import on the way.

    A rank that finds a module imported does less than one that has to import it, so this comes before the first
    run that counts.
    """
    if not session.first(scenario.reference):
        return
    session.request("import", target=scenario.reference)
    for _ in range(_WARM_UPS):
        first = Supervisor(session, scenario.reference, world, _tamest, seed=seed, stacks=False)
        first.run()
        modules = first.modules
        if scenario.recovery is not None:
            then = _recovery(session, scenario, world, seed=seed, stacks=False)
            then.run()
            modules = [*modules, *then.modules]
        if not session.learn(modules):
            return


def explore(session: Session, search: Search, progress: Progress | None = None) -> Report:
    """Run until something fails, nothing is left to try, or the budget is spent.

    Raises `UsageError` or `CannotRun` where no run came about.
    """
    started = time.perf_counter()
    strategy = strategies.make(search.strategy)
    if not search.free:
        warm_up(session, search.scenario, search.world, seed=search.seed)
    seen: set[str] = set()
    merged = Judgement(Verdict.PASS)
    outcome: Outcome | None = None
    done, exhaustive = 0, False
    for number in range(search.schedules):
        if not strategy.begin(Random(f"{search.seed}:{number}")):
            break
        outcome = _run(session, search, strategy)
        if number == 0 and not search.free:
            search, outcome, merged = _check_determinism(session, search, outcome)
        done += 1
        seen.add(fingerprint(outcome))
        merged = _merge(merged, _judge(outcome, search, merged))
        if progress is not None:
            progress(done, len(seen), time.perf_counter() - started)
        if merged.verdict is not Verdict.PASS:
            break
        if not outcome.schedule and not search.free:
            exhaustive = True  # nothing was ever to be chosen: this is the only schedule
            break
    if outcome is None:
        merged = Judgement(Verdict.UNKNOWN, reasons=["no schedule was run"])
    return Report(
        target=search.scenario.target,
        verdict=merged.verdict,
        world=search.world,
        seed=search.seed,
        strategy="free" if search.free else search.strategy,
        schedules=done,
        distinct_schedules=len(seen),
        seconds=time.perf_counter() - started,
        ops=outcome.coverage.ops if outcome else 0,
        exhaustive=exhaustive,
        violations=_keep(search, outcome, merged, done - 1) if outcome else (),
        reasons=tuple(merged.reasons),
        coverage=outcome.coverage if outcome else Coverage(),
        outcome=outcome,
        schedule_number=done - 1,
    )


def _judge(outcome: Outcome, search: Search, so_far: Judgement) -> Judgement:
    """What a run comes to.  Of one that does not repeat, violations are no more than a reason for doubt."""
    judgement = judge(outcome, search.invariants)
    if so_far.verdict is Verdict.PASS:
        return judgement
    unconfirmed = [f"unconfirmed: {each.invariant}: {each.message}" for each in judgement.violations]
    return Judgement(Verdict.UNKNOWN, reasons=[*judgement.reasons, *unconfirmed])


def _run(session: Session, search: Search, strategy: Strategy) -> Outcome:
    if search.free:
        session.request("import", target=search.scenario.reference)
        return free.run(session, search.scenario.reference, search.world, seed=search.seed)
    return run_once(
        session, search.scenario, search.world, strategy, seed=search.seed, stacks=search.stacks,
        contents=wants_contents(search.invariants), names=search.names,
    )  # fmt: skip


def _check_determinism(session: Session, search: Search, first: Outcome) -> tuple[Search, Outcome, Judgement]:
    """The same schedule once more must give the same trace, results and disk.

    If it does not because a name differs from run to run, that is learnt; gives the search with what it knows then, and
    the first run as it is shown then.
    """
    difference = ""
    for _ in range(_LESSONS):
        second, divergence = _repeat(session, search, first)
        difference = divergence or first_difference(first, second)
        if not difference:
            return search, first, Judgement(Verdict.PASS)
        runs = [_repeat(session, search, first, labels=False)[0] for _ in range(_REPEATS)]
        fresh = [each for each in learn_names([first, *runs]) if each not in search.names]
        if not fresh:
            break
        search = replace(search, names=(*search.names, *fresh))
        first, _ = _repeat(session, search, first, labels=False)
    reason = f"two runs of the same schedule differ: {difference}"
    return search, first, Judgement(Verdict.UNKNOWN, reasons=[reason])


def _repeat(session: Session, search: Search, outcome: Outcome, *, labels: bool = True) -> tuple[Outcome, str]:
    """Run the schedule of an outcome again; gives what comes of it, and where it left the schedule."""
    again = Replay(outcome.schedule, labels=labels)
    again.begin(Random(0))
    return _run(session, search, again), again.divergence


def _merge(one: Judgement, other: Judgement) -> Judgement:
    return Judgement(
        max(one.verdict, other.verdict),
        [*one.violations, *other.violations],
        list(dict.fromkeys([*one.reasons, *other.reasons])),
    )


def _keep(search: Search, outcome: Outcome, judgement: Judgement, number: int) -> tuple[Found, ...]:
    """Store the finding of a failing run."""
    if not judgement.violations:
        return ()
    path = None
    if search.findings is not None:
        with suppress(UsageError):  # a FAIL must not get lost because its finding cannot be stored
            path = save(_finding(search, outcome, judgement, number), search.findings)
    return tuple(Found(violation, outcome, path) for violation in judgement.violations)


def _finding(search: Search, outcome: Outcome, judgement: Judgement, number: int) -> Finding:
    return Finding(
        scenario=Reference(search.scenario.target, source_hash(search.scenario.file)),
        seed=search.seed,
        run=number,
        strategy="free" if search.free else search.strategy,
        invariants=tuple(name_of(each) for each in search.invariants),
        outcome=outcome,
        judgement=judgement,
        versions=versions(),
    )


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a replay went: of ``times`` runs, how many broke the same invariants, and how many left the schedule."""

    times: int
    reproduced: int
    diverged: int
    divergence: str = ""
    outcome: Outcome | None = None
    judgement: Judgement = field(default_factory=lambda: Judgement(Verdict.UNKNOWN))

    @property
    def verdict(self) -> Verdict:
        if self.reproduced == self.times:
            return Verdict.FAIL
        return Verdict.UNKNOWN if self.diverged or self.reproduced else Verdict.PASS


def replay(
    session: Session, scenario: Scenario, finding: Finding, times: int = 1, progress: Progress | None = None
) -> Replayed:
    """Run a finding's schedule again; every run must give the recorded trace, result for result."""
    started = time.perf_counter()
    warm_up(session, scenario, finding.outcome.world, seed=str(finding.seed))
    done = Replayed(times, 0, 0)
    broken = {violation.invariant for violation in finding.judgement.violations}
    for number in range(times):
        strategy = Replay(finding.outcome.schedule)
        strategy.begin(Random(0))
        outcome = run_once(
            session, scenario, finding.outcome.world, strategy, seed=str(finding.seed),
            contents=wants_contents(scenario.invariants), names=finding.outcome.names,
        )  # fmt: skip
        judgement = judge(outcome, scenario.invariants)
        divergence = strategy.divergence or first_difference(finding.outcome, outcome)
        same = broken <= {violation.invariant for violation in judgement.violations}
        done = replace(
            done,
            reproduced=done.reproduced + (same and not divergence),
            diverged=done.diverged + bool(divergence),
            divergence=done.divergence or divergence,
            outcome=outcome,
            judgement=judgement,
        )
        if progress is not None:
            progress(number + 1, done.reproduced, time.perf_counter() - started)
    return done
