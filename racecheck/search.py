"""Exploration: begin, run, judge; budget and seed live here.

Run i of a search draws from ``Random(f"{seed}:{i}")`` (what strategies have learnt from earlier runs counts too, so to
repeat one alone takes its schedule).  The first run happens twice and is compared op by op: if it differs, nothing that
follows would mean anything, and the verdict is UNKNOWN.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random

from racecheck import faults, strategies
from racecheck.compare import effect, fingerprint
from racecheck.crash.judge import Crashes
from racecheck.crash.runs import Runs
from racecheck.errors import CannotRun, UsageError
from racecheck.explain import Explanation, explain
from racecheck.invariants import judge, name_of, wants_contents
from racecheck.minimise import Fails, same_failure
from racecheck.model import Coverage, Invariant, Judgement, Outcome, Stopped, Tried, Verdict, Violation, World
from racecheck.predict import Prediction, Race, predict
from racecheck.record import Finding, Reference, save, source_hash, versions
from racecheck.relation import Relation
from racecheck.resume import Cut, cut
from racecheck.runner import Progress, confirm, run_free, run_once, warm_up
from racecheck.scenarios import Scenario
from racecheck.strategies import DPOR, Auto, Diverged, Enough, Replay, Strategy, Sweep
from racecheck.world.recorder import Recorder
from racecheck.world.session import Session

_MINIMISING = 20.0
"""Seconds that each step of minimising may take, as far as the run that is to be minimised tells."""
_FEWEST, _ENOUGH, _MOST = 30, 120, 400
"""How many runs that may be; if a run takes less than a second, `_ENOUGH` at least."""
_STEPS = 3
"""Of explaining: a smaller world, fewer switches, the pair of ops."""

Effect = tuple[object, ...]
_PASS = Judgement(Verdict.PASS)


@dataclass(frozen=True, slots=True)
class Found:
    """A violation, the outcome that shows it, and the file of its finding."""

    violation: Violation
    outcome: Outcome
    finding: Path | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """One way in which runs have ended: how many did, the number and the outcome of the first, and what it broke."""

    runs: int
    number: int
    outcome: Outcome
    violations: Sequence[Found] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What a search came to.

    ``claim`` is what the strategy says of it, ``exhaustive`` whether that is that every interleaving was covered; from
    ``cut`` a search that was not can go on.  ``tried`` is how far it came with what it tries one by one.
    ``endings`` are the ways in which runs ended, in the order in which they were met.  ``reasons`` say why the verdict
    is UNKNOWN; ``outcome`` is the first failing run's, else the last one's.  ``crashes`` are what crashes of runs left,
    ``repaired`` what those of the first failing one would leave under each repair.
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
    claim: str = ""
    tried: Sequence[Tried] = ()
    interrupted: bool = False
    endings: Sequence[Ending] = ()
    violations: Sequence[Found] = ()
    reasons: Sequence[str] = ()
    coverage: Coverage = field(default_factory=Coverage)
    outcome: Outcome | None = None
    schedule_number: int = 0
    cut: Cut | None = None
    explanation: Explanation | None = None
    crashes: Sequence[Crashes] = ()
    crashes_total: Crashes | None = None
    repaired: Mapping[str, Crashes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Search:
    """What to explore and how far: ``schedules`` runs, and after so many ``seconds`` no other one (0: no limit).

    ``keep_going``: also after a violation; ``earlier`` is a search that was cut short, to go on with.  ``findings`` is
    where findings go; None keeps none.  ``names`` are patterns of names that are known to differ from run to run.
    ``minimise``: a failing run is explained, and the least one is kept instead.
    """

    scenario: Scenario
    world: World
    invariants: Sequence[Invariant]
    strategy: str = strategies.DEFAULT
    schedules: int = 100
    seed: str = "0"
    free: bool = False
    stacks: bool = True
    findings: Path | None = None
    names: tuple[str, ...] = ()
    seconds: float = 0.0
    keep_going: bool = False
    earlier: Cut | None = None
    minimise: bool = False


class _Exploration:
    """A search under way."""

    def __init__(self, session: Session, search: Search) -> None:
        search = replace(search, world=search.scenario.fitted(search.world))
        self.session, self.search = session, search
        self.started = time.perf_counter()
        self.strategy = self._make()
        self.judged = Judgement(Verdict.PASS)
        self.endings: dict[Effect, Ending] = {}
        self.seen: set[str] = set()
        self.done = self.begun = 0
        self.last: Outcome | None = None
        self.fired = [0] * len(search.world.faults)
        self.crashing = Runs(session, search.scenario, search.world, search.invariants, search.seed)
        if self.crashing.models and search.free:
            raise UsageError("what a crash leaves takes control of the run: leave --mode free or the crash out")
        self.is_only = self.interrupted = self.stopped = False
        self.rehearsal: Outcome | None = None

    def rehearse(self) -> None:
        """Make the session ready for the scenario.

        Where the first run that counts has the schedule of the last of these, the two tell whether it repeats.
        """
        search = self.search
        self.rehearsal = warm_up(
            self.session, search.scenario, search.world, seed=search.seed, names=search.names,
            contents=wants_contents(search.invariants),
        )  # fmt: skip

    def run(self, progress: Progress | None) -> None:
        """Until something fails, nothing is left to try, or the budget is spent."""
        while not self._is_over() and self._begin():
            try:
                outcome = self._once(self.strategy)
            except Enough:
                continue
            except Diverged as difference:
                self._doubt(f"two runs of the same schedule differ: {difference}")
                return
            except KeyboardInterrupt:
                self.interrupted = True
                return
            if self.done == 0 and not self.search.free:
                lesson, outcome = self._check_determinism(outcome)
                if lesson:  # what the strategy has seen of the names is not what it will see
                    self.strategy, self.begun = self._make(), 0
                    continue
            self._take(outcome)
            self._crash(outcome, progress)
            if progress is not None:
                progress(self.done, len(self.seen), self.seconds, self.strategy.claim())
            if not outcome.schedule and not self.search.free:
                self.is_only = True  # nothing was ever to be chosen
                return

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.perf_counter() - self.started

    def _make(self) -> Strategy:
        earlier = self.search.earlier
        progress = earlier.progress if earlier is not None else None
        name = "random" if self.search.free else self.search.strategy
        return strategies.make(name, self.search.world, progress)

    def _is_over(self) -> bool:
        if self.interrupted:
            return True
        if self.judged.verdict is not Verdict.PASS and not (self.search.keep_going and self.judged.violations):
            return True
        late = 0 < self.search.seconds <= self.seconds
        return self.done >= self.search.schedules or (late and self.done > 0)

    def _begin(self) -> bool:
        self.begun += 1
        return self.strategy.begin(Random(f"{self.search.seed}:{self.begun - 1}"))

    def _once(self, strategy: Strategy) -> Outcome:
        if not self.search.free:
            return self.attempt(self.search.world, strategy, recorder=self.crashing.recorder())
        outcome = run_free(self.session, self.search.scenario, self.search.world, strategy, seed=self.search.seed)
        strategy.end(outcome)
        return outcome

    def attempt(
        self, world: World, strategy: Strategy, names: Sequence[str] | None = None, recorder: Recorder | None = None
    ) -> Outcome:
        """One run of the scenario in a world of any size; ``names``: other ones are known to differ."""
        search = self.search
        return run_once(
            self.session, search.scenario, world, strategy, seed=search.seed, stacks=search.stacks,
            contents=wants_contents(search.invariants), names=search.names if names is None else names,
            recorder=recorder,
        )  # fmt: skip

    def look(self, fails: Fails, world: World, budget: int) -> Outcome | None:
        """A failing run of a world, if so many runs have one."""
        strategy = strategies.make(strategies.DEFAULT, world)
        for number in range(budget):
            if strategy.begin(Random(f"{self.search.seed}:{number}")):
                with suppress(Enough):
                    outcome = self.attempt(world, strategy)
                    if fails(outcome) is not None:
                        return outcome
        return None

    def _take(self, outcome: Outcome) -> None:
        judgement = self._judge(outcome)
        way = (effect(outcome), *(each.invariant for each in judgement.violations))
        known = self.endings.get(way)
        if known is None:
            found = _keep(self.search, outcome, judgement, self.begun - 1)
            self.endings[way] = Ending(1, self.begun - 1, outcome, found)
        else:
            self.endings[way] = replace(known, runs=known.runs + 1)
        self.judged = _merge(self.judged, judgement)
        self.stopped |= any(isinstance(each, Stopped) and each.kind == "running" for each in outcome.results)
        self.seen.add(fingerprint(outcome))
        self.fired = [sum(each) for each in zip(self.fired, outcome.fired, strict=False)]
        self.done += 1
        self.last = outcome

    def _crash(self, outcome: Outcome, progress: Progress | None) -> None:
        """Judge what crashes in the course of a run leave.  One that did not repeat is no ground for that."""
        if self.judged.verdict is Verdict.UNKNOWN or self.search.free:
            return
        left = max(0.01, self.search.seconds - self.seconds) if self.search.seconds else 0.0

        def tell(what: str) -> None:
            if progress is not None:
                progress(self.done, len(self.seen), self.seconds, what)

        try:
            crashes = self.crashing.judge(outcome, seconds=left, tell=tell)
        except KeyboardInterrupt:
            self.interrupted = True
            return
        if crashes is None:
            return
        self.fired = [
            times + crashes.judged * (fault.what == "crash")
            for fault, times in zip(self.search.world.faults, self.fired, strict=True)
        ]
        self.judged = _merge(
            self.judged, Judgement(Verdict.UNKNOWN, reasons=[*crashes.reasons]) if crashes.reasons else _PASS
        )
        for group in crashes.groups:
            broken = group.witnesses[0].outcome
            judgement = judge(broken, self.search.invariants)
            found = _keep(self.search, broken, judgement, self.begun - 1)
            way = (group.violation.invariant, group.violation.message, group.lines)
            self.endings.setdefault(way, Ending(group.states, self.begun - 1, broken, found))
            self.judged = _merge(self.judged, judgement)
        self.interrupted |= crashes.interrupted

    def _judge(self, outcome: Outcome) -> Judgement:
        """What a run comes to.  Of one that does not repeat, violations are no more than a reason for doubt."""
        judgement = judge(outcome, self.search.invariants)
        if self.judged.verdict is not Verdict.UNKNOWN:
            return judgement
        unconfirmed = [f"unconfirmed: {each.invariant}: {each.message}" for each in judgement.violations]
        return Judgement(Verdict.UNKNOWN, reasons=[*judgement.reasons, *unconfirmed])

    def _doubt(self, reason: str) -> None:
        self.judged = _merge(self.judged, Judgement(Verdict.UNKNOWN, reasons=[reason]))

    def _check_determinism(self, first: Outcome) -> tuple[bool, Outcome]:
        """The first run happens twice; gives whether names were learnt from that, and the run as it is shown then."""
        outcome, difference = confirm(first, self._repeat)
        if difference:
            self._doubt(f"two runs of the same schedule differ: {difference}")
            return False, outcome
        learnt = outcome.names != self.search.names
        self.search = replace(self.search, names=outcome.names)
        return learnt, outcome

    def _repeat(self, outcome: Outcome, labels: bool) -> tuple[Outcome, str]:
        """Run the schedule of an outcome again; gives what comes of it, and where it left the schedule."""
        before, self.rehearsal = self.rehearsal, None
        if before is not None and (before.world, before.schedule) == (outcome.world, outcome.schedule):
            return before, ""
        again = Replay(outcome.schedule, labels=labels)
        again.begin(Random(0))
        return self.attempt(outcome.world, again, outcome.names), again.divergence

    def report(self) -> Report:
        search, reasons = self.search, list(self.judged.reasons)
        failing = next((each for each in self.endings.values() if each.violations), None)
        outcome = failing.outcome if failing is not None else self.last
        verdict = self.judged.verdict
        if outcome is not None:
            missed = (
                []
                if self.interrupted
                else [each for each, times in zip(search.world.faults, self.fired, strict=True) if not times]
            )
            reasons += [f"not triggered: {faults.text(each)}" for each in missed]
            verdict = max(verdict, Verdict.UNKNOWN if missed else Verdict.PASS)
        if outcome is None or self.interrupted:
            why = f"interrupted after {self.done} of {search.schedules} schedules" if self.interrupted else ""
            verdict, reasons = max(verdict, Verdict.UNKNOWN), [*reasons, why or "no schedule was run"]
        return Report(
            target=search.scenario.target,
            verdict=verdict,
            world=search.world,
            seed=search.seed,
            strategy="free" if search.free else search.strategy,
            schedules=self.done,
            distinct_schedules=len(self.seen),
            seconds=self.seconds,
            ops=outcome.coverage.ops if outcome else 0,
            exhaustive=(self.is_only or self.strategy.is_proof) and not self.stopped and not self.crashing.is_cut,
            claim="; ".join(filter(None, [self.strategy.claim(), self.crashing.claim()])),
            tried=(*(self.strategy.tried if isinstance(self.strategy, Sweep) else ()), *self.crashing.tried),
            crashes=tuple(self.crashing.judged),
            crashes_total=self.crashing.total,
            interrupted=self.interrupted,
            endings=tuple(self.endings.values()),
            violations=failing.violations if failing is not None else (),
            reasons=tuple(reasons),
            coverage=outcome.coverage if outcome else Coverage(),
            outcome=outcome,
            schedule_number=failing.number if failing is not None else self.begun - 1,
            cut=self._cut(),
        )

    def _cut(self) -> Cut | None:
        """Where the search stands, if it could go on from there."""
        search = self.search
        if not isinstance(self.strategy, (Auto, DPOR)) or not self.strategy.progress.nodes or search.free:
            return None
        scenario = Reference(search.scenario.target, source_hash(search.scenario.file))
        return cut(scenario, search.world, search.seed, search.names, self.strategy.progress)


def explore(session: Session, search: Search, progress: Progress | None = None) -> Report:
    """Run until something fails, nothing is left to try, or the budget is spent; what Ctrl-C cuts short is kept.

    Raises `UsageError` or `CannotRun` where no run came about.
    """
    if search.earlier is not None:
        search = replace(search, names=search.earlier.names)
    exploration = _Exploration(session, search)
    try:
        if not search.free:
            exploration.rehearse()
        exploration.run(progress)
        return _completed(exploration, exploration.report(), progress)
    finally:
        exploration.crashing.close()


def explained(session: Session, search: Search, report: Report, progress: Progress | None = None) -> Report:
    """A failing report of an earlier search for the same, with what its failure comes down to, in about
    ``search.seconds``.

    What a crash left is looked for once more.  Raises `UsageError`, `CannotRun`, and `KeyboardInterrupt`.
    """
    names = report.outcome.names if report.outcome is not None else ()
    exploration = _Exploration(session, replace(search, names=names, keep_going=False))
    try:
        exploration.rehearse()
        if not _is_of_crash(report):
            runs = search.seconds * (report.schedules + 1) / max(report.seconds, 0.01)
            return _explained(exploration, report, progress, max(1, min(_FEWEST, int(runs / _STEPS))))
        exploration.run(progress)
        report = exploration.report()
        if report.interrupted:
            raise KeyboardInterrupt
        return _repaired(exploration, report, progress) if _is_of_crash(report) else report
    finally:
        exploration.crashing.close()


def _is_of_crash(report: Report) -> bool:
    return report.outcome is not None and report.outcome.crash is not None


def _completed(exploration: _Exploration, report: Report, progress: Progress | None) -> Report:
    """The report with what a failure comes down to, if that is asked for; what Ctrl-C cuts short is left out."""
    search = exploration.search
    if not search.minimise or not report.violations or search.free or report.interrupted:
        return report
    first = next(each for each in report.endings if each.violations)
    try:
        if _is_of_crash(report):
            return _repaired(exploration, report, progress)
        return _explained(exploration, report, progress, _budget(first.outcome.seconds))
    except KeyboardInterrupt:
        return report


def _repaired(exploration: _Exploration, report: Report, progress: Progress | None) -> Report:
    """The report with the repair table of the first way in which a crash hurts."""
    crashes = next(each for each in report.crashes if each.groups)

    def tell(what: str) -> None:
        if progress is not None:
            progress(report.schedules, report.distinct_schedules, exploration.seconds, f"found; {what}")

    left = exploration.search.seconds - exploration.seconds if exploration.search.seconds else 0.0
    if left < 0:
        return report
    repaired = exploration.crashing.repaired(crashes, tell, seconds=left)
    return replace(report, repaired=repaired, seconds=exploration.seconds)


def _explained(exploration: _Exploration, report: Report, progress: Progress | None, budget: int) -> Report:
    """The report of the least run that fails like the first that did; each step takes ``budget`` runs at most."""
    search = exploration.search
    first = next(each for each in report.endings if each.violations)
    fails = same_failure(first.outcome, first.violations[0].violation, search.invariants)

    def tell(what: str) -> None:
        if progress is not None:
            progress(report.schedules, report.distinct_schedules, exploration.seconds, f"found; {what}")

    try:
        found = explain(
            first.outcome, first.violations[0].violation, search.invariants, exploration.attempt,
            partial(exploration.look, fails),
            budget=budget, seed=search.seed, tell=tell,
        )  # fmt: skip
    except CannotRun as error:
        return replace(report, verdict=Verdict.UNKNOWN, reasons=(*report.reasons, str(error)))
    kept = _keep(search, found.outcome, judge(found.outcome, search.invariants), first.number, found)
    broken = {each.violation.invariant for each in kept}
    is_replaced = all(each.violation.invariant in broken for each in first.violations)
    for each in first.violations:
        if each.finding is not None and is_replaced and kept[0].finding not in {None, each.finding}:
            each.finding.unlink(missing_ok=True)
    return replace(
        report, seconds=exploration.seconds, world=found.outcome.world, ops=found.outcome.coverage.ops, violations=kept,
        outcome=found.outcome, coverage=found.outcome.coverage, explanation=found,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What one passing run says of others; ``prediction`` is None, for the ``reasons``, if there is no such run.

    ``findings`` are the files of the confirmed races, by the race's place in the prediction.
    """

    target: str
    verdict: Verdict
    prediction: Prediction | None
    findings: Mapping[int, Path]
    seconds: float
    coverage: Coverage
    reasons: Sequence[str] = ()


