"""Exploration: begin, run, judge; budget and seed live here.

Run i of a search draws from ``Random(f"{seed}:{i}")`` (what strategies have learnt from earlier runs counts too, so to
repeat one alone takes its schedule).  The first run happens twice and is compared op by op, and a run that fails in a
new way happens twice: what does not repeat is a doubt, not a failure.  A doubt makes the verdict UNKNOWN, but ends no
search: other runs may show a violation.  Several in a row do.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from racecheck.explore import first_run, observed_saves
from racecheck.explore.ahead import Ahead
from racecheck.explore.clocks import Clocks
from racecheck.explore.doubts import DIFFERS, MOST_IN_A_ROW, UNCONFIRMED
from racecheck.explore.findings import reference
from racecheck.explore.keeping import keep
from racecheck.explore.outcomes import several
from racecheck.explore.recovery.runs import CrashedRuns
from racecheck.explore.reports import Found, Report, first_failing, sized
from racecheck.explore.requests import RunRequest, Search
from racecheck.explore.resume import Past, SavedSearch, cut
from racecheck.explore.runner import Progress, confirm, run, warm_up
from racecheck.explore.runs.runs import Runs
from racecheck.explore.runs.tasks import OneRun
from racecheck.explore.runs.workers import Workers
from racecheck.explore.struck import Struck, struck
from racecheck.explore.tally import Tally, way_of
from racecheck.invariants import (
    all_shards_present,
    damage_refused,
    doubts_of,
    judge,
    name_of,
    resume_equals,
    wants_contents,
)
from racecheck.model.errors import CannotRun, InternalError, UsageError
from racecheck.model.nouns import Invariant, Judgement, Outcome, Verdict, Violation, World
from racecheck.scheduling import parts, strategies
from racecheck.scheduling.claims import Claim, pending
from racecheck.scheduling.explain import INTERRUPTED
from racecheck.scheduling.minimise import repeated, same_failure
from racecheck.scheduling.parts import Parts
from racecheck.scheduling.strategies import Auto, Diverged, Replay, Staged, Strategy, Sweep
from racecheck.scheduling.strategies.following.default import Default
from racecheck.sessions.session import Session
from racecheck.targets.programs import Program

_AHEAD = 32
"""How many runs before its turn a run may be made."""
_BUSY = 5
"""How many times as long an explanation may take if its runs wait, or if others use the machine's processors."""

_NO_CRASHES = "crash states of a run were not judged"


