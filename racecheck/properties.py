"""Property tests of savers: hypothesis draws schedules and worlds, and shrinks what fails.

    @settings(deadline=None)
    @given(schedule=racecheck.schedules(), world=racecheck.worlds(ranks=(2, 4)))
    def test_overwrite(schedule, world):
        racecheck.check(overwrite, schedule=schedule, world=world)

A drawn schedule is the tamest one but for a few switches, so that shrinking comes to the fewest with which it fails.
How long a run takes is not the property: hence no deadline.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from random import Random
from typing import Any

from hypothesis import stateful
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from racecheck import config, doctor, runner
from racecheck.compare import first_difference
from racecheck.errors import CannotRun
from racecheck.invariants import judge, wants_contents
from racecheck.model import Choice, Invariant, Outcome, Point, World
from racecheck.report.text import render, summary
from racecheck.strategies import Replay, Strategy
from racecheck.targets import Scenario, make_world
from racecheck.world.session import Session

_NEAR, _FARTHEST, _MOST_SWITCHES, _MOST_RANKS = 6, 100, 8, 16


class Switches(Strategy):
    """A schedule: ``switches`` says after how many tame choices each time which option is taken instead (from 1).

    Where there are fewer options it is the last one.  After a run, ``taken`` are the choices that were not tame.
    """

    def __init__(self, switches: Sequence[tuple[int, int]]) -> None:
        self._switches = tuple(switches)
        self.taken: list[Choice] = []

    def begin(self, rng: Random) -> bool:
        del rng
        self._left, self._tame, self.taken = [*reversed(self._switches)], 0, []
        return True

    def choose(self, point: Point) -> int:
        if not self._left or self._tame < self._left[-1][0]:
            self._tame += 1
            return 0
        _, index = self._left.pop()
        self._tame = 0
        index = min(index, len(point.options) - 1)
        self.taken.append(Choice(point.kind, len(point.options), index, point.options[index].label))
        return index

    def __repr__(self) -> str:
        """What hypothesis shows of a failing example."""
        labels = ", ".join(each.label for each in self.taken)
        return f"Switches({list(self._switches)})" + (f" (to {labels})" if labels else "")


def schedules(most: int = _MOST_SWITCHES) -> SearchStrategy[Switches]:
    """Schedules with so many switches at most; they shrink towards the tamest one."""
    soon, later = st.integers(0, _NEAR), st.integers(0, _FARTHEST)
    switch = st.tuples(soon | later, st.integers(1, _MOST_RANKS))
    return st.lists(switch, max_size=most).map(Switches)


def worlds(ranks: tuple[int, int] = (2, 4), skew: float = 0.0, **rest: Any) -> SearchStrategy[World]:
    """Worlds of so many ranks, from and to, each with a clock up to ``skew`` seconds ahead; ``rest`` as in `World`."""

    def of(count: int) -> SearchStrategy[World]:
        ahead = st.tuples(*[st.floats(0, skew)] * count) if skew else st.just(())
        return ahead.map(lambda each: make_world(World(**rest), ranks=count, skew=each))

    return st.integers(*ranks).flatmap(of)


def run(
    scenario: Scenario,
    *,
    schedule: Strategy | None = None,
    world: World | None = None,
    invariants: Sequence[Invariant] | None = None,
    keep: bool = False,
) -> Outcome:
    """Run a scenario once and give what came of it; without a schedule the tamest one.

    ``keep``: on the disk that the last run has left, and not on a fresh one.  Raises `UsageError`; `CannotRun`.
    """
    session, world = _session(), world or scenario.world
    asked = scenario.invariants if invariants is None else invariants
    if not keep:  # it would change the disk
        runner.warm_up(session, scenario, world, seed="0")
    strategy = schedule or Switches(())
    strategy.begin(Random(0))
    return runner.run_once(session, scenario, world, strategy, seed="0", contents=wants_contents(asked), keep=keep)


def check(
    scenario: Scenario,
    *,
    schedule: Strategy | None = None,
    world: World | None = None,
    invariants: Sequence[Invariant] | None = None,
    keep: bool = False,
) -> Outcome:
    """The same, and raise `AssertionError` with the interleaving unless every invariant holds.

    Raises `CannotRun` where that is not known: an invariant cannot judge, or the run does not repeat.
    """
    asked = scenario.invariants if invariants is None else tuple(invariants)
    outcome = run(scenario, schedule=schedule, world=world, invariants=asked, keep=keep)
    judgement = judge(outcome, asked)
    if judgement.violations:
        if not keep:
            _check_that_it_repeats(scenario, outcome, asked)
        shown = "; ".join(f"{each.invariant}: {each.message}" for each in judgement.violations)
        raise AssertionError(f"{shown}\n\n{render(outcome, judgement.violations)}\n\n{summary(outcome)}")
    if judgement.reasons:
        raise CannotRun(f"UNKNOWN: {'; '.join(judgement.reasons)}")
    return outcome


def _check_that_it_repeats(scenario: Scenario, outcome: Outcome, invariants: Sequence[Invariant]) -> None:
    again = Replay(outcome.schedule)
    now = run(scenario, schedule=again, world=outcome.world, invariants=invariants)
    difference = again.divergence or first_difference(outcome, now)
    if difference:
        raise CannotRun(f"UNKNOWN: two runs of the same schedule differ: {difference}")


class Phases(stateful.RuleBasedStateMachine):
    """A state machine whose rules run scenarios one after the other on one disk: save, load, rotate, resume, ...

        class Saver(racecheck.Phases):
            @rule(schedule=racecheck.schedules())
            def save(self, schedule):
                self.check(saves, schedule=schedule)

            @rule(schedule=racecheck.schedules())
            def resume(self, schedule):
                self.check(loads, schedule=schedule)

        TestSaver = Saver.TestCase

    The first begins with its scenario's setup, the others with what the last one has left.
    """

    def __init__(self) -> None:
        super().__init__()
        self._begun = False

    def check(self, scenario: Scenario, **named: Any) -> Outcome:
        """Like `racecheck.check`, on the disk that the last phase has left."""
        keep, self._begun = self._begun, True
        return check(scenario, keep=keep, **named)


@cache
def _session() -> Session:
    """The one of this process, which ends with it."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(doctor.start(config.read().runs))
