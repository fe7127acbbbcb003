"""Real checkpointers under control: every schedule repeats, and nothing is found where nothing is wrong."""

from __future__ import annotations

import pytest

from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model.nouns import Outcome, Returned, Verdict
from racecheck.sessions.session import Session
from racecheck.targets.scenarios import make_world
from tests.support.targets import target


def explored(session: Session, name: str, *, schedules: int = 5, ranks: int | None = None) -> Report:
    """A search, whose first run is repeated and compared op by op."""
    scenario = target("libraries", name)
    world = make_world(scenario.world, ranks=ranks)
    return explore(session, Search(scenario, world, scenario.invariants, schedules=schedules))


def outcome_of(report: Report) -> Outcome:
    assert report.verdict is Verdict.PASS, report.reasons or report.violations
    assert report.outcome is not None
    assert all(isinstance(each, Returned) for each in report.outcome.results)
    return report.outcome


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_dcp_save_and_load(session: Session, ranks: int) -> None:
    outcome = outcome_of(explored(session, "dcp_save_load", ranks=ranks, schedules=3))
    assert len(outcome.results) == ranks
    assert all(isinstance(each, Returned) and all(each.value) for each in outcome.results)


@pytest.mark.parametrize("ranks", [2, 4])
def test_fsdp2(session: Session, ranks: int) -> None:
    outcome = outcome_of(explored(session, "fsdp2", ranks=ranks, schedules=3))
    assert len({str(each) for each in outcome.results}) == 1, "all ranks have the same whole weights"


def test_a_dtensor_that_is_sharded_another_way_when_it_is_loaded(session: Session) -> None:
    outcome = outcome_of(explored(session, "dtensor"))
    assert len({str(each) for each in outcome.results}) == 1


def test_async_saves_by_a_thread(session: Session) -> None:
    """What is loaded is what the weights were when the save was called."""
    outcome = outcome_of(explored(session, "async_threads"))
    assert outcome.results == (Returned(["1.0", "2.0"]),) * 2
    assert any(note.startswith("threads and processes of a rank") for note in outcome.coverage.notes)


def test_safetensors(session: Session) -> None:
    outcome = outcome_of(explored(session, "safetensors_files"))
    assert outcome.names, "its temporary names differ from run to run"


def test_accelerate(session: Session) -> None:
    outcome = outcome_of(explored(session, "accelerate_thrice"))
    assert outcome.results == (Returned(["checkpoint_2"]),) * 2


@pytest.mark.slow
def test_async_saves_by_a_daemon_process(session: Session) -> None:
    """Each rank starts a Python process that imports torch and has a process group of its own: seconds a run."""
    outcome = outcome_of(explored(session, "async_process", schedules=1))
    assert outcome.results == (Returned([".metadata", "__0_0.distcp", "__1_0.distcp"]),) * 2
