"""Signals between ranks: each is sent at one moment, and the claim names that, by whatever way it is sent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest, Search
from racecheck.explore.search import explore
from racecheck.model.nouns import Died, Outcome, Returned
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.session import Session
from tests.support.resharding import by_default
from tests.support.targets import target

GAP = "other moments for a signal between ranks"


def by_default_order(session: Session, name: str) -> Outcome:
    scenario = target("signalling", name)
    runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    return runner.run(session, RunRequest.of(scenario, scenario.world, by_default(scenario.world.ranks), seed="0"))


@pytest.mark.parametrize(
    ("name", "is_noted"), [("by_number", True), ("by_descriptor", True), ("by_group", True), ("itself", False)]
)
def test_a_signal_ends_the_rank_that_it_is_for(session: Session, name: str, is_noted: bool) -> None:
    for _ in range(3):
        outcome = by_default_order(session, name)
        first, second, third = outcome.results
        assert isinstance(first, Returned)
        assert isinstance(third, Returned)
        assert isinstance(second, Died)
        assert second.signal == "SIGTERM"
        assert (GAP in outcome.coverage.untried) is is_noted


def test_a_question_and_a_signal_to_oneself_are_no_signals_between_ranks(session: Session) -> None:
    outcome = by_default_order(session, "asks")
    assert all(isinstance(each, Returned) for each in outcome.results)
    assert GAP not in outcome.coverage.untried


def test_a_shell_that_waits_for_its_commands_leaves_nothing_open(session: Session) -> None:
    scenario = target("signalling", "shells")
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=50))
    assert report.exhaustive, report.claim
    assert report.coverage.untried == {}


def test_a_handler_beside_work_is_a_gap(session: Session) -> None:
    scenario = target("signalling", "handles_children")
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=30))
    assert "other moments for a signal handler" in report.coverage.untried


@contextmanager
def busy() -> Iterator[None]:
    """Have the processor of starved processes be busy."""
    processor = min(os.sched_getaffinity(0))
    program = f"import os; os.sched_setaffinity(0, {{{processor}}}); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as loop:
        try:
            assert loop.stdout is not None
            loop.stdout.readline()
            yield
        finally:
            loop.kill()


def test_the_dead_are_waited_for_however_slowly_they_die(session: Session) -> None:
    quick = by_default_order(session, "starved_peer")
    with busy():
        slow = [by_default_order(session, "starved_peer") for _ in range(3)]
    for each in slow:
        assert each.schedule == quick.schedule
        assert list(map(str, each.ops)) == list(map(str, quick.ops))
