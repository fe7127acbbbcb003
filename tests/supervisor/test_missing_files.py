"""A loop that asks for a file outside the watched directory keeps nobody from making it."""

from __future__ import annotations

import pytest

from racecheck.model.nouns import Returned, Stopped
from racecheck.sessions.session import Session
from tests.support.controlled_runs import controlled, made, run


@pytest.mark.parametrize("seed", range(3))
def test_the_rank_that_makes_it_continues(session: Session, seed: int) -> None:
    outcome = run(session, "spins", file="missing_files", seed=seed)
    assert outcome.results == (Returned("made"), Returned("asked often"))
    assert made(outcome) == ["first", "second", "third"]
    assert not outcome.coverage.holes


def test_it_takes_virtual_time(session: Session) -> None:
    outcome = controlled(session, "missing_files", "beside_a_sleeper")
    assert outcome.results == (Returned(10.0),) * 2


def test_a_loop_without_an_end_is_stopped(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("racecheck.supervisor.wait.timed_waits._MOST", 50)
    (result,) = controlled(session, "missing_files", "in_vain").results
    assert isinstance(result, Stopped)
    assert (result.kind, result.why[:14]) == ("running", "50 waits timed")


def test_other_questions_are_not_held(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("racecheck.supervisor.wait.timed_waits._MOST", 1)
    assert controlled(session, "missing_files", "often").results == (Returned(3000),)