class Exploration:
    """A search under way."""

    def __init__(self, session: Session, search: Search, workers: Workers | None = None) -> None:
        search = replace(search, world=search.scenario.fitted(search.world), slot=session.slot.number)
        if search.earlier is not None:
            search = replace(search, world=search.earlier.world)
        if any(each.what == "damage" for each in search.world.faults) and damage_refused not in search.invariants:
            search = replace(search, invariants=(*search.invariants, damage_refused))
        self.session, self.search = session, search
        self.runs = Runs(lambda: nullcontext(session), search.scenario.reference, workers, lambda: session.until)
        self.ahead = Ahead(self.runs, self._request)
        self.started = time.perf_counter()
        self.strategy = self._make()
        past = search.earlier.past if search.earlier is not None else Past()
        self.tally = Tally(past, len(search.world.faults))
        self.repeats = False
        self.begun = past.begun
        self.asked = past.begun
        """How many runs the strategy has begun: the others have clocks apart."""
        self.crashing = CrashedRuns(
            session, search.scenario, search.world, search.invariants, search.seed, past.crashes, search.states
        )
        if self.crashing.models and search.free:
            raise UsageError("crashes and damage need controlled mode: drop --mode free or the fault")
        self.interrupted = False
        self.rehearsal: Outcome | None = None
        self.first_took = 0.0
        """Seconds until the first run was done: those before it are no measure for those after it."""
        self.is_late = False
        self.struck: list[Struck] = []
        self.parts = Parts(self.search.world)
        self.clocks = Clocks()
        self.begins_again = False
        self.whole: tuple[Claim, int] | None = None

    def rehearse(self) -> None:
        """Make the session ready for the scenario.

        Where the first run that counts has the schedule of the last of these, the two tell whether it repeats.
        """
        search = self.search
        if search.base is not None:
            self.rehearsal = search.base
            self.search = replace(search, names=search.base.names)
        else:
            self.rehearsal = warm_up(self.session, self.request(search.world, Default()))
        if resume_equals in search.invariants and not search.free:
            outcome = self.rehearsal or self._undisturbed()
            self._ask(observed_saves.with_reference(search.invariants, outcome, self._again))
        elif isinstance(search.scenario, Program):
            outcome = self.rehearsal or self._undisturbed()
            written = self.session.slot.written_outside()
            first_run.check(search.scenario.launch, outcome, written, has_faults=bool(search.world.faults))
            self._look_at_saves(outcome)

    def _undisturbed(self) -> Outcome:
        """Run the default schedule without faults."""
        return self.attempt(replace(self.search.world, faults=()), Default())

    def _look_at_saves(self, outcome: Outcome) -> None:
        """Judge the observed saves and loads of a program as well, as far as an undisturbed run does so."""
        fitting, conditions = observed_saves.fitting(outcome, self._again, self.search.world.faults)
        if isinstance(self.search.scenario, Program) and self.search.scenario.launch.kept:
            conditions += (first_run.KEPT,)
        if isinstance(self.search.scenario, Program) and self.search.scenario.launch.left_out:
            conditions += (self.search.scenario.launch.left_out,)
        known = [*self.search.invariants]
        self._ask((*known, *(each for each in fitting if each not in known)))
        if not self.search.world.faults and observed_saves.has_shards(outcome):
            conditions += self._look_at_shards()
        self.tally.note(Claim(proves=True, conditions=conditions))

    def _ask(self, invariants: Sequence[Invariant]) -> None:
        """Judge by these invariants from now on."""
        self.search = replace(self.search, invariants=invariants)
        self.crashing.judge_also(invariants)

    def _again(self, world: World, seed: str) -> Outcome:
        """Run the default schedule without faults, with another seed, and at half the speed."""
        request = replace(self.request(replace(world, faults=()), Default()), seed=seed, pace=2)
        return run(self.session, request)

    def _look_at_shards(self) -> tuple[str, ...]:
        """Judge whether the checkpoints of a program are whole, if they can be read; returns the condition if not."""
        before = self.search
        self._ask((*before.invariants, all_shards_present))
        if not observed_saves.leaves_open(self._undisturbed()):
            return ()
        self._ask(before.invariants)
        return (observed_saves.UNREADABLE,)

    def run(self, progress: Progress | None) -> None:
        """Run until something fails, nothing is left to try, or the budget is spent."""
        self._try_schedules(progress)
        self._set_clocks_apart(progress, at_end=True)

    def _try_schedules(self, progress: Progress | None) -> None:
        while not self._is_over() and self._begin_ahead() and self._begin():
            try:
                outcome = self._once(self.strategy)
            except Diverged as difference:
                self.strategy.abandon()
                self.tally.stray(str(difference))
                continue
            except KeyboardInterrupt:
                self.strategy.abandon()
                self.interrupted = True
                return
            if not (self.repeats or self.search.free):
                begins_again, outcome = self._check_determinism(outcome)
                if begins_again:
                    self.strategy, self.begun = self._make(), self.tally.past.begun
                    continue
            self._take(outcome)
            self._learn_parts(outcome)
            self._crash(outcome, progress)
            self._tell(progress)
            if self._varies_clocks and self.tally.done == 1:
                self.clocks.begin(outcome)
            self._set_clocks_apart(progress)
            if not outcome.schedule and not self.search.free and not self._has_begun_again:
                return  # without a choice, every further run would be the same

    @property
    def _has_begun_again(self) -> bool:
        """Return whether a proof begins again after its first run: it counts only runs from then on."""
        claim = self.strategy.claim()
        return claim.proves and not claim.exhaustive and not (claim.traces or claim.redundant)

    @property
    def _varies_clocks(self) -> bool:
        search = self.search
        return search.strategy == strategies.DEFAULT and not search.free and search.earlier is None

    def _set_clocks_apart(self, progress: Progress | None, *, at_end: bool = False) -> None:
        """Make the runs with clocks apart whose turn it is."""
        while not self._is_over() and (turn := self.clocks.next(self.tally.done, at_end=at_end)) is not None:
            if not turn.begin(Random(f"{self.search.seed}:{self.begun}")):
                continue
            self.begun += 1
            try:
                outcome = self.attempt(turn.world, turn.strategy)
            except Diverged as difference:
                turn.strategy.abandon()
                self.tally.stray(str(difference))
                continue
            except KeyboardInterrupt:
                self.interrupted = True
                return
            self.clocks.take(turn, outcome)
            self._take(outcome)
            self._tell(progress)

    def _tell(self, progress: Progress | None) -> None:
        if self.tally.done == 1:
            self.first_took = self.seconds
        if progress is not None:
            endings = len(self.tally.endings)
            outcomes = f"{endings} outcome{'s' * (endings != 1)}"
            remark = ", ".join(filter(None, (self._left(), outcomes)))
            progress(self.tally.done, len(self.tally.seen), self.seconds, remark)

    def _left(self) -> str:
        """Return the rest that the strategy has to try, in a few words; if there is none, its claim."""
        due = self.strategy.due if isinstance(self.strategy, Sweep) else 0
        if due:
            each = (self.seconds - self.first_took) / (self.tally.done - 1) if self.tally.done > 1 else 0.0
            return f"{due} more single fault{'s' * (due > 1)} to try{f', about {due * each:.0f} s' if each else ''}"
        claim = self.strategy.claim()
        return f"{claim.kind}: {claim.left}" if claim.kind and claim.left else str(claim)

    @property
    def seconds(self) -> float:
        """Return the seconds since the search began."""
        return time.perf_counter() - self.started

    def clock_of_explanations(self) -> Callable[[], float]:
        """Return a clock for explanations: of real time if the search has a limit, else of processor time.

        On a busy machine a run takes longer, but no more of a processor.  A run that waits in real time counts, too.
        """
        begun, used = self.seconds, self.session.processor_seconds

        def clock() -> float:
            return max(self.session.processor_seconds - used, (self.seconds - begun) / _BUSY)

        return (lambda: self.seconds) if self.search.seconds else clock

    def _make(self) -> Strategy:
        earlier = self.search.earlier
        progress = earlier.progress if earlier is not None else None
        name = "random" if self.search.free else self.search.strategy
        return strategies.make(name, self.search.world, progress, self.search.swept)

    def _is_over(self) -> bool:
        if self.interrupted:
            return True
        if self._is_settled():
            return True
        if self.tally.done >= self._most:
            return True
        self.is_late = 0 < self.search.seconds <= self.seconds and self.tally.done > 0
        return self.is_late

    @property
    def _most(self) -> int:
        """How many runs the search may have."""
        if self.search.swept is None or not isinstance(self.strategy, Sweep):
            return self.search.schedules
        return self.search.schedules + self.strategy.swept if self.strategy.is_swept else sys.maxsize

    @property
    def _runs_left(self) -> int:
        """How many runs the strategy may still have before the search ends or begins again."""
        most = self.search.schedules // 2 if self.begins_again else self._most
        return max(most - self.tally.done, 0)

    def _is_settled(self) -> bool:
        """Return whether there is a verdict that no further run is asked to change."""
        if self.tally.is_hopeless or not self.search.invariants:
            return self.tally.done + self.tally.strayed > 0
        if not self.tally.broken:
            return False
        if self.search.until:
            return self.search.until in {each.invariant for each in self.tally.broken}
        return not self.search.keep_going

    def _learn_parts(self, outcome: Outcome) -> None:
        """Note which calls are to go in parts; for that the strategy has to begin again."""
        if self.search.free:
            return
        self.begins_again |= self.parts.learn(outcome)
        if self.parts.stay_whole:
            self.tally.note(Claim(proves=True, conditions=(parts.CONDITION,)))

    def _begin(self) -> bool:
        if self.begins_again and self._is_time_for_parts():
            self._begin_again()
        self.begun += 1
        self.asked += 1
        rng = self._rng(self.asked - 1)
        if self.strategy.begin(rng):
            return True
        if not self.begins_again:
            return False
        self._begin_again()
        return self.strategy.begin(rng)

    def _rng(self, number: int) -> Random:
        return Random(f"{self.search.seed}:{number}")

    def _begin_ahead(self) -> bool:
        """Let workers make runs whose turn has not come, if they do not depend on runs before them."""
        if self.runs.has_workers and self.repeats and not self.crashing.models:
            for runs in range(min(_AHEAD, self._runs_left)):
                number = self.asked + runs
                strategy = None if number in self.runs else self.strategy.ahead(runs, self._rng(number))
                if strategy is not None:
                    self.runs.submit(number, OneRun(self._request(strategy)))
            self.ahead.offer(self.strategy, self._runs_left)
            self.runs.feed()
        return True

    def _is_time_for_parts(self) -> bool:
        """Return whether calls are to go in parts from now on, before all is tried with whole calls.

        Half of the budget is for whole calls: most races need no more.
        """
        search = self.search
        is_late = self.seconds >= search.seconds / 2 if search.seconds else False
        return bool(search.world.parts) or is_late or self.tally.done >= search.schedules / 2

    def _begin_again(self) -> None:
        self.begins_again = False
        self.runs.drop()
        self.ahead.drop()
        self.whole = self.strategy.claim(), self.tally.done
        self.struck = []
        self.search = replace(self.search, world=self.parts.of(self.search.world), earlier=None)
        self.strategy = self._make()

    def _once(self, strategy: Strategy) -> Outcome:
        number = self.asked - 1
        if number in self.runs:
            outcome: Outcome = self.runs.result(number)[0]
            strategy.end(outcome)
            return outcome
        made = self.ahead.take(strategy, self._runs_left)
        if made is not None:
            strategy.end(made)
            return made
        recorder = None if self.search.free else self.crashing.recorder()
        return run(self.session, self._request(strategy), recorder, self.search.recoveries)

    def _request(self, strategy: Strategy) -> RunRequest:
        """Return a run of the search itself.

        A failure is run again, with stacks: without them a run takes about two thirds of the time.
        """
        stacks = self.search.stacks and (bool(self.crashing.models) or self.strategy.wants_stacks)
        return replace(self.request(self.search.world, strategy), stacks=stacks)

    def request(self, world: World, strategy: Strategy) -> RunRequest:
        """Return a run of the scenario in a world of any size."""
        search = self.search
        return RunRequest.of(
            search.scenario, world, strategy, seed=search.seed, stacks=search.stacks, names=search.names,
            contents=wants_contents(search.invariants), free=search.free,
        )  # fmt: skip

    def attempt(self, world: World, strategy: Strategy) -> Outcome:
        """Run the scenario once, in a world of any size."""
        return run(self.session, self.request(world, strategy))

    def _take(self, outcome: Outcome) -> None:
        outcome, judgement = self._confirmed(outcome, judge(outcome, self.search.invariants))
        if isinstance(self.strategy, Sweep) and self.strategy.tries is not None:
            self.struck.append(struck(*self.strategy.tries, outcome, judgement))
        number = self.begun - 1
        keeping = partial(keep, self.search, outcome, judgement, number)
        self.tally.take(outcome, judgement, number, self.search.invariants, keeping)
        if isinstance(self.search.scenario, Program) and not self.search.free:
            self.tally.observe(outcome)

    def _crash(self, outcome: Outcome, progress: Progress | None) -> None:
        """Judge the crash states of a run.  A run that proves nothing itself is left out."""
        if not self.crashing.models or self.search.free:
            return
        if self.tally.doubts.in_a_row or any(doubts_of(outcome)):
            self.tally.lower(_NO_CRASHES)
            return
        left = max(0.01, self.search.seconds - self.seconds) if self.search.seconds else 0.0

        def tell(what: str) -> None:
            if progress is not None:
                progress(self.tally.done, len(self.tally.seen), self.seconds, what)

        try:
            crashes = self.crashing.judge(outcome, seconds=left, tell=tell)
        except KeyboardInterrupt:
            self.tally.lower(_NO_CRASHES)
            self.interrupted = True
            return
        if crashes is None:
            return
        self.tally.take_crashes(crashes, self.search.world, self.begun - 1, self._keep)
        self.interrupted |= crashes.interrupted

    def _keep(self, broken: Outcome) -> tuple[Judgement, Sequence[Found]]:
        judgement = judge(broken, self.search.invariants)
        return judgement, keep(self.search, broken, judgement, self.begun - 1)

    def _confirmed(self, outcome: Outcome, judgement: Judgement) -> tuple[Outcome, Judgement]:
        """Return a run and its judgement; of a new kind of failure, the second run of it.

        If that does not repeat it is only a reason for doubt.
        """
        why = "" if self.repeats or self.search.free else "the run did not repeat"
        is_new = not self.search.free and way_of(outcome, judgement) not in self.tally.endings
        if judgement.violations and is_new and self.tally.done and not why:
            why, outcome = self._repeats(outcome, judgement.violations[0])
        is_over = not any(" did not end: " in each for each in judgement.reasons)
        self.tally.doubts.in_a_row = 0 if is_over and not why else self.tally.doubts.in_a_row + 1
        if not why or not judgement.violations:
            return outcome, judgement
        self.tally.lower(why)
        unconfirmed = [f"{UNCONFIRMED}: {each.invariant}: {each.message} ({why})" for each in judgement.violations]
        return outcome, Judgement(Verdict.UNKNOWN, reasons=[*judgement.reasons, *unconfirmed])

    def _repeats(self, outcome: Outcome, violation: Violation) -> tuple[str, Outcome]:
        """Return "" and a second run of the schedule in which a failure shows again, else why it is not known to."""
        fails = same_failure(outcome, violation, self.search.invariants)
        try:
            with self.session.limited(math.inf):
                return "", repeated(outcome, self.attempt, fails)[0]
        except (CannotRun, InternalError) as error:
            return str(error), outcome
        except KeyboardInterrupt:
            self.interrupted = True
            return INTERRUPTED, outcome

    def stop(self, error: CannotRun | InternalError) -> None:
        """Note why the search cannot continue; its findings stay.  Raises the error if that is nothing."""
        if not self.tally.broken:
            raise error
        self.strategy.abandon()
        self.tally.lower(str(error))
        self.tally.stopped = str(error)

    def _check_determinism(self, first: Outcome) -> tuple[bool, Outcome]:
        """Run the first run twice; returns whether the search begins again, and the run as it is then shown.

        It does if names were learned from that, because the strategy has seen the names as they were; and if the first
        two runs differ, but later runs of the schedule are alike.
        """
        outcome, difference, is_rare = confirm(first, self._repeat)
        if not difference:
            self.repeats = True
            learnt = outcome.names != self.search.names
            self.search = replace(self.search, names=outcome.names)
            return learnt, outcome
        if is_rare and self.tally.doubts.in_a_row + 1 < MOST_IN_A_ROW:
            self.tally.stray(difference)
            return True, outcome
        self.tally.doubt(f"{DIFFERS}: {difference}")
        self.tally.doubts.in_a_row = MOST_IN_A_ROW
        return False, outcome

    def _repeat(self, outcome: Outcome, labels: bool) -> tuple[Outcome, str]:
        """Run the schedule of an outcome again; returns the outcome, and where it left the schedule."""
        before, self.rehearsal = self.rehearsal, None
        if before is not None and _is_alike(before, outcome):
            return before, ""
        again = Replay(outcome.schedule, labels=labels)
        again.begin(Random(0))
        request = replace(self.request(outcome.world, again), names=outcome.names)
        return run(self.session, request), again.divergence

    def report(self) -> Report:
        search = self.search
        failing = first_failing([*self.tally.endings.values()], search.until)
        verdict, why = self._verdict()
        outcome = failing.outcome if failing is not None else self.tally.largest
        claim = self.clocks.told(self._claim().join(self.tally.shown)).join(self.tally.excused.claim())
        claim = claim.join(self.tally.continued.claim())
        if isinstance(search.scenario, Program) and not search.world.faults:
            claim = claim.join(several(each.outcome for each in self.tally.endings.values() if not each.violations))
        claim = claim.join(self.crashing.claim()).join(pending(why)).join(self.tally.in_vain(search.world))
        return Report(
            target=search.scenario.target,
            verdict=verdict,
            world=search.world,
            seed=search.seed,
            strategy="free" if search.free else search.strategy,
            schedules=self.tally.past.runs + self.tally.done,
            distinct_schedules=len(self.tally.seen),
            seconds=self.seconds,
            ops=outcome.coverage.ops if outcome else 0,
            claim=claim,
            tried=(*(self.strategy.tried if isinstance(self.strategy, Sweep) else ()), *self.crashing.tried),
            crashes=tuple(self.crashing.judged),
            crashes_total=self.crashing.total,
            interrupted=self.interrupted,
            is_late=self.is_late or self.crashing.is_late,
            struck=tuple(self.struck),
            asked=tuple(map(name_of, search.invariants)),
            endings=tuple(self.tally.endings.values()),
            violations=(*(failing.violations if failing is not None else ()), *found_before(self.tally.past)),
            reasons=(*self.tally.reasons, *why),
            coverage=sized(self.tally.coverage, outcome),
            outcome=outcome if failing is not None or not self.tally.past.violations else None,
            schedule_number=failing.number if failing is not None else self.begun - 1,
            cut=self._cut(),
            observed=self.tally.observed,
        )

    def _claim(self) -> Claim:
        """Return the claim of the runs with calls in parts, or of those with whole ones if there are no others."""
        whole, before = self.whole or (Claim(), -1)
        is_whole = before == self.tally.done
        claim = whole if is_whole else self.strategy.claim()
        is_open = self.begins_again or is_whole
        if any(map(parts.is_cut, self.search.world.parts)) and not is_open:
            return claim.join(Claim(proves=True, conditions=(parts.HALVES,)))
        return claim.join(Claim(proves=True, conditions=(parts.CONDITION,))) if is_open else claim

    def _verdict(self) -> tuple[Verdict, list[str]]:
        """Return the verdict, and the reasons against a PASS besides the results of the runs."""
        runs, most = self.tally.past.runs + self.tally.done, self.tally.past.runs + self.search.schedules
        if self.interrupted:
            why = [f"interrupted after {runs} of {most} schedules"]
        elif not runs:
            limit = f" to its end in {self.search.seconds:g} s" if self.search.seconds else ""
            why = [f"no schedule was run{limit}"]
        else:
            why = self.tally.unreached(self.search.world)
        doubts = Verdict.UNKNOWN if why or self.tally.reasons else Verdict.PASS
        return Verdict.FAIL if self.tally.broken else max(self.tally.past.verdict, doubts), why

    def _cut(self) -> SavedSearch | None:
        """Return where the search stands, if there is more to try."""
        search = self.search
        if search.free or not isinstance(self.strategy, (Auto, Staged)) or not self.strategy.progress.left:
            return None
        if self._is_settled() and not self.interrupted:
            return None
        past = self.tally.as_past(self.begun, self.crashing.done)
        return cut(reference(search.scenario), search.world, search.seed, search.names, self.strategy.progress, past)


def _is_alike(one: Outcome, other: Outcome) -> bool:
    """Return whether two runs had one world and one schedule; faults that did not happen do not count."""
    chosen = [[each for each in run.schedule if each.kind != "fault"] for run in (one, other)]
    worlds = [replace(run.world, faults=()) for run in (one, other)]
    return worlds[0] == worlds[1] and chosen[0] == chosen[1] and not any((*one.fired, *other.fired))


def found_before(past: Past) -> tuple[Found, ...]:
    """Return the violations that were found before a search was cut."""
    return tuple(Found(each.violation, None, Path(each.finding) if each.finding else None) for each in past.violations)
