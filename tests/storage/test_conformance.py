"""The programs of the storage models: in memory, and on real processes in controlled worlds."""

from __future__ import annotations

from random import Random

import pytest

from racecheck import storage
from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Op, Outcome, Point, Returned, World
from racecheck.scheduling.strategies import Replay, Strategy
from racecheck.sessions.session import Session
from racecheck.storage.nfs.view import NFSView
from racecheck.storage.views import FRESH, Seen, Truth
from tests.storage.conformance.playing import check_storage
from tests.storage.conformance.programs import PROGRAMS, Program, Step
from tests.support.targets import target


class Plays(Strategy):
    """At each line of a program shows its node what the program goes on with; ``shown`` counts the points of each."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self._steps = steps
        self.shown: list[int] = []

    def begin(self, rng: Random) -> bool:
        del rng
        self.shown = [0] * len(self._steps)
        return True

    def choose(self, point: Point) -> int:
        if point.kind != "view":
            return 0
        number = sum(getattr(event, "kind", "") == "barrier" for event in point.trace)
        self.shown[number] += 1
        return min(self._steps[number].taken, len(point.options) - 1)

    def end(self, outcome: Outcome) -> None:
        del outcome


@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=[f"{each.storage}: {each.name}" for each in PROGRAMS])
def test_a_program_on_real_processes(session: Session, number: int) -> None:
    """Each line gives what it must, and there is a choice exactly where the program says so."""
    steps = PROGRAMS[number].steps()
    scenario = target("playing", f"plays{number}")
    runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    strategy = Plays(steps)
    strategy.begin(Random(0))
    outcome = runner.run(session, RunRequest.of(scenario, scenario.world, strategy, seed="0"))
    answers = [iter(each.value) for each in outcome.results if isinstance(each, Returned)]
    assert len(answers) == 2, outcome.results
    for step, shown in zip(steps, strategy.shown, strict=True):
        answer = next(answers[step.node]) if step.node >= 0 else "ok"
        if step.may:
            assert (answer, shown > 0) == (step.may[step.taken], len(step.may) > 1), step.text
    assert not outcome.coverage.holes


@pytest.mark.parametrize("name", [each for each in storage.NAMES if each not in {"node-local", "object"}])
def test_a_model_in_memory(name: str) -> None:
    assert check_storage(name) > 10


def test_what_takes_real_files_says_so() -> None:
    with pytest.raises(UsageError, match="takes real files"):
        check_storage("object(gcsfuse)")


def test_a_model_that_allows_too_much_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view that would deny a file to anybody at any time."""

    def before(self: NFSView, op: Op, now: int, truth: Truth) -> tuple[Seen, ...]:
        return (FRESH, Seen("stale: never seen", errno="ENOENT")) if op.call == "stat" else (FRESH,)

    monkeypatch.setattr(NFSView, "before", before)
    with pytest.raises(AssertionError, match="the model offers"):
        check_storage("nfs")


def test_a_model_that_allows_nothing_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NFSView, "before", lambda *_: (FRESH,))
    with pytest.raises(AssertionError, match=r"B stat f: 1 \| ENOENT"):
        check_storage("nfs")


def test_a_line_that_makes_no_sense() -> None:
    with pytest.raises(UsageError, match="no line of a program"):
        Program("wrong", "nfs", "C stat f: 1").steps()


def test_every_model_has_programs() -> None:
    known = {each.storage.partition("(")[0] for each in PROGRAMS}
    assert known == set(storage.NAMES) - {"node-local"}
    assert all(storage.make(World(nodes=2, storage=each.storage)) for each in PROGRAMS)
