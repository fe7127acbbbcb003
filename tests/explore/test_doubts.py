"""A doubt is noted and counted, and ends no search; a failure that does not repeat is a doubt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from racecheck.explore import exploration
from racecheck.explore.doubts import MOST_IN_A_ROW, Doubts
from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.invariants import no_unexpected_errors, recovers
from racecheck.model import config
from racecheck.model.nouns import Verdict
from racecheck.sessions.session import Session
from racecheck.targets.scenarios import make_world
from tests.support.targets import target


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Report:
    """The report of a search, in a session of its own: its ranks inherit the name of the file that counts runs."""
    name, schedules, at = request.param
    monkeypatch.setenv("RACECHECK_ERRS", str(tmp_path / "runs"))
    monkeypatch.setenv("RACECHECK_ERRS_AT", str(at))
    scenario = target("erring", name)
    with Session(config.read().runs) as session:
        strategy = "random" if at else "dpor"
        asked = Search(
            scenario, scenario.world, (no_unexpected_errors,), strategy, schedules=schedules, keep_going=True
        )
        return explore(session, asked)


@pytest.mark.parametrize("searched", [("strays", 30, 0)], indirect=True)
def test_a_run_that_leaves_its_schedule_is_counted(searched: Report) -> None:
    assert searched.verdict is Verdict.UNKNOWN
    (reason,) = searched.reasons
    assert reason.startswith("two runs of the same schedule differ: step 0: ")
    assert reason.endswith(" (in 3 of 33 runs, here the first)")
    assert searched.schedules == 30
    assert not searched.exhaustive
    assert reason.rpartition(" (")[0] in searched.claim.said


@pytest.mark.parametrize("searched", [("strays_and_races", 40, 0)], indirect=True)
def test_a_violation_counts_although_another_run_was_in_doubt(searched: Report) -> None:
    assert searched.verdict is Verdict.FAIL
    assert [each.violation.message for each in searched.violations] == ["ValueError on rank 1: seen"]
    assert any("two runs of the same schedule differ" in each for each in searched.reasons)


@pytest.mark.parametrize("searched", [("fails_once", 12, 1)], indirect=True)
def test_a_failure_that_does_not_repeat_is_a_doubt(searched: Report) -> None:
    assert searched.verdict is Verdict.UNKNOWN
    assert not searched.violations
    (reason,) = searched.reasons
    assert reason == (
        "not confirmed: no-unexpected-errors: ValueError on rank 0: once (the failure does not repeat: with the same "
        "choices, the run passed the second time) (in 1 of 12 runs)"
    )
    assert searched.schedules == 12
    assert "the failure does not repeat" in searched.claim.said


@pytest.mark.parametrize("searched", [("begins_badly", 12, each) for each in (1, 2, 3)], indirect=True)
def test_a_first_run_that_differs_by_luck_ends_no_search(searched: Report) -> None:
    assert searched.verdict in {Verdict.PASS, Verdict.UNKNOWN}
    assert searched.schedules == 12
    for reason in searched.reasons:
        assert reason.startswith("two runs of the same schedule differ: ")
        assert reason.endswith(" (in 1 of 13 runs)")


@pytest.mark.parametrize("searched", [("always_differs", 100, 0)], indirect=True)
def test_a_program_that_never_repeats_ends_the_search_at_once(searched: Report) -> None:
    assert searched.verdict is Verdict.UNKNOWN
    assert searched.schedules == 1
    (reason,) = searched.reasons
    assert reason.startswith("two runs of the same schedule differ: ")


@pytest.mark.parametrize("at", [5, 12])
def test_a_recovery_that_fails_once_on_a_crash_state_is_a_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """It has two ranks, so that each state has a controlled run of its own."""
    monkeypatch.setenv("RACECHECK_ERRS", str(tmp_path / "runs"))
    monkeypatch.setenv("RACECHECK_ERRS_AT", str(at))
    scenario = target("erring", "publishes")
    world = make_world(scenario.world, faults=["crash model=kill"])
    with Session(config.read().runs) as session:
        report = explore(session, Search(scenario, world, (recovers,), schedules=1))
    assert report.verdict is Verdict.UNKNOWN
    assert not report.violations
    assert report.reasons == ("the recovery is not deterministic on the same disk state",)


def test_reasons_are_counted_by_runs() -> None:
    doubts = Doubts()
    assert not doubts
    doubts.add(["not controlled: a (2 times)", "two runs of the same schedule differ: b"])
    doubts.add(["not controlled: a (3 times)", "two runs of the same schedule differ: c"])
    doubts.add(["not controlled: a"])
    assert doubts.told(3) == (
        "not controlled: a (2 times)",
        "two runs of the same schedule differ: b (in 2 of 3 runs, here the first)",
    )
    assert doubts.told(4)[0] == "not controlled: a (2 times) (in 3 of 4 runs)"
    assert MOST_IN_A_ROW > 1


def test_what_was_run_is_told_although_the_search_has_begun_again(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins again with calls in parts, and is interrupted before the first run of these ends."""
    once = exploration.Exploration._once

    def interrupted(self: Any, strategy: Any) -> Any:
        if self.whole is not None:
            raise KeyboardInterrupt
        return once(self, strategy)

    monkeypatch.setattr(exploration.Exploration, "_once", interrupted)
    scenario = target("parts", "keeps_the_old_step")
    report = explore(session, Search(scenario, scenario.world, (no_unexpected_errors,), schedules=2))
    assert report.interrupted
    assert report.schedules > 0
    assert "no schedule was run" not in report.claim.said
    assert "each call is one step" in str(report.claim)
