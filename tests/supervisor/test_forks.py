"""A forked process keeps open what its parent closes; what else of processes and file systems a claim names."""

from __future__ import annotations

from pathlib import Path

import pytest

from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model.nouns import Returned, Verdict
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from tests.support.controlled_runs import run, values

FILE = Path(__file__).parents[1] / "programs" / "forking.py"


@pytest.mark.parametrize("name", ["kept_by_a_fork", "kept_by_a_worker"])
def test_a_lock_lives_as_long_as_a_child_that_has_it_open(session: Session, name: str) -> None:
    assert values(run(session, name, file="forking")) == [[False, True]]


def test_the_children_of_two_ranks_are_not_inside_at_once(session: Session) -> None:
    scenario = resolve.load(f"{FILE}::one_child_inside")
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=30, keep_going=True))
    assert report.verdict is Verdict.PASS
    for ending in report.endings:
        assert [each.value for each in ending.outcome.results if isinstance(each, Returned)] == [0, 0]


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("limits.py::group_of_twenty_seconds", "no rank is slower than a process group's time limit"),
        ("kills", "a process that gets a signal is gone at once, if it ends by that"),
        ("moves", "TMPDIR and the watched directory are one file system"),
    ],
)
def test_a_claim_names_what_was_taken_for_granted(session: Session, name: str, condition: str) -> None:
    scenario = resolve.load(f"{FILE.parent}/{name}" if "::" in name else f"{FILE}::{name}")
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=5))
    assert report.verdict is Verdict.PASS
    assert condition in report.claim.conditions