def foresee(session: Session, search: Search, progress: Progress | None = None) -> Foreseen:
    """Run the tamest schedule, without faults, and then once more for each of its races.

    FAIL: one of these breaks an invariant.  UNKNOWN: the first run does not pass, or not all could be tried.
    Raises `UsageError` or `CannotRun` where no run came about.
    """
    search = replace(search, world=replace(search.world, faults=()))
    first = explore(session, replace(search, strategy="dpor", schedules=1, findings=None))
    exploration, model = _Exploration(session, search), Relation(search.world)
    exploration.search = search = replace(search, names=first.outcome.names if first.outcome else ())
    if first.outcome is None or first.verdict is not Verdict.PASS:
        broken = (f"{each.violation.invariant}: {each.violation.message}" for each in first.violations)
        why = [f"there is no passing run to begin with: {each}" for each in (*first.reasons, *broken)]
        return Foreseen(first.target, Verdict.UNKNOWN, None, {}, exploration.seconds, first.coverage, why)

    def goes_on(tried: Sequence[Race]) -> bool:
        if progress is not None:
            confirmed = sum(each.verdict == "confirmed" for each in tried)
            progress(len(tried), confirmed, exploration.seconds, "")
        return not 0 < search.seconds <= exploration.seconds

    prediction = predict(
        first.outcome, partial(exploration.attempt, search.world), search.invariants, model, goes_on=goes_on
    )
    findings: dict[int, Path] = {}
    for number, race in enumerate(prediction.races):
        if race.verdict == "confirmed" and race.outcome is not None:
            kept = _keep(search, race.outcome, judge(race.outcome, search.invariants), number)
            findings |= {number: kept[0].finding} if kept and kept[0].finding is not None else {}
    untried = any(each.verdict == "untried" for each in prediction.races)
    verdict = Verdict.FAIL if prediction.confirmed else Verdict.UNKNOWN if untried else Verdict.PASS
    return Foreseen(first.target, verdict, prediction, findings, exploration.seconds, first.coverage)


