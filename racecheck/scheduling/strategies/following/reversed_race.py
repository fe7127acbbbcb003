"""Reverse one race of a run, and keep all else as it was, as far as possible.

First come the ops before the earlier op, then all ops between the two that does not follow from it, and
then the later op: so does DPOR reverse a race.  The earlier op goes next: races are about a thread that has
looked and not yet acted.  Then comes the rest, in the old order.  Faults and stale reads stay with their ops.

In the other order a thread may make more ops, or fewer: its mkdir may fail now, and then it looks.  So ops are matched
by their labels, and not by their numbers, and the ops behind the pair keep their places in the old order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from random import Random

from racecheck.model.nouns import Event, Op, Outcome, Point, Schedule
from racecheck.model.ops.footprint import Dependence
from racecheck.scheduling.happens_before import Order, Step, is_step, yields
from racecheck.scheduling.strategies.following.answers import Answers
from racecheck.scheduling.strategies.protocol import Diverged, Strategy

_LEFT_OUT = 8
"""The most ops in a row that a thread is taken to leave out."""


class Forcing(Strategy):
    """``first`` and ``second`` are the indices in ``trace`` of two ops that race with each other.

    ``schedule`` is that of the run.
    ``problem`` says after the run why they did not go the other way, "" if they did; a run that comes to nothing is cut
    short with it.
    """

    def __init__(
        self, relation: Dependence, trace: Sequence[Event], first: int, second: int, schedule: Schedule = ()
    ) -> None:
        self._relation, self._schedule = relation, schedule
        steps = [index for index, event in enumerate(trace) if isinstance(event, Op) and is_step(event, relation)]
        order = Order(relation)
        order.extend(trace)
        earlier, later = steps.index(first), steps.index(second)
        between = range(earlier + 1, later)
        free = [each for each in between if not order.before(earlier, each)]
        after = [each for each in between if order.before(earlier, each)]
        script = (*range(earlier), *free, later, earlier, *after, *range(later + 1, len(steps)))
        self._script = [order.steps[each] for each in script]
        self._earlier, self._later = order.steps[earlier], order.steps[later]
        self._own: dict[str, list[Step]] = defaultdict(list)
        for step in order.steps:
            self._own[step.op.thread].append(step)
        self.problem = ""

    def begin(self, rng: Random) -> bool:
        del rng
        self._order, self._seen, self._next = Order(self._relation), 0, 0
        self._done: Counter[str] = Counter()
        self._answers = Answers(self._schedule)
        self._decided, self.problem = False, f"{self._later.op.label} did not happen"
        return True

    def choose(self, point: Point) -> int:
        self._follow(point.trace)
        if self._decided and self.problem:
            raise Diverged(self.problem)
        if point.kind != "next":
            return self._answers.take(point)
        for op in point.options:
            if is_step(op, self._relation):
                self._done[op.thread] = max(self._done[op.thread], self._old_number(op) - 1)
        while self._next < len(self._script) and self._has_gone(self._script[self._next]):
            self._next += 1
        able = [option.thread for option in point.options]
        for step in self._script[self._next :]:
            if step.op.thread in able and not self._has_gone(step):
                return able.index(step.op.thread)
        return self._default(point)

    def end(self, outcome: Outcome) -> None:
        self._follow(outcome.trace)

    def _follow(self, trace: Sequence[Event]) -> None:
        """Take in what has happened since the last point."""
        for event in trace[self._seen :]:
            if isinstance(event, Op) and is_step(event, self._relation):
                self._take(self._order.add(event))
        self._seen = len(trace)

    def _take(self, step: Step) -> None:
        done = self._old_number(step.op)
        if not done:
            return
        self._done[step.op.thread] = done
        if self._decided:
            return
        if self._has_gone(self._later):
            self._decided, is_it = True, done == self._later.number
            self.problem = "" if is_it else f"{self._later.op.label} did not happen"
        elif self._has_gone(self._earlier):
            self._decided = True
            held_up = next(each for each in self._script if not self._has_gone(each))
            self.problem = f"{held_up.op.label} did not come before {step.op.label}"

    def _old_number(self, op: Op) -> int:
        """Return the number that a thread's op had in the old run; 0 if the old run has no such op."""
        expected = self._own[op.thread][self._done[op.thread] :][: _LEFT_OUT + 1]
        alike = next((each for each in expected if each.op.label == op.label), None)
        if alike is None and expected and expected[0].op.call == op.call:  # a directory above has another name now
            alike = expected[0]
        return alike.number if alike is not None else 0

    def _has_gone(self, step: Step) -> bool:
        return step.number <= self._done[step.op.thread]

    def _default(self, point: Point) -> int:
        """Return the last part of the old run: a thread that only repeats a question lets another one go."""
        busy = (index for index, op in enumerate(point.options) if not yields(op) and not self._order.is_vain(op))
        return next(busy, 0)
