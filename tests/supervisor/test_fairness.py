"""The default schedule is fair: a thread that polls without a pause lets those go first that it waits for."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest, Search
from racecheck.explore.search import explore
from racecheck.model.compare import first_difference
from racecheck.model.nouns import Collective, Op, Outcome, Point, Result, Returned, Stopped, Verdict
from racecheck.scheduling.fairness import TURN, Fairness
from racecheck.scheduling.strategies import Replay
from racecheck.scheduling.strategies.following.default import Default
from racecheck.sessions.session import Session
from tests.support.targets import target

ASKED = Op(0, "0", "stat", "newfstatat", (), result=Result(errno="ENOENT"))


def by_default(session: Session, name: str) -> Outcome:
    scenario = target("polling", name)
    runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    always = Replay(())
    always.begin(Random(0))
    return runner.run(session, RunRequest.of(scenario, scenario.world, always, seed="0"))


@pytest.mark.parametrize("name", ["its_child", "in_a_program", "for_a_file"])
def test_what_polls_without_a_pause_ends(session: Session, name: str) -> None:
    first, second = by_default(session, name), by_default(session, name)
    assert all(isinstance(each, Returned) for each in first.results)
    assert first_difference(first, second) == ""
    assert len(first.ops) < 60
    (slept,) = (op for op in first.ops if op.call == "sleep")
    assert slept.args["nanoseconds"] == pytest.approx(1e9, rel=1e-4)


def test_a_wait_for_nothing_is_distinguished(session: Session) -> None:
    outcome = by_default(session, "forever")
    assert all(isinstance(each, Stopped) for each in outcome.results)
    assert len(outcome.ops) == 50


@pytest.mark.parametrize("name", ["its_child", "in_a_program"])
def test_a_search_of_it_repeats(session: Session, name: str) -> None:
    scenario = target("polling", name)
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=3))
    assert report.verdict is Verdict.PASS, report.reasons


def asked(times: int, op: Op = ASKED) -> Fairness:
    fairness = Fairness()
    for _ in range(times):
        fairness.note(op)
    return fairness


def test_ten_times_the_same_answer_is_in_vain() -> None:
    assert not asked(9).is_vain(ASKED)
    assert asked(10).is_vain(ASKED)
    assert not asked(10).is_vain(replace(ASKED, thread="1"))
    assert not asked(10).is_vain(replace(ASKED, call="access", syscall="access"))


def test_other_answers_are_not() -> None:
    fairness = Fairness()
    for size in range(20):
        fairness.note(replace(ASKED, result=Result(digest=str(size))))
    assert not fairness.is_vain(ASKED)


@pytest.mark.parametrize(
    "event",
    [
        Op(1, "1", "mkdir", "mkdir", (), result=Result()),
        Op(1, "1", "open", "openat", (), flags=("O_CREAT",), result=Result()),
        Op(1, "1", "sleep", "clock_nanosleep", (), args={"nanoseconds": 10**9}, result=Result()),
        Collective("barrier", "0", 0, (0, 1)),
    ],
)
def test_it_asks_again_when_something_has_changed(event: Op | Collective) -> None:
    fairness = asked(10)
    fairness.note(event)
    assert not fairness.is_vain(ASKED)


@pytest.mark.parametrize(
    "op",
    [
        Op(1, "1", "mkdir", "mkdir", (), result=Result(errno="EEXIST")),
        Op(1, "1", "open", "openat", (), result=Result()),
        Op(1, "1", "sleep", "clock_nanosleep", (), args={"nanoseconds": 0}, result=Result()),
    ],
)
def test_a_thread_that_changes_nothing_counts_as_asking(op: Op) -> None:
    fairness = asked(10)
    fairness.note(op)
    assert fairness.is_vain(ASKED)
    assert asked(10, op).is_vain(op)


def test_by_default_a_thread_lets_another_go_after_its_turn() -> None:
    """A loop may poll and also write; without turns its run ends at the limit of ops."""
    options = tuple(replace(ASKED, rank=rank, thread=str(rank)) for rank in range(2))
    default = Default()
    assert default.begin(Random(0))
    chosen = [default.choose(Point("next", options)) for _ in range(TURN + 2)]
    assert chosen == [*[0] * TURN, 1, 0]
    assert default.choose(Point("fault", options)) == 0


def test_a_warm_up_of_a_loop_that_polls_and_writes_ends(session: Session) -> None:
    scenario = target("threads", "polled_child")
    default = Default()
    default.begin(Random(0))
    outcome = runner.run(session, RunRequest.of(scenario, scenario.world, default, seed="0", stacks=False))
    assert all(isinstance(each, Returned) for each in outcome.results), outcome.results


def test_a_thread_that_empties_a_file_again_and_again_does_not_poll(session: Session) -> None:
    ranks = [op.rank for op in by_default(session, "empties_a_file").ops if op.call == "open"]
    assert ranks == [*[0] * 15, 1]