def _budget(seconds: float) -> int:
    """How many runs each step of minimising takes at most, if one takes so long."""
    least = _ENOUGH if seconds < 1 else _FEWEST
    return max(least, min(_MOST, round(_MINIMISING / max(seconds, 0.01))))


def _merge(one: Judgement, other: Judgement) -> Judgement:
    return Judgement(
        max(one.verdict, other.verdict),
        [*one.violations, *other.violations],
        list(dict.fromkeys([*one.reasons, *other.reasons])),
    )


def _keep(
    search: Search, outcome: Outcome, judgement: Judgement, number: int, explanation: Explanation | None = None
) -> tuple[Found, ...]:
    """Store the finding of a failing run."""
    if not judgement.violations:
        return ()
    path = None
    if search.findings is not None:
        with suppress(UsageError):  # a FAIL must not get lost because its finding cannot be stored
            path = save(_finding(search, outcome, judgement, number, explanation), search.findings)
    return tuple(Found(violation, outcome, path) for violation in judgement.violations)


def _finding(
    search: Search, outcome: Outcome, judgement: Judgement, number: int, explanation: Explanation | None
) -> Finding:
    pair = explanation.pair if explanation is not None else None
    orderings = explanation.orderings if explanation is not None else None
    return Finding(
        scenario=Reference(search.scenario.target, source_hash(search.scenario.file)),
        seed=search.seed,
        run=number,
        strategy="free" if search.free else search.strategy,
        invariants=tuple(name_of(each) for each in search.invariants),
        outcome=outcome,
        judgement=judgement,
        versions=versions(),
        pair=pair.events if pair is not None else (),
        constraints=orderings.constraints if orderings is not None and not orderings.why else (),
    )
