"""Each check of the suite notices what it is there for, and lets a correct checkpointer pass."""

from __future__ import annotations

import pytest

from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model.nouns import Verdict
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from tests.support.targets import TARGETS

CASES = [
    ("ByName", "saves", "durable-after-ack"),
    ("EachForItself", "saves@node-local", "same-start"),
    ("EachForItself", "load-behind", "no-file-errors"),
    pytest.param("Parts", "shrink", "newest-loads", marks=pytest.mark.slow),
    ("Skips", "overwrite", "newest-loads"),
    ("OldParts", "shrink", "consistent-weights"),
    ("Copied", "kill", "recovers"),
    ("Quiet", "async-error", "error-honesty"),
]


def found(session: Session, target: str) -> tuple[Verdict, set[str]]:
    scenario = resolve.load(target)
    swept = any(not fault.nth for fault in scenario.world.faults)
    strategy = "round-robin" if swept else "auto"
    search = Search(scenario, scenario.world, scenario.invariants, strategy=strategy, schedules=40)
    report = explore(session, search)
    return report.verdict, {each.violation.invariant for each in report.violations}


@pytest.mark.parametrize(("saver", "check", "invariant"), CASES)
def test_a_check_notices_what_it_is_for(session: Session, saver: str, check: str, invariant: str) -> None:
    verdict, broken = found(session, f"{TARGETS / 'flawed.py'}::{saver}[{check}]")
    assert verdict is Verdict.FAIL
    assert invariant in broken


@pytest.mark.parametrize("saver", ["RemovesFirst", "Once"])
def test_a_resumed_job_saves_again_and_old_state_is_not_loaded(session: Session, saver: str) -> None:
    assert found(session, f"{TARGETS / 'flawed.py'}::{saver}[shrink]") == (Verdict.PASS, set())


@pytest.mark.parametrize("check", ["load-behind", "saves", "saves@node-local", "shrink"])
def test_the_control_holds(session: Session, check: str) -> None:
    assert found(session, f"control[{check}]") == (Verdict.PASS, set())
