"""Timers end in virtual time, as they end without racecheck."""

from __future__ import annotations

import json
import multiprocessing
import signal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model.nouns import Died, Verdict
from racecheck.sessions.session import Session
from racecheck.supervisor.act.timers import Timer, Timers
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.tasks import Process, Request
from racecheck.supervisor.wait import gil
from tests.programs import timers
from tests.support.controlled_runs import controlled, run, values
from tests.support.targets import target


def _answer(name: str, pipe: Any) -> None:
    pipe.send(getattr(timers, name)())


@pytest.fixture(scope="module")
def really() -> dict[str, Any]:
    """What each program returns without racecheck, in a process of its own, all at once."""
    fork, started = multiprocessing.get_context("fork"), []
    for program in timers.ALL:
        ours, theirs = fork.Pipe()
        process = fork.Process(target=_answer, args=(program.__name__, theirs))
        process.start()
        started.append((program.__name__, ours, process))
    found = {name: json.dumps(pipe.recv()) for name, pipe, _ in started if pipe.poll(60)}
    for _, _, process in started:
        process.join()
    return found


@pytest.mark.parametrize("name", [each.__name__ for each in timers.ALL])
def test_a_program_returns_what_it_returns_without_racecheck(
    session: Session, really: dict[str, Any], name: str
) -> None:
    outcome = controlled(session, "timers", f"{name}_on_ranks")
    assert [json.dumps(each) for each in values(outcome)] == [really[name]] * 2
    assert outcome.seconds < 5, "it takes no real time"
    assert gil.COMPUTES not in outcome.coverage.notes


@pytest.mark.parametrize("uptime", [20, 900, 999, 5_000])
def test_an_absolute_time_is_of_pythons_clock_or_of_cs(
    session: Session, monkeypatch: pytest.MonkeyPatch, uptime: int
) -> None:
    """Python's monotonic clock is virtual, C's is the machine's, which may have started a moment ago."""
    clock = SimpleNamespace(clock_gettime_ns=lambda _: uptime * 10**9)
    monkeypatch.setattr("racecheck.supervisor.act.timers.time", clock)
    outcome = controlled(session, "timers", "posix_on_ranks")
    assert [found[:4] for found in values(outcome)] == [[1, 0, 0, 0]] * 2
    timers = Timers(cast("RunState", SimpleNamespace(time=SimpleNamespace(elapsed=0))))
    left = timers._until(cast("Request", None), (uptime + 2) * 10**9, 1)
    assert left == (1 if uptime == 999 else 2) * 10**9, "2 s, but for C in the second before Python's clock begins"


def test_timers_due_at_once_come_in_the_order_of_ranks_whichever_was_armed_first() -> None:
    def of(rank: int, pid: int, until: int) -> Timer:
        names = {7: f"{rank}", 8: f"{rank}.1"}
        owner = SimpleNamespace(number=rank, task=lambda each: SimpleNamespace(name=names[each]))
        return Timer(cast("Process", SimpleNamespace(rank=owner, pid=pid)), until, 0)

    armed = [of(1, 7, 5), of(0, 8, 5), of(0, 7, 5), of(1, 8, 4)]
    ordered = sorted(armed, key=lambda each: each.place)
    assert [armed.index(each) for each in ordered] == [3, 2, 1, 0]


def searched(session: Session, name: str, schedules: int = 20) -> Report:
    scenario = target("timers", name)
    return explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=schedules))


def test_a_signal_without_a_handler_ends_the_rank(session: Session) -> None:
    outcome = run(session, "dies", file="timers")
    assert outcome.results == (Died(signal="SIGALRM", output=""),)
    assert not outcome.disk


def test_the_run_waits_for_the_end_of_a_child_that_a_timer_ends(session: Session) -> None:
    """Otherwise two runs of one schedule differ."""
    report = searched(session, "child_dies")
    assert (report.verdict, report.reasons) == (Verdict.PASS, ())
    assert report.outcome is not None
    assert values(report.outcome) == [-signal.SIGALRM] * 2


def test_timers_of_processor_time_are_named(session: Session) -> None:
    report = searched(session, "of_processor_time")
    assert (report.verdict, report.reasons) == (Verdict.UNKNOWN, ("not controlled: a kernel timer (real time)",))


def test_a_timer_that_runs_out_for_ever_is_stopped(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("racecheck.supervisor.act.timers._MOST", 50)
    report = searched(session, "endless")
    said = "rank 0 did not end: 50 timers ran out in a row and nothing else happened"
    assert (report.verdict, report.reasons) == (Verdict.UNKNOWN, (said,))


def test_a_watchdog_acts_in_virtual_time_and_other_moments_are_named(session: Session) -> None:
    report = searched(session, "watchdog")
    assert report.verdict is Verdict.FAIL
    assert report.violations[0].violation.message.startswith("TimeoutError on rank 0")
    assert "not tried: other moments for a timer's signal" in report.claim.against
