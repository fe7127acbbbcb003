"""The critical pair: two ops of a failing run whose order separates failing from passing.

That is how hermit (facebookexperimental/hermit, ``analyze``) explains a failure: not by all in which a failing and a
passing run differ, but by the last step on the way from one to the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, combinations
from random import Random
from typing import Literal

from racecheck.model.nouns import Event, Op, Outcome, Violation
from racecheck.model.ops.footprint import Footprint, depends
from racecheck.model.ops.launcher_ops import is_of_launcher
from racecheck.scheduling import file_times
from racecheck.scheduling.happens_before import Order, Step, is_step
from racecheck.scheduling.minimise.attempts import Attempt, Counted, Spent
from racecheck.scheduling.minimise.failure import Failure
from racecheck.scheduling.strategies.following.reversed_race import Forcing
from racecheck.scheduling.strategies.protocol import Diverged

OpPair = tuple[int, int]
"""Two ops in the order in which they went, by their indices in the trace; indices after its end are pending ops."""


Flip = Literal["same", "another rank", "another failure", "other faults", "impossible"]
"""The result of a run with two ops in the other order that did not pass.

same: it fails in the same way.  another rank: in the same way, but other ranks fail.  another failure: it breaks
something else, or a rank does not return.  other faults: a fault of the failing run does not happen, or a new one does.
impossible: the ops cannot go the other way.
"""


@dataclass(frozen=True, slots=True)
class CriticalPair:
    """In the failing run ``first`` went before ``second``; ``neighbour`` is a run in which they went the other way.

    In the neighbour the same faults happened, every invariant holds and every rank returned.  ``events`` are indices in
    the failing run's trace; one beyond its end is of a pending op, which waited for a lock there and never went.
    """

    first: Op
    second: Op
    events: OpPair
    neighbour: Outcome


@dataclass(frozen=True, slots=True)
class Critical:
    """The result of the search; ``pair`` is None if no order of two ops made a run pass.

    ``others`` are the results of the pairs that were tried in vain; ``is_killed`` that none was tried, since
    ranks of the failing run were killed.
    """

    pair: CriticalPair | None
    runs: int
    cut: bool
    others: tuple[Flip, ...] = ()
    is_killed: bool = False


def critical_pair(outcome: Outcome, attempt: Attempt, failure: Failure, *, budget: int = 100) -> Critical:
    """Reverse pairs of a failing run, one at a time, until a run passes.

    Of a run in which a fault killed ranks no pair is looked for: the other order would be killed elsewhere.
    """
    violation = failure(outcome)
    assert violation is not None, "a run that has not the failure has no pair that is critical for it"
    if any(op.call == "kill" and op.fault and not is_of_launcher(op) for op in outcome.ops):
        return Critical(None, 0, cut=False, is_killed=True)
    counted, others = Counted(attempt, budget), list[Flip]()
    try:
        for pair in _Races(outcome, violation).tries():
            neighbour = _other_way(outcome, pair, counted)
            change = _change(neighbour, outcome, failure, violation)
            if change is not None:
                others.append(change)
            elif neighbour is not None:
                first, second = (op_at(outcome, index) for index in pair)
                return Critical(CriticalPair(first, second, pair, neighbour), counted.runs, False, tuple(others))
    except Spent:
        return Critical(None, counted.runs, True, tuple(others))
    return Critical(None, counted.runs, False, tuple(others))


def races(outcome: Outcome, violation: Violation) -> list[OpPair]:
    """Yield the pairs of a failing run that could have gone the other way, the least informative and nearest first.

    Of two that are about the same threads that says less of which more runs have it: its ops are further apart.
    """
    return _Races(outcome, violation).weakest_first()


class _Races:
    """The pairs of a failing run, by the numbers of their steps."""

    def __init__(self, outcome: Outcome, violation: Violation) -> None:
        self._model = model = file_times.relation_of(outcome)
        events = (*outcome.trace, *outcome.pending)
        self._at = [index for index, event in enumerate(events) if isinstance(event, Op) and is_step(event, model)]
        self._order = Order(model)
        self._order.extend(outcome.trace)
        pending = [self._order.imagine(op) for op in outcome.pending if is_step(op, model)]
        self._steps: list[Step] = [*self._order.steps, *pending]
        self._shown = [self._at.index(each) for each in sorted(violation.events) if each in self._at]
        ends = {step.op.rank: number for number, step in enumerate(self._order.steps)}
        self._concerned = self._shown or [ends[rank] for rank in violation.ranks if rank in ends]

    def tries(self) -> Iterator[OpPair]:
        """Yield the pairs that are next to each other, the last ones first, and then those behind them.

        Two ops that show the failure need not depend on each other: something was written after it had been published.
        Where a pair hides another (a directory is made, its mode is set, and then another rank cannot make it), one of
        its ops has to be moved past more than one op of the other thread.  Pairs that nothing leads from to what shows
        the failure, or to the last ops of the ranks that failed, are left out.
        """
        near = self._immediate()
        behind = (each for pair in near for each in self._behind(*pair, ends_otherwise=True))
        every = dict.fromkeys(chain(self._direct(), near, behind))
        return (self._pair(*each) for each in every if self._matters(*each))

    def _matters(self, first: int, second: int) -> bool:
        recorded = [each for each in (first, second) if each < len(self._order.steps)]
        reached = (self._order.before(each, end) for each in recorded for end in self._concerned if each <= end)
        return not self._concerned or any(reached)

    def weakest_first(self) -> list[OpPair]:
        found = self._direct()
        for pair in self._immediate():
            found += [*reversed([*self._behind(*pair)]), pair]
        return [self._pair(*each) for each in dict.fromkeys(found)]

    def _direct(self) -> list[OpPair]:
        pairs = combinations(self._shown, 2)
        return [pair for pair in reversed([*pairs]) if not self._order.before(*pair)]

    def _immediate(self) -> list[OpPair]:
        last = self._shown[-1] if self._shown else len(self._steps)
        found = [(first, second) for second, step in enumerate(self._steps) for first in step.races]
        return sorted(found, key=lambda pair: (pair[1] <= last, pair[1], pair[0]), reverse=True)

    def _behind(self, first: int, second: int, *, ends_otherwise: bool = False) -> Iterator[OpPair]:
        """Yield moves of the later op before more of the other thread, and of the earlier one after more.

        ``ends_otherwise``: a failed op may succeed when it is moved, and then it races with more ops.
        """
        one, other = self._steps[first], self._steps[second]
        here, there = (self._ending(step) if ends_otherwise else step.footprint for step in (one, other))
        for each in range(first - 1, -1, -1):
            if self._is_like(each, one) and depends(self._steps[each].footprint, there):
                yield each, second
        for each in range(second + 1, len(self._steps)):
            if self._is_like(each, other) and depends(self._steps[each].footprint, here):
                yield first, each

    def _ending(self, step: Step) -> Footprint:
        """Return the footprint of a step whose result is not known."""
        return self._model.footprint(replace(step.op, result=None))

    def _is_like(self, number: int, step: Step) -> bool:
        return self._steps[number].op.thread == step.op.thread

    def _pair(self, first: int, second: int) -> OpPair:
        return self._at[first], self._at[second]


def _other_way(outcome: Outcome, pair: OpPair, attempt: Attempt) -> Outcome | None:
    """Return the run in which just this pair goes the other way; None if there is none."""
    first, second = pair
    trace: tuple[Event, ...] = outcome.trace
    if second >= len(trace):
        trace, second = (*trace, op_at(outcome, second)), len(trace)
    strategy = Forcing(file_times.relation_of(outcome), trace, first, second, outcome.schedule)
    strategy.begin(Random(0))
    try:
        neighbour = attempt(outcome.world, strategy)
    except Diverged:
        return None
    return None if strategy.problem else neighbour


def _change(neighbour: Outcome | None, outcome: Outcome, failure: Failure, violation: Violation) -> Flip | None:
    """Return the result of a run in the other order, None if it passes."""
    if neighbour is None:
        return "impossible"
    if neighbour.fired != outcome.fired:
        return "other faults"
    if failure.is_gone(neighbour):
        return None
    same = failure(neighbour)
    if same is None:
        return "another failure"
    return "same" if {*same.ranks} == {*violation.ranks} else "another rank"


def op_at(outcome: Outcome, index: int) -> Op:
    """Return the op with this index in the trace; indices beyond its end are pending ops."""
    op = (*outcome.trace, *outcome.pending)[index]
    assert isinstance(op, Op)
    return op
