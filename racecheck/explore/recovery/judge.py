"""Judge what a crash during a run can leave: the scenario's recovery loads every such state.

A finding is believed only if it shows again when nothing but that one state has been loaded in a process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from racecheck import faults
from racecheck.crash.build import build
from racecheck.crash.cut_outcome import Cutting, uncut
from racecheck.crash.damage import KINDS, Damages
from racecheck.crash.log import Log
from racecheck.crash.repairs.repair import repairs, with_one_more
from racecheck.crash.states import ALL, CrashState, Enumeration, states
from racecheck.explore.recovery.disk_images import Ages
from racecheck.explore.recovery.groups import Group, Groups, Witness, plain
from racecheck.explore.recovery.recoveries import Disks, Recovered, Recoveries
from racecheck.invariants import judge
from racecheck.model.nouns import Crash, Died, Event, Invariant, Op, Outcome, Raised, RankResult, Stopped, Verdict
from racecheck.sessions.session import Session
from racecheck.supervisor.finish.recorder import Recorder
from racecheck.targets.programs import Program
from racecheck.targets.scenarios import Scenario

MOST_HUNG = 3
"""After this many recoveries that did not end in time, the remaining states are left out: each takes the world's
timeout."""

_SAMPLE = 8
"""This many states, from first to last, are also loaded in a process of their own, and must have the same result."""

AS_IT_IS = "as it is"

OUT_OF_TIME = "the time budget was used up"
_OFTEN = 50
"""Progress is shown after each such number of states."""

CountProgress = Callable[[int, int, float, str], None]
"""Called now and then with the number of judged states, the total, the seconds so far, and the model."""


@dataclass(frozen=True, slots=True)
class Count:
    """The states of one model: how many there are, were judged, and broke an invariant.

    ``cuts`` are the places in the run where it was cut; ``truncated`` says why these are not all, "" if they are.
    """

    states: int = 0
    judged: int = 0
    bad: int = 0
    cuts: int = 0
    truncated: str = ""


@dataclass(frozen=True, slots=True)
class Crashes:
    """The result of judging the crash states of a ``run``.

    ``counts`` are by model; ``groups`` are what went wrong, the plainest first.  ``disks`` counts the distinct states
    of the disk, each of which the recovery loaded once; ``reasons`` say why a verdict of PASS would not be right, and
    ``notes`` what is to be known besides.  ``interrupted``: by Ctrl-C, before all had been judged.
    """

    run: Outcome
    counts: Mapping[str, Count]
    groups: Sequence[Group] = ()
    reasons: Sequence[str] = ()
    disks: int = 0
    seconds: float = 0.0
    log: Log | None = None
    notes: Sequence[str] = ()
    interrupted: bool = False

    @property
    def verdict(self) -> Verdict:
        if self.groups:
            return Verdict.FAIL
        return Verdict.UNKNOWN if self.reasons else Verdict.PASS

    @property
    def bad(self) -> int:
        return sum(count.bad for count in self.counts.values())

    @property
    def judged(self) -> int:
        return sum(count.judged for count in self.counts.values())

    @property
    def of_power(self) -> Crashes:
        """The crash states alone, without damage: these a change of the code may repair."""
        counts = {name: each for name, each in self.counts.items() if name not in KINDS}
        groups = [each for each in self.groups if not KINDS & each.models.keys()]
        return replace(self, counts=counts, groups=groups)

    @property
    def truncated(self) -> str:
        """Which models were not exhausted, and why; "" if all were."""
        cut = {name: count.truncated for name, count in self.counts.items() if count.truncated}
        return "; ".join(f"{name}: {why}" for name, why in cut.items())

    @property
    def rate(self) -> float:
        """Distinct states of the disk that were judged per second."""
        return self.disks / self.seconds if self.seconds else 0.0


def judge_crashes(
    session: Session,
    scenario: Scenario,
    outcome: Outcome,
    recorder: Recorder,
    models: Sequence[str],
    invariants: Sequence[Invariant] = (),
    *,
    seconds: float = 0.0,
    progress: CountProgress | None = None,
    seed: str = "0",
    only: Crash | None = None,
    most: int = ALL,
    limit: int | None = None,
) -> Crashes:
    """Enumerate what crashes can leave of a run, under each of these models, and judge it by these invariants.

    ``recorder`` recorded the run of this outcome.  No new state is begun after ``seconds`` (0: no limit).
    ``only``: of all states that one is judged.  ``most``: of a cut all states are tried if there are no more than that
    (`racecheck.crash.states.states`).  ``limit`` is how many disks the recovery loads under each model, spread evenly
    over all of them (None: all).  Raises `CannotRun` and `UsageError` like a run.
    """
    started = time.perf_counter()
    try:
        log = build(outcome, recorder)
    except LookupError as error:
        reason = f"crash states cannot be computed: {error.args[0]}"
        return Crashes(outcome, dict.fromkeys(models, Count()), reasons=(reason,))
    until = started + seconds if seconds > 0 else 0.0
    for alone in (False, True):
        judging = _StateJudge(
            session, scenario, outcome, recorder, log, invariants, seed, until, alone=alone,
            controlled=isinstance(scenario, Program) and not KINDS.isdisjoint(models),
        )  # fmt: skip
        judging.most, judging.limit = most, limit
        try:
            found = judging.judge(log, models, progress, only)
            if alone or found.interrupted or judging.confirm(found):
                break
        finally:
            judging.close()
    confirmed = tuple(each for each in found.groups if each.witnesses[0].disks not in judging.unconfirmed)
    reasons = (*found.reasons, *judging.doubts)
    return replace(found, groups=confirmed, reasons=reasons, seconds=time.perf_counter() - started)


def judge_repairs(
    session: Session,
    scenario: Scenario,
    crashes: Crashes,
    recorder: Recorder,
    invariants: Sequence[Invariant] = (),
    *,
    seconds: float = 0.0,
    seed: str = "0",
) -> dict[str, Crashes]:
    """Return what crashes could leave had the code been written otherwise: by the repair's name, "as it is" first.

    Each repair, and each two together, is made in the log of the run that has been judged, and its states are judged
    in their turn; where something breaks under all of these, the best two get one more.  Those that are not reached in
    ``seconds`` are left out (0: no limit).
    """
    until = time.perf_counter() + seconds if seconds > 0 else 0.0
    crashes = crashes.of_power
    found = {AS_IT_IS: crashes}
    if crashes.log is None or not crashes.counts:
        return found
    judging = _StateJudge(session, scenario, crashes.run, recorder, crashes.log, invariants, seed, until)

    def judge_all(repaired: Mapping[str, Log]) -> None:
        for name, log in repaired.items():
            if 0 < until <= time.perf_counter():
                break
            found[name] = judging.judge(log, tuple(crashes.counts))

    try:
        judge_all(repairs(crashes.log))
        pairs = [name for name in found if "," in name]
        if pairs and all(each.bad for each in found.values()):
            judge_all(with_one_more(crashes.log, min(pairs, key=lambda name: found[name].bad)))
    finally:
        judging.close()
    return found


class _StateJudge:
    """Judges the states of the log of a run, as it is or repaired.  ``alone``: each is loaded in a process of its own.

    ``seen`` is the result of each state of the disk, ``order`` the one in which they were asked for; ``doubts`` are
    reasons why a result is not certain, ``unconfirmed`` the states whose recovery ended in two ways.
    """

    def __init__(
        self,
        session: Session,
        scenario: Scenario,
        outcome: Outcome,
        recorder: Recorder,
        log: Log,
        invariants: Sequence[Invariant],
        seed: str,
        until: float,
        *,
        alone: bool = False,
        controlled: bool = False,
    ) -> None:
        self.invariants, self.until, self.alone = invariants or scenario.invariants, until, alone
        self.cutting, self.recorder = Cutting(outcome, recorder), recorder
        ages = Ages.of(outcome, recorder, log)
        self.recoveries = Recoveries(
            session, scenario, outcome.world, recorder, ages, self.invariants, seed, controlled=controlled
        )
        self._damages: Damages | None = None
        self.seen: dict[Disks, Recovered] = {}
        self.order: list[Disks] = []
        self.doubts: tuple[str, ...] = ()
        self.unconfirmed: set[Disks] = set()
        self.most = ALL
        self.limit: int | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        shared = "earlier loads changed the result: each state was loaded in its own process" * self.alone
        return tuple(note for note in (self.recoveries.slow, shared) if note)

    def judge(
        self,
        log: Log,
        models: Sequence[str],
        progress: CountProgress | None = None,
        only: Crash | None = None,
    ) -> Crashes:
        """Yield all states of a log, by disk; or one of them."""
        started, before = time.perf_counter(), len(self.seen)
        under = _Pass(self, log, progress, started)
        is_whole = all(under.judge(model, only) for model in models)
        counts = {model: under.counts.get(model, Count(truncated="interrupted")) for model in models}
        return Crashes(
            self.cutting.outcome, counts, under.groups.plainest(), tuple(under.reasons),
            len(self.seen) - before, time.perf_counter() - started, log, self.notes, interrupted=not is_whole,
        )  # fmt: skip

    def states(self, log: Log, model: str) -> Enumeration:
        """Return the disks that a crash may leave under a model, or those with a kind of damage."""
        if model not in KINDS:
            return states(log, model, acks=self.cutting.acks, most=self.most)
        run = self.cutting.outcome
        asked = [each for each in run.world.faults if each.what == "damage" and model in faults.kinds(each)]
        if self._damages is None:
            self._damages = Damages(run, log, self.recorder)
        found = tuple(self._damages.states(model, asked))
        return Enumeration(found, "", 0, len(found))

    def recovered(self, pending: Sequence[Disks], left_out: list[str]) -> Iterator[int]:
        """Yield the places in ``pending`` of what has been loaded, in order of arrival.  Each disk is loaded once."""
        waiting: dict[Disks, list[int]] = {}
        for place, disks in enumerate(pending):
            waiting.setdefault(disks, []).append(place)
        fresh = [disks for disks in waiting if disks not in self.seen]
        self.order += fresh
        for disks in [disks for disks in waiting if disks in self.seen]:
            yield from waiting[disks]
        loaded = 0
        for disks, recovered in self.recoveries.recover(self._in_time(fresh, left_out), alone=self.alone):
            loaded += 1
            self.seen[disks] = recovered
            yield from waiting[disks]
        if loaded < len(fresh) and not left_out:
            left_out.append(f"{len(fresh) - loaded} states were not judged: {self.recoveries.problem}")

    def _in_time(self, disks: Sequence[Disks], left_out: list[str]) -> Iterator[Disks]:
        for number, each in enumerate(disks):
            left = len(disks) - number
            if 0 < self.until <= time.perf_counter():
                left_out.append(f"{left} states were not judged: {OUT_OF_TIME}")
                return
            if self.recoveries.hung >= MOST_HUNG:
                left_out.append(f"{left} states were not judged: {MOST_HUNG} recoveries did not end")
                return
            yield each

    def confirm(self, found: Crashes) -> bool:
        """Load a sample of all states and what is shown of each group again, each in a process of its own.

        Returns False if a result differs, because it depends on what the process had loaded before.  If each state has
        a world of its own anyway, there is no sample.
        """
        loaded = [disks for disks in self.order if disks in self.seen] if self.recoveries.shares_processes else []
        sample = loaded[:: max(1, -(-len(loaded) // _SAMPLE))]
        shown = [group.witnesses[0].disks for group in found.groups]
        again = [disks for disks in dict.fromkeys([*shown, *sample]) if not _has_hung(self.seen[disks])]
        for disks, recovered in list(self.recoveries.recover(again, alone=True)):
            if not _same(recovered, self.seen[disks]):
                ((_, third),) = self.recoveries.recover([disks], alone=True)
                if _same(recovered, third) and self.recoveries.shares_processes:
                    return False
                self.doubts = ("the recovery is not deterministic on the same disk state",)
                self.unconfirmed.add(disks)
        return True

    def close(self) -> None:
        self.recoveries.close()


class _Pass:
    """Return the states of a log, model by model."""

    def __init__(self, judging: _StateJudge, log: Log, progress: CountProgress | None, started: float) -> None:
        self.judging, self.log, self.progress, self.started = judging, log, progress, started
        self.groups = Groups()
        self._doubted: dict[str, tuple[int, CrashState]] = {}
        self._asked = 0
        self.counts: dict[str, Count] = {}

    @property
    def reasons(self) -> list[str]:
        """Return why a PASS would not be right, each reason with a state for which it holds."""
        trace = self.judging.cutting.outcome.trace
        return sorted(f"{reason} ({_place(state.crash, trace)})" for reason, (_, state) in self._doubted.items())

    def judge(self, model: str, only: Crash | None) -> bool:
        """Judge all states of a model, or one of them; returns False if that was interrupted."""
        self.counts[model] = Count()
        left_out: list[str] = []
        try:
            self._judge_all(model, only, left_out)
        except KeyboardInterrupt:
            left_out.append("interrupted")
        self.counts[model] = replace(self.counts[model], truncated="; ".join(left_out))
        return "interrupted" not in left_out

    def _judge_all(self, model: str, only: Crash | None, left_out: list[str]) -> None:
        enumeration = self.judging.states(self.log, model)
        asked = [state for state in enumeration.states if only in {None, state.crash}]
        pending = [(state, self.log.split(state.disk)) for state in asked]
        self.counts[model] = Count(states=len(pending), cuts=enumeration.cuts)
        pending = self._spread(pending, left_out) if only is None else pending
        for place in self.judging.recovered([disks for _, disks in pending], left_out):
            bad, total = self._judge(*pending[place], self._asked + place), self.counts[model]
            total = self.counts[model] = replace(total, judged=total.judged + 1, bad=total.bad + bad)
            if self.progress is not None and total.judged % _OFTEN == 0:
                self.progress(total.judged, total.states, time.perf_counter() - self.started, model)
        self._asked += len(pending)
        left_out += [enumeration.truncated] if enumeration.truncated else []

    def _spread(self, pending: list[tuple[CrashState, Disks]], left_out: list[str]) -> list[tuple[CrashState, Disks]]:
        """Return the states of as many disks as are asked for, spread evenly over all of them."""
        disks, limit = [*dict.fromkeys(each for _, each in pending)], self.judging.limit
        if limit is None or len(disks) <= limit:
            return pending
        kept = {disks[number * len(disks) // limit] for number in range(limit)}
        found = [each for each in pending if each[1] in kept]
        left_out.append(f"{len(pending) - len(found)} states were not judged: {limit} disks were asked for")
        return found

    def _judge(self, state: CrashState, disks: Disks, number: int) -> bool:
        """Return whether a state, the ``number``-th of all, broke anything.  States come in any order."""
        recovered = self.judging.seen[disks]
        cut = self.judging.cutting.cut(state.crash, dict(disks))
        cover = self.judging.cutting.recorder.unstable.cover
        outcome = replace(
            cut, recovery=cover(recovered.outcome), contents=cover(recovered.contents),
            undamaged=self.judging.cutting.outcome.recovery if state.crash.damage else None,
        )  # fmt: skip
        judgement = judge(outcome, self.judging.invariants)
        for reason in judgement.reasons:
            known = self._doubted.get(reason)
            if known is None or number < known[0]:
                self._doubted[reason] = number, state
        witness = Witness(state, disks, outcome)
        for violation in judgement.violations:
            self.groups.add(uncut(violation, state.crash), witness, number)
        return bool(judgement.violations)


def _place(crash: Crash, trace: Sequence[Event]) -> str:
    """Say in words when a crash came, or which file was damaged."""
    if crash.damage:
        return crash.damage
    ops = [event.label for index in crash.happened if isinstance(event := trace[index], Op)]
    lost = f", {len(crash.lost)} op{'s' * (len(crash.lost) > 1)} lost" if crash.lost else ""
    return f"{crash.model}: a crash after {ops[-1]}{lost}" if ops else f"{crash.model}: a crash before the first op"


def _has_hung(recovered: Recovered) -> bool:
    """Return whether to load it again would take as long as a recovery may take."""
    return recovered.outcome is not None and any(isinstance(each, Stopped) for each in recovered.outcome.results)


def _same(one: Recovered, other: Recovered) -> bool:
    return _plain(one) == _plain(other)


def _plain(recovered: Recovered) -> object:
    """Return a recovery without what differs from process to process: addresses and the like in messages."""
    if recovered.outcome is None:
        return recovered.contents
    return [_how(result) for result in recovered.outcome.results], recovered.outcome.weights, recovered.contents


def _how(result: RankResult) -> object:
    if isinstance(result, Raised):
        return result.type, result.errno, plain(result.message)
    if isinstance(result, Died):
        return result.status, result.signal
    return result.kind if isinstance(result, Stopped) else result
