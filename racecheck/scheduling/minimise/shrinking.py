"""A failing run with as few switches as it needs.  A switch is from the thread that went last to another one.

The list of the run's choices is minimised, each as its index among the options, of which 0 is the default.  All
that is tried is run, and the next step starts from its outcome, so each step is a real run.

Passes: only default choices from some place on; what a thread does between two switches put to what it does before or
after that, which takes fewer runs than to set choices to the default, since that changes what all later indices mean;
blocks of choices set to the default, then smaller ones (Zeller, Hildebrandt: "Simplifying and Isolating
Failure-Inducing Input", TSE 2002); switches shifted; single indices lowered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from racecheck.model.errors import CannotRun
from racecheck.model.nouns import Outcome, Schedule, Violation, World
from racecheck.scheduling.minimise.attempts import Attempt, Counted, Spent
from racecheck.scheduling.minimise.blocks import BlockOrder, blocks, joined, shifted
from racecheck.scheduling.minimise.failure import Fails
from racecheck.scheduling.strategies import Strategy
from racecheck.scheduling.strategies.following.guided import Guided
from racecheck.scheduling.strategies.following.indices import Tape

_Failing = tuple[Outcome, Violation]
_Indices = tuple[int, ...]
_Cost = tuple[int, int, int, _Indices]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The least run that was found; ``cut``: the budget was spent before all had been tried."""

    outcome: Outcome
    violation: Violation
    runs: int
    cut: bool


def switches(schedule: Schedule) -> int:
    """Return how many choices of the next op are not the default."""
    return sum(choice.index != 0 for choice in schedule if choice.kind == "next")


def shrink(outcome: Outcome, attempt: Attempt, fails: Fails, *, budget: int = 400) -> Shrunk:
    """Minimise a failing run: first its switches, then how much happens until the failure shows.

    Raises `CannotRun` if the run's choices do not bring the failure about again.
    """
    counted = Counted(attempt, budget)
    try:
        search = _Shrinking(outcome, counted, fails)
    except Spent:
        violation = fails(outcome)
        assert violation is not None, "a run that has not the failure cannot be minimised"
        return Shrunk(outcome, violation, counted.runs, cut=True)
    cut = False
    try:
        while search.improves():
            pass
    except Spent:
        cut = True
    return Shrunk(*search.best, counted.runs, cut)


def repeated(outcome: Outcome, attempt: Attempt, fails: Fails) -> _Failing:
    """Run it again; returns its violation.  Raises `CannotRun` if its choices do not bring the failure about again."""
    tape = _tape(outcome)
    found = _run(outcome.world, Tape(tape), attempt, fails)
    if found is None or _tape(found[0]) != tape:
        how = "the run had other options" if found else "the run passed"
        raise CannotRun(f"the failure does not repeat: with the same choices, {how} the second time")
    return found


class _Shrinking:
    """The best run so far, and the attempts."""

    def __init__(self, outcome: Outcome, attempt: Attempt, fails: Fails) -> None:
        self._world, self._attempt, self._fails = outcome.world, attempt, fails
        self._tried: set[_Indices | BlockOrder] = {_tape(outcome)}
        self.best = repeated(outcome, attempt, fails)
        self._cost = _cost(*self.best)

    def improves(self) -> bool:
        """Make one round of all passes; returns whether it has improved anything."""
        before = self._cost
        self._truncate()
        self._rearrange(joined)
        self._default_blocks()
        self._rearrange(shifted)
        self._lower()
        return self._cost < before

    # Passes.

    def _truncate(self) -> None:
        """Keep only the first switches: 0, 1, 2, 4, ... of them, and then as few as possible between that."""
        places = self._places
        low, high = -1, 0
        while high < len(places) and not self._keep(places[:high]):
            low, high = high, max(1, 2 * high)
        while high - low > 1:
            middle = (low + high) // 2
            if middle >= len(places) or self._keep(places[:middle]):
                high = middle
            else:
                low = middle

    def _keep(self, places: Sequence[int]) -> bool:
        tape = _tape(self.best[0])
        return self._try(tuple(index if at in places else 0 for at, index in enumerate(tape)))

    def _default_blocks(self) -> None:
        size = max(1, len(self._places) // 2)
        while size:
            start = 0
            while start < len(self._places):
                block = self._places[start : start + size]
                if not self._keep([each for each in self._places if each not in block]):
                    start += size
            size //= 2

    def _rearrange(self, orders: Callable[[Outcome, int], Iterator[BlockOrder]]) -> None:
        """Try other orders of blocks, beginning with each of them in turn."""
        number = 0
        while number < len(blocks(self.best[0])):
            if not any(self._take(order, Guided(order)) for order in orders(self.best[0], number)):
                number += 1

    def _lower(self) -> None:
        for place in self._places:
            tape = _tape(self.best[0])
            for index in range(1, tape[place] if place < len(tape) else 0):
                if self._try((*tape[:place], index, *tape[place + 1 :])):
                    break

    # Runs.

    @property
    def _places(self) -> list[int]:
        """Return where the best run's choices are not the default."""
        return [at for at, index in enumerate(_tape(self.best[0])) if index]

    def _try(self, tape: _Indices) -> bool:
        tape = _stripped(tape)
        return self._take(tape, Tape(tape))

    def _take(self, key: _Indices | BlockOrder, strategy: Strategy) -> bool:
        """Run a candidate that has not been run yet; returns whether it is better than the best."""
        if key in self._tried:
            return False
        self._tried.add(key)
        found = self._run(strategy)
        if found is None or _cost(*found) >= self._cost:
            return False
        self.best, self._cost = found, _cost(*found)
        return True

    def _run(self, strategy: Strategy) -> _Failing | None:
        return _run(self._world, strategy, self._attempt, self._fails)


def _run(world: World, strategy: Strategy, attempt: Attempt, fails: Fails) -> _Failing | None:
    strategy.begin(Random(0))
    outcome = attempt(world, strategy)
    violation = fails(outcome)
    return None if violation is None else (outcome, violation)


def _tape(outcome: Outcome) -> _Indices:
    return _stripped([choice.index for choice in outcome.schedule])


def _stripped(tape: Sequence[int]) -> _Indices:
    """Return the choices without the defaults at the end."""
    end = max((at for at, index in enumerate(tape, 1) if index), default=0)
    return tuple(tape[:end])


def _cost(outcome: Outcome, violation: Violation) -> _Cost:
    """Return the order of runs, the least first.

    The criteria, in this order: choices that are not the default (faults), switches, ops until the failure shows,
    indices.
    """
    shown = max(violation.events) + 1 if violation.events else len(outcome.trace)
    switched, number = switches(outcome.schedule), sum(choice.index != 0 for choice in outcome.schedule)
    return number - switched, switched, shown, _tape(outcome)
