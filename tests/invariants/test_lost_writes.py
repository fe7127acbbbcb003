"""Writes that are lost: found where nothing orders two writers of one file, and nowhere else."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from racecheck import UsageError, no_lost_writes
from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.invariants import DEFAULT
from racecheck.model.nouns import Invariant, Verdict
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from racecheck.targets.programs import ASKED, sharing

FILE = Path(__file__).parents[1] / "programs" / "writing_together.py"


def searched(session: Session, name: str, invariant: Invariant = no_lost_writes) -> Report:
    scenario = resolve.load(f"{FILE}::{name}")
    return explore(session, Search(scenario, scenario.world, (invariant,)))


@pytest.mark.parametrize(
    ("name", "path", "says"),
    [
        ("events", "events.json", "empties"), ("after_a_barrier", "latest", "empties"),
        ("emptied_by_appenders", "log", "empties"), ("one_appends", "log", "both write"), ("copies", "best", ""),
        ("one_place", "all", "both write"),
    ],
)  # fmt: skip
def test_what_is_lost_is_found(session: Session, name: str, path: str, says: str) -> None:
    report = searched(session, name)
    assert report.verdict is Verdict.FAIL
    violation = report.violations[0].violation
    assert violation.invariant == "no-lost-writes"
    assert path in violation.message
    assert says in violation.message
    assert violation.ranks == (0, 1)


@pytest.mark.parametrize(
    "name",
    ["appends", "in_turns", "own_places", "numbered_places", "locked", "read_before", "told_by_a_file", "same_bytes"],
)
def test_what_has_an_order_or_a_place_of_its_own_is_not(session: Session, name: str) -> None:
    assert searched(session, name).verdict is Verdict.PASS


def test_patterns_allow_it(session: Session) -> None:
    assert searched(session, "events", partial(no_lost_writes, shared=["*.log", "events.*"])).verdict is Verdict.PASS
    assert searched(session, "events", partial(no_lost_writes, shared=["*.log"])).verdict is Verdict.FAIL


def test_launch_commands_are_asked_and_may_share() -> None:
    assert no_lost_writes in ASKED
    (found,) = [each for each in sharing(ASKED, ["*.log"]) if isinstance(each, partial)]
    assert found.keywords == {"shared": ("*.log",)}
    with pytest.raises(UsageError, match="--shared is for launch commands"):
        sharing(DEFAULT, ["*.log"])
