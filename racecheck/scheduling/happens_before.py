"""The order of one run: what happens before what, and which ops were in a race that could have gone the other way.

Program order, collectives and the like are in the clocks of the ops.  Here the order in which dependent ops went is
added, so that two ops are ordered exactly if they are in every run that is equivalent to this one.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from racecheck.model.nouns import Event, Op
from racecheck.model.ops import store_ops
from racecheck.model.ops.footprint import Dependence, Footprint, Location, Mode, depends, only_reads
from racecheck.model.ops.lock_ops import LockHistory, releases, waits
from racecheck.model.ops.part_ops import FIRST, SECOND, keeps_waiting, part_of

_YIELDS = frozenset({"sleep", "test", "poll", "wait"})
_IN_VAIN, _WITH_PAUSES = 10, 3
"""A thread that has asked the same question this often is taken to poll; with pauses, fewer questions are enough."""
_OF_THE_WORLD = frozenset({"memory", "threads", "life", "fault", "time"})
"""Locations that a thread that only asks touches too, without a change of another thread's answers."""


@dataclass(frozen=True, slots=True)
class Step:
    """An op that could have gone at another time: the ``number``-th of its thread, from 1.

    ``clock`` says of each thread how many of its steps happen before this one or are it.  ``races`` are the earlier
    steps with which it was in a race that can be reversed: dependent, and ordered by nothing else.
    """

    op: Op
    footprint: Footprint
    number: int
    clock: Mapping[str, int]
    races: Sequence[int] = ()


@dataclass(slots=True)
class _Thread:
    """The steps of a thread: their positions, their ticks of its clock, and the first one since its last change."""

    steps: list[int] = field(default_factory=list)
    ticks: list[int] = field(default_factory=list)
    idle_since: int = 0


