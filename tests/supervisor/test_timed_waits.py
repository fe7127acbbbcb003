"""Waits with a time limit run out in virtual time, and only where nothing else can go on."""

from __future__ import annotations

import time

import pytest

from racecheck.explore import runner
from racecheck.explore.reports import Report
from racecheck.explore.requests import RunRequest, Search
from racecheck.explore.search import explore
from racecheck.model.compare import first_difference
from racecheck.model.nouns import Outcome, Raised, RankResult, Returned, Stopped, Verdict, Violation
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.session import Session
from racecheck.supervisor.state import hypercall_ops
from racecheck.supervisor.state.collectives import CONDITIONS
from racecheck.targets.scenarios import Scenario
from tests.support.controlled_runs import controlled, made, run
from tests.support.targets import target

REAL = "a wait with a real-time limit"


def results(session: Session, scenario: Scenario) -> tuple[set[tuple[RankResult, ...]], Report]:
    """What the ranks come to in each run of a search with "dpor"."""
    found = set()

    def collect(outcome: Outcome) -> list[Violation]:
        found.add(outcome.results)
        return []

    asked = Search(scenario, scenario.world, (collect,), strategy="dpor", schedules=2000, keep_going=True)
    return found, explore(session, asked)


def test_it_takes_as_long_as_was_asked_for_and_no_real_time(session: Session) -> None:
    began = time.monotonic()
    outcome = controlled(session, "limits", "runs_out")
    assert outcome.results == (Returned([False, 20.0]),) * 2
    assert time.monotonic() - began < 15


def test_a_wait_ends_by_its_limit_or_by_a_notification(session: Session) -> None:
    """Both are tried, whoever takes how long."""
    found, report = results(session, target("limits", "told_or_not"))
    assert report.exhaustive
    assert found == {(Returned(True),), (Returned(False),)}


def test_a_notified_thread_continues_however_long_that_took(session: Session) -> None:
    """In the default schedule a thread that can go on goes before one that waits for a time."""
    scenario = target("limits", "is_told")
    outcome = runner.run(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    assert outcome.results == (Returned([True, 0.0]),) * 2


def test_it_does_not_run_out_while_another_thread_works(session: Session) -> None:
    """50 ms; the other one takes longer than that by any clock, and says nothing."""
    scenario = target("limits", "limit_beside_work")
    outcome = runner.run(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    assert outcome.results == (Returned(False),)
    assert made(outcome)[-2:] == ["last", "waited"]


def test_a_thread_that_has_not_appeared_yet_is_held_too(session: Session) -> None:
    """As the threads of a pool of C++, whose waits would else end at a real time in the middle of anything."""
    scenario = target("limits", "unknown_thread")
    outcome = runner.run(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    assert set(made(outcome)[-2:]) == {"late0", "late1"}


def test_the_shorter_wait_ends_first(session: Session) -> None:
    assert made(controlled(session, "limits", "sooner_first")) == ["f1", "f0"]


def test_a_sleep_that_is_longer_comes_later(session: Session) -> None:
    outcome = controlled(session, "limits", "beside_a_sleeper")
    assert outcome.results == (Returned(1.0), Returned(600.0))
    assert made(outcome) == ["f0", "f1"]


def test_among_sleepers_a_long_sleep_does_not_overtake_a_short_one(session: Session) -> None:
    found, report = results(session, target("limits", "an_hour_beside_half_a_second"))
    assert found == {(Returned(False), Returned(True))}
    assert report.exhaustive


@pytest.mark.parametrize("seed", range(5))
def test_a_program_that_sleeps_too_long_times_out(session: Session, seed: int) -> None:
    outcome = run(session, "program_with_a_limit", file="limits", seed=seed)
    assert outcome.results == (Returned("timed out"),)
    assert not outcome.coverage.holes


def test_queues_joins_and_locks(session: Session) -> None:
    assert controlled(session, "limits", "empty_queue").results == (Returned(["empty", True, False, False]),)


def test_repeated_waits_hide_no_early_end(session: Session) -> None:
    outcome = controlled(session, "limits", "heartbeat")
    assert isinstance(outcome.results[0], Raised)
    assert outcome.results[0].lacks
    assert outcome.results[1] == Returned(None)
    assert outcome.coverage.notes.keys() == {hypercall_ops.CONDITION, CONDITIONS["gloo"]}, "it is known at once"


def test_an_endless_poll_is_stopped_and_shown(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("racecheck.supervisor.wait.timed_waits._MOST", 50)
    outcome = controlled(session, "limits", "waits_forever")
    assert isinstance(outcome.results[0], Stopped)
    assert outcome.results[0].kind == "running", "whether it would ever end is not known"
    assert "50 waits timed out in a row" in outcome.results[0].why
    assert "waits_forever" in {frame.function for frame in outcome.results[0].stack}


def test_a_run_that_was_stopped_is_not_every_interleaving(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no choice was to be made: the verdict and the claim name what was stopped."""
    monkeypatch.setattr("racecheck.supervisor.wait.timed_waits._MOST", 50)
    scenario = target("limits", "waits_forever")
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=5))
    assert (report.verdict, report.schedules, report.exhaustive) == (Verdict.UNKNOWN, 1, False)


@pytest.mark.parametrize("name", ["polls_for_a_file", "polls_without_a_pause"])
def test_a_polling_thread_is_not_waited_for(session: Session, name: str) -> None:
    outcome = controlled(session, "limits", name)
    assert all(isinstance(each, Returned) and each.value in {None, True} for each in outcome.results)


def test_a_signal_ends_the_wait_of_its_handler(session: Session) -> None:
    outcome = controlled(session, "limits", "signalled")
    assert outcome.results == (Returned(True),)


def test_a_repeated_question_to_the_real_clock_is_reported(session: Session) -> None:
    outcome = run(session, "asks_the_clock", file="limits")
    assert outcome.results == (Returned(2),), "once in virtual time, once in real time"
    assert outcome.coverage.holes.keys() == {REAL}


@pytest.mark.parametrize(
    "name", ["runs_out", "is_told", "sooner_first", "beside_a_sleeper", "empty_queue", "signalled"]
)
def test_a_schedule_repeats(session: Session, name: str) -> None:
    scenario = target("limits", name)
    first = runner.run(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    for _ in range(3):
        again = runner.run(
            session, RunRequest.of(scenario, scenario.world, Replay(first.schedule), seed="0", stacks=False)
        )
        assert first_difference(first, again) == ""
        assert [op.time for op in first.ops] == [op.time for op in again.ops]
