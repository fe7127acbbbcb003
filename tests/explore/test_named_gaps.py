"""Gaps and conditions that no other test meets: each has a program, and the claim or the coverage names it."""

from __future__ import annotations

import pytest

from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.sessions.session import Session
from tests.support.targets import target


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("asks_whether_it_is_complete", "a rank polled Work.is_completed(); the other answer was not tried"),
        ("uses_a_queue", "other orders of operations on a store queue"),
        ("executes_beside_a_thread", "other moments for an exec that ends its process's other threads"),
        ("ends_beside_a_thread_that_waits", "the rest of a thread that ended with its process while waiting"),
        ("receives_from_anyone", "a receive from any source: other senders"),
        ("watches", "an inotify watch on a watched file: its events are not controlled"),
        ("submits", "asynchronous I/O on a watched file"),
        ("administers", "a privileged call on a watched file"),
        ("calls_what_nobody_knows", "an unknown system call, number 900"),
        ("sleeps_long", "a sleep ends at most 5 s before runnable ops"),
    ],
)
def test_the_claim_names_what_a_program_meets(session: Session, name: str, says: str) -> None:
    scenario = target("named", name)
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, strategy="dpor", schedules=60))
    said = [*report.claim.conditions, *report.claim.doubts, *report.coverage.holes, *report.reasons]
    assert any(says in each for each in said), (said, report.coverage)
