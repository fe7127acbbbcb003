"""Waits for pipes and the like time out in virtual time, and only where nothing else can go on."""

from __future__ import annotations

import time

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.model.compare import first_difference
from racecheck.model.nouns import Returned, Stopped
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.session import Session
from tests.support.controlled_runs import controlled, made, run
from tests.support.targets import target

EARLIER = "an earlier timeout of a wait for a descriptor"


def test_it_takes_as_long_as_was_asked_for_and_no_real_time(session: Session) -> None:
    began = time.monotonic()
    outcome = controlled(session, "descriptor_waits", "runs_out")
    assert outcome.results == (Returned([[False, 600.0]] * 9),)
    assert time.monotonic() - began < 15
    assert outcome.coverage.untried[EARLIER] == 9


def test_it_leaves_in_memory_what_the_kernel_leaves(session: Session) -> None:
    (result,) = controlled(session, "descriptor_waits", "leaves_nothing").results
    assert result == Returned([[0, 0, 0], [0, 0], 0, 0])


def test_a_wait_for_many_is_left_to_the_kernel(session: Session) -> None:
    assert controlled(session, "descriptor_waits", "of_many").results == (Returned(1),)


def test_it_does_not_time_out_while_a_process_computes(session: Session) -> None:
    assert controlled(session, "descriptor_waits", "slow_child").results == (Returned(["result", True]),)
    assert controlled(session, "descriptor_waits", "slow_program").results == (Returned("done\n"),)


def test_it_times_out_while_a_program_sleeps(session: Session) -> None:
    outcome = controlled(session, "descriptor_waits", "sleepy_program")
    assert outcome.results == (Returned("early\n"),)
    assert outcome.seconds < 5


def test_the_shorter_limit_is_over_first(session: Session) -> None:
    assert controlled(session, "descriptor_waits", "sooner_than_a_key").results == (Returned("set"), Returned("found"))
    outcome = controlled(session, "descriptor_waits", "beside_a_sleeper")
    assert outcome.results == (Returned(2.0), Returned(3.0))


def test_coroutines_sleep_in_virtual_time(session: Session) -> None:
    began = time.monotonic()
    outcome = controlled(session, "descriptor_waits", "asynchronous")
    assert outcome.results == (Returned(["first", "second", "TimeoutError"]),)
    assert made(outcome) == ["first", "second"]
    assert time.monotonic() - began < 15


def test_a_signal_ends_it(session: Session) -> None:
    assert controlled(session, "descriptor_waits", "interrupted").results == (Returned(["by the handler", 2.0]),)


def test_an_endless_loop_of_them_is_stopped_and_shown(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("racecheck.supervisor.wait.timed_waits._MOST", 50)
    (result,) = controlled(session, "descriptor_waits", "endless").results
    assert isinstance(result, Stopped)
    assert (result.kind, result.why[:14]) == ("running", "50 waits timed")
    assert "endless" in {frame.function for frame in result.stack}


def test_processes_without_work_wait_as_long_as_their_rank_sleeps(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They time out again and again, and yet something is to come."""
    monkeypatch.setattr("racecheck.supervisor.wait.timed_waits._MOST", 20)
    outcome = controlled(session, "descriptor_waits", "idle_workers")
    assert outcome.results == (Returned(None),) * 2
    assert sorted(made(outcome)) == ["f0", "f1"]
    assert outcome.seconds < 20


def test_a_thread_that_writes_ends_it(session: Session) -> None:
    outcome = controlled(session, "descriptor_waits", "of_a_thread")
    assert outcome.results == (Returned(True),)
    assert EARLIER in outcome.coverage.untried


@pytest.mark.parametrize("name", ["slow_child", "beside_a_sleeper", "asynchronous", "interrupted", "of_a_thread"])
def test_a_schedule_repeats(session: Session, name: str) -> None:
    scenario = target("descriptor_waits", name)
    first = run(session, name, file="descriptor_waits", seed=1)
    for _ in range(3):
        replay = Replay(first.schedule)
        again = runner.run(session, RunRequest.of(scenario, scenario.world, replay, seed="0"))
        assert first_difference(first, again) == ""
        assert [op.time for op in first.ops] == [op.time for op in again.ops]