class Order:
    """The steps of a run, added one by one.  ``has_polls``: a thread's futile question was not taken for a race."""

    def __init__(self, relation: Dependence) -> None:
        self._relation = relation
        self.steps: list[Step] = []
        self.has_polls = False
        self._threads: dict[str, _Thread] = {}
        self._touched: dict[tuple[Location, Mode], dict[str, list[int]]] = {}
        self._locks = LockHistory()
        self._halves: dict[int, int] = {}

    def add(self, op: Op) -> Step:
        """Add an op that has gone."""
        step = self._step(op)
        thread = self._thread(op)
        for location, mode in step.footprint.items():
            self._touched.setdefault((location, mode), {}).setdefault(op.thread, []).append(len(self.steps))
        self._locks.add(len(self.steps), op)
        if part_of(op) == FIRST:
            self._halves[len(self.steps)] = sys.maxsize
        elif part_of(op) == SECOND:
            begun = max(each for each in self._halves if self.steps[each].op.thread == op.thread)
            self._halves[begun] = len(self.steps)
        if not only_reads(_of_files(step.footprint)):
            thread.idle_since = step.number
        thread.steps.append(len(self.steps))
        thread.ticks.append(op.clock[op.thread])
        self.steps.append(step)
        return step

    def imagine(self, op: Op) -> Step:
        """Return the step that a pending op would be if it went now."""
        return self._step(op)

    def last_before(self, op: Op) -> list[int]:
        """Return the last step of each thread that happens before an op, whatever the op does."""
        return [self._threads[name].steps[count - 1] for name, count in self._free(op).items()]

    def extend(self, events: Iterable[Event]) -> None:
        """Add those of these events that could have gone at another time."""
        for event in events:
            if isinstance(event, Op) and is_step(event, self._relation):
                self.add(event)

    def before(self, first: int, second: int) -> bool:
        """Return whether a step happens before a later one."""
        step = self.steps[first]
        return self.steps[second].clock.get(step.op.thread, 0) >= step.number

    def initials(self, first: int, second: Step) -> list[str]:
        """Return the threads that can begin, in place of ``first``, to bring about ``second``, with which it races.

        These are what can come first of all that happened in between without ``first`` (Abdulla et al., "Source Sets",
        JACM 2017).
        """
        end = self._index(second)
        later = self._locks.later(second.op, first, end, self.before) if waits(second.op) else {first}
        between = [
            self.steps[each]
            for each in range(first + 1, end)
            if not any(one <= each and self.before(one, each) for one in later)
        ]
        begun: dict[str, int] = {}
        found: list[str] = []
        for step in (*between, second):
            thread = step.op.thread
            if thread not in begun:
                if all(step.clock.get(other, 0) < number for other, number in begun.items()):
                    found.append(thread)
                begun[thread] = step.number
        return found

    def hidden(self, first: int, number: int, most: Footprint) -> Iterator[list[str]]:
        """Return the threads that can begin, in place of ``first``, to bring about a step that a later one hides.

        It is hidden if it does not depend on step ``number`` as that was, but might (``most``) if ``first`` came after
        it.
        """
        step = self.steps[number]
        for index in range(first + 1, len(self.steps)):
            other = self.steps[index]
            apart = other.op.thread != step.op.thread and not self.before(first, index)
            unordered = not self.before(min(number, index), max(number, index))
            if apart and unordered and depends(other.footprint, most):
                yield self._beginners(first, index)

    def _beginners(self, first: int, index: int) -> list[str]:
        """Return the threads that can begin to bring about a step, with nothing but its predecessors in any case."""
        needed = [each for each in range(first + 1, index) if self.before(each, index)]
        begun: dict[str, int] = {}
        found: list[str] = []
        for step in (*(self.steps[each] for each in needed), self.steps[index]):
            if step.op.thread not in begun:
                if all(step.clock.get(other, 0) < number for other, number in begun.items()):
                    found.append(step.op.thread)
                begun[step.op.thread] = step.number
        return found

    def is_vain(self, op: Op) -> bool:
        """Return whether a pending op would only repeat its thread's question, and get the same answer."""
        asked = self._asked(op)
        return asked >= 0 and not self._conflicts(op.thread, self._relation.footprint(op), after=asked)

    def _step(self, op: Op) -> Step:
        footprint = self._relation.footprint(op)
        free = self._free(op)
        conflicts = self._conflicts(op.thread, footprint)
        clock = dict(free)
        for index in conflicts:
            _join(clock, self.steps[index].clock)
        self._join_killed(clock, op)
        number = len(self._thread(op).steps) + 1
        clock[op.thread] = number
        return Step(op, footprint, number, clock, self._races(op, footprint, free, conflicts))

    def _join_killed(self, clock: dict[str, int], op: Op) -> None:
        """Note the ranks' locks that no op released: those of killed processes, after all that their ranks did."""
        killed = self._locks.killed(op)
        for name, thread in self._threads.items():
            if thread.steps and int(name.partition(".")[0]) in killed:
                _join(clock, self.steps[thread.steps[-1]].clock)

    def _races(self, op: Op, footprint: Footprint, free: Mapping[str, int], conflicts: set[int]) -> list[int]:
        found: list[int] = []
        seen = dict(free)
        if waits(op):
            conflicts = self._conflicts(op.thread, footprint, after=0)
        if store_ops.awaits(op):
            every = self._conflicts(op.thread, footprint, after=0)
            conflicts = {index for index in every if self._has_keys_without(op, index)}
        asked = self._asked(op)
        for index in sorted(conflicts, reverse=True):
            other = self.steps[index]
            if seen.get(other.op.thread, 0) >= other.number:
                continue
            if waits(op) and not self._locks.later(op, index, len(self.steps), self.before):
                continue
            if 0 <= asked < index and min(self._conflicts(op.thread, footprint, after=asked)) == index:
                self.has_polls = True  # before that change it would have got the same answer as before
                continue
            found.append(self._begun(index, op, footprint))
            _join(seen, other.clock)
        return found

    def _begun(self, index: int, op: Op, footprint: Footprint) -> int:
        """Return the first part of a call that step ``index`` is in the middle of, or ends, if it keeps an op waiting.

        The op can go before that call as a whole, and not before its second part alone.
        """
        for first, second in self._halves.items():
            step = self.steps[first]
            is_within = first <= index <= second and step.op.thread != op.thread
            if is_within and keeps_waiting(step.op, step.footprint, footprint):
                return first
        return index

    def _has_keys_without(self, op: Op, index: int) -> bool:
        """Return whether an operation that waits for keys could go before a step, after all independent ones."""

        def later(each: int) -> bool:
            return each == index or (each > index and self.before(index, each))

        return store_ops.could_go(op, [step.op for step in self.steps], later)

    def _asked(self, op: Op) -> int:
        """Return the step at which a thread that polls has asked this before; -1 if it does not poll."""
        thread = self._threads.get(op.thread)
        if thread is None:
            return -1
        pauses, times = yields(op), 0
        for index in reversed(thread.steps[thread.idle_since :]):
            before = self.steps[index].op
            pauses |= yields(before)
            if (before.label, before.syscall, before.stack) == (op.label, op.syscall, op.stack):
                times += 1
                if times >= (_WITH_PAUSES if pauses else _IN_VAIN):
                    return index
        return -1

    def _conflicts(self, thread: str, footprint: Footprint, *, after: int = -1) -> set[int]:
        """Return the last conflicting step of each other thread at each location; ``after``: all later ones."""
        found: set[int] = set()
        for location, mode in footprint.items():
            for other in Mode:
                if mode is not Mode.WRITE and other is mode:
                    continue
                for owner, indices in self._touched.get((location, other), {}).items():
                    if owner != thread:
                        found.update(indices[-1:] if after < 0 else indices[bisect_left(indices, after) :])
        return found

    def _free(self, op: Op) -> dict[str, int]:
        """Return the steps that happen before an op, whatever the op does."""
        clock: dict[str, int] = {}
        for name, ticks in op.clock.items():
            thread = self._threads.get(name)
            count = bisect_right(thread.ticks, ticks - (name == op.thread)) if thread is not None else 0
            if thread is not None and count:
                _join(clock, self.steps[thread.steps[count - 1]].clock)
        return clock

    def _thread(self, op: Op) -> _Thread:
        return self._threads.setdefault(op.thread, _Thread())

    def _index(self, step: Step) -> int:
        own = self._thread(step.op).steps
        return own[step.number - 1] if step.number <= len(own) else len(self.steps)


def _of_files(footprint: Footprint) -> Footprint:
    return {location: mode for location, mode in footprint.items() if location.kind not in _OF_THE_WORLD}


def is_step(op: Op, relation: Dependence) -> bool:
    """Return whether an op could have gone at another time: all but those that no other thread could notice."""
    return relation.visible(op) or releases(op)


def yields(op: Op) -> bool:
    """Return whether, with this op, a thread lets others go first."""
    return op.call in _YIELDS


def _join(clock: dict[str, int], other: Mapping[str, int]) -> None:
    for thread, count in other.items():
        if clock.get(thread, 0) < count:
            clock[thread] = count
