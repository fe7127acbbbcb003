"""A proof whose subtrees others make: whatever they do and whenever, it is the same proof.

Programs and runs are in memory.  The others take tasks at any time, lose them, and are late; Ctrl-C comes at any wait.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from racecheck.explore import runner
from racecheck.explore.ahead import Ahead
from racecheck.explore.runs import tasks
from racecheck.explore.runs.runs import Runs
from racecheck.explore.runs.tasks import Task
from racecheck.model.nouns import Schedule
from racecheck.scheduling.relation import Relation
from racecheck.scheduling.strategies import DPOR, dpor
from racecheck.scheduling.strategies.dpor import DporProgress
from racecheck.scheduling.strategies.protocol import Answered
from tests.bench import bench_ahead
from tests.generated.programs import Program
from tests.generated.tally import program_of, seeds
from tests.generated.toy import Toy, world_of
from tests.support import early_runs

PROGRAMS = seeds(0, 60)
MOST = 150
FAR = 10_000


@dataclass
class Others(Runs):
    """Tasks are done at moments that ``rng`` draws."""

    rng: Random
    interrupts: bool = False
    tasks: dict[int, bytes] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    done: dict[int, Any] = field(default_factory=dict)
    lost: int = 0

    @property
    def room(self) -> int:
        return self.rng.randrange(4)

    def submit(self, number: int, task: Task[Any], cost: float = 0.0) -> None:
        del cost
        self.tasks[number] = pickle.dumps(task)

    def work(self) -> None:
        """Begin, end and lose some tasks."""
        for number in [*self.tasks]:
            what = self.rng.choice(["begin", "end", "lose", "nothing"])
            if what == "begin":
                self.begun.add(number)
            elif what == "end":
                self._do(number)
            elif what == "lose" and number in self.begun - self.done.keys():
                self.lost += 1
                self.begun.discard(number)

    def is_done(self, number: int) -> bool:
        return number in self.done

    def withdraw(self, number: int) -> bool:
        if number in self.begun or number in self.done:
            return False
        del self.tasks[number]
        return True

    def wait(self) -> None:
        if self.interrupts and self.rng.random() < 0.3:
            raise KeyboardInterrupt
        self.work()

    def result(self, number: int, tell: runner.Progress | None = None) -> Any:
        del tell
        self._do(number)
        del self.tasks[number]
        return self.done.pop(number)

    def _do(self, number: int) -> None:
        self.done.setdefault(number, pickle.loads(self.tasks[number]).run(None))


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is of the program in its request, and a result is sent after one to four runs."""

    now = iter(range(10**9))
    monkeypatch.setattr(tasks, "run", early_runs.run)
    monkeypatch.setattr(tasks, "warm_up", lambda *_: None)
    monkeypatch.setattr(tasks.time, "monotonic", lambda: next(now) / 4)


@dataclass
class Proved:
    """The runs of a search in their order, and what the search says; ``taken`` runs were others'."""

    runs: list[Schedule]
    claim: str
    progress: DporProgress
    taken: int = 0
    lost: int = 0


def alone(program: Program) -> Proved:
    strategy, made = strategy_of(program), list[Schedule]()
    while len(made) < MOST and strategy.begin(Random(0)):
        outcome, _ = Toy(program, strategy.choose).run()
        strategy.end(outcome)
        made.append(outcome.schedule)
    return Proved(made, str(strategy.claim()), strategy.progress)


def helped(program: Program, rng: Random, *, interrupts: bool = False) -> Proved:
    strategy, made, taken, lost = strategy_of(program), list[Schedule](), 0, 0
    others, ahead = company(program, rng, interrupts)
    while len(made) < MOST:
        ahead.offer(strategy, FAR)
        others.work()
        if not strategy.begin(Random(0)):
            break
        try:
            outcome = ahead.take(strategy, FAR)
        except KeyboardInterrupt:
            strategy.abandon()
            strategy = strategy_of(program, strategy.progress)
            taken, lost = taken + ahead.taken, lost + others.lost
            others, ahead = company(program, rng, interrupts)
            continue
        if outcome is None:
            outcome, _ = Toy(program, strategy.choose).run()
        strategy.end(outcome)
        made.append(outcome.schedule)
    return Proved(made, str(strategy.claim()), strategy.progress, taken + ahead.taken, lost + others.lost)


def strategy_of(program: Program, progress: DporProgress | None = None) -> DPOR:
    return DPOR(Relation(world_of(program)), progress)


def company(program: Program, rng: Random, interrupts: bool) -> tuple[Others, Ahead]:
    others = Others(rng, interrupts)
    return others, Ahead(others, early_runs.requests_of(program))


@pytest.mark.parametrize("what", ["well", "interrupted", "misled"])
def test_a_proof_does_not_depend_on_who_makes_its_runs(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "misled":
        monkeypatch.setattr(DPOR, "_next_touched", lambda *_: {})
    runs = taken = lost = 0
    takes, answers = DPOR.takes, list[bool]()

    def noted(strategy: DPOR, points: Sequence[Answered]) -> bool:
        answers.append(takes(strategy, points))
        return answers[-1]

    monkeypatch.setattr(DPOR, "takes", noted)
    for name in PROGRAMS:
        program = program_of(name)
        one = alone(program)
        for number in range(3):
            other = helped(program, Random(f"{name} {number}"), interrupts=what == "interrupted")
            assert other.runs == one.runs, f"{name} {number}"
            assert other.claim == one.claim, f"{name} {number}"
            assert other.progress == one.progress, f"{name} {number}"
            runs, taken, lost = runs + len(one.runs), taken + other.taken, lost + other.lost
    assert taken > runs / 5, f"{taken} of {runs} runs were taken from others"
    assert lost > 50
    assert (answers.count(False) > 20) == (what == "misled")


def test_a_run_that_is_refused_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for call in ("stat", "open", "mkdir"):
        monkeypatch.setitem(dpor._ASKS, call, "a doubt")
    refused = 0
    for name in seeds(0, 40):
        program = program_of(name)
        searching = strategy_of(program)
        for _ in range(10):
            if not searching.begin(Random(0)):
                break
            noting = tasks._Noting(searching)
            outcome, _ = Toy(program, noting.choose).run()
            searching.end(outcome)
            fresh = strategy_of(program)
            fresh.begin(Random(0))
            if not fresh.takes(tasks.Made((), noting.answers, outcome).points):
                refused += 1
                assert replace(fresh.progress, known=[]) == DporProgress(), "the next run replaces ``known``"
    assert refused > 50


def test_a_budget_that_ends_early_is_not_spent_on_far_subtrees() -> None:
    append = ("write", "a", "x")
    program = Program(ranks=((("open", "a"), append, append, append, append),) * 4, files=(("a", "0"),))
    made, taken, _, runs = bench_ahead.prove(program, jobs=2, most=120, lose=0)
    assert made == 120
    assert taken > 40
    assert runs.made - taken < 30, "without an estimate of the turns to come: 49"
