"""Memory and semaphores with names: no storage, so nothing is written outside, and a gap where ranks share one."""

from __future__ import annotations

import pytest

from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.sessions.session import Session
from racecheck.supervisor.state.coverage import MEMORY
from tests.support.targets import target


@pytest.mark.parametrize(("name", "shared"), [("private", False), ("common", True), ("semaphore", True)])
def test_memory_is_no_storage_and_a_gap_where_ranks_share_it(session: Session, name: str, shared: bool) -> None:
    scenario = target("memory", name)
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=10))
    assert report.verdict.name == "PASS", (report.violations, report.reasons)
    assert report.exhaustive is not shared
    assert (MEMORY in report.coverage.untried) is shared
    assert report.outcome is not None
    assert report.outcome.outside == {}
