"""A rank's changes to its environment act as they do without racecheck, or the verdict is UNKNOWN and names them."""

from __future__ import annotations

import multiprocessing
import os
import re
from pathlib import Path
from typing import Any

import pytest

from racecheck import Rank
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model.errors import CannotRun
from racecheck.model.nouns import Verdict
from racecheck.sessions.session import Session
from tests.programs import environment
from tests.support.controlled_runs import controlled, run, values
from tests.support.targets import target


def really(name: str, path: Path) -> Any:
    """What a scenario returns without racecheck, in a process of its own."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    process = fork.Process(target=lambda: theirs.send(getattr(environment, name).run(Rank(0, 1, path))))
    process.start()
    assert ours.poll(60)
    found = ours.recv()
    process.join()
    return found


@pytest.mark.parametrize(
    "name",
    ["limits_the_size_of_files", "has_used_up_its_files", "uses_protected_pages", "replaces_standard_input"],
)
def test_it_is_as_without_racecheck(session: Session, tmp_path: Path, name: str) -> None:
    (found,) = values(controlled(session, "environment", name))
    assert found == really(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("dies_of_the_size_of_a_file", "rank 0 reaches RLIMIT_FSIZE, and SIGXFSZ is not controlled: ignore the signal"),
        ("may_have_few_files", "a rank may have 64 open files; watched files get numbers from 256 on"),
    ],
)
def test_what_cannot_be_as_without_is_unknown_by_its_name(session: Session, name: str, why: str) -> None:
    scenario = target("environment", name)
    with pytest.raises(CannotRun, match=re.escape(why)):
        explore(session, Search(scenario, scenario.world, scenario.invariants))


@pytest.mark.parametrize("name", ["stops_itself", "stops_a_process"])
def test_a_stopped_process_is_named_without_a_wait_for_the_timeout(session: Session, name: str) -> None:
    scenario = target("environment", name)
    report = explore(session, Search(scenario, scenario.world, scenario.invariants))
    assert report.verdict is Verdict.UNKNOWN
    assert any("a process of rank 0 is stopped, by SIGSTOP or a tracer" in each for each in report.reasons)
    assert report.seconds < scenario.world.timeout


@pytest.mark.parametrize(
    ("name", "is_named"),
    [
        ("changes_its_user", os.geteuid() == 0),  # the kernel refuses an ordinary user the change
        ("starts_a_program_of_another_user", os.geteuid() == 0),
        ("asks_for_the_user_that_it_has", False),
    ],
)
def test_an_op_with_other_credentials_is_named(session: Session, name: str, is_named: bool) -> None:
    coverage = run(session, name, file="environment").coverage
    assert ("an op after a change of user, group or capabilities" in coverage.holes) is is_named
