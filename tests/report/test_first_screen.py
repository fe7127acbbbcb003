"""The first screen of a finding, 24 lines of 80 characters: what failed, where, in which order, and what to do next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.report.results import Page, search_text
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from racecheck.targets.scenarios import Scenario
from tests.support.targets import target

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def screen(session: Session, scenario: Scenario) -> str:
    """What a terminal of 80 x 24 shows first, as it wraps lines."""
    findings = Path(".racecheck").absolute()
    asked = Search(scenario, scenario.world, scenario.invariants, findings=findings, explain=600.0)
    text = search_text(explore(session, asked), 100, Page(width=80, cut=True))
    wrapped = [line[start : start + 80] for line in text.splitlines() for start in range(0, max(1, len(line)), 80)]
    return "\n".join(wrapped[:24])


def readme(name: str, file: str = "test_readme.py") -> Scenario:
    return resolve.load(f"{SCENARIOS / file}::{name}")


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("name", ["overwrite", "publish", "racing"])
def test_it_says_what_where_and_what_next(session: Session, name: str) -> None:
    scenario = {
        "overwrite": lambda: readme("overwrite"),
        "publish": lambda: readme("publish", "test_readme_crash.py"),
        "racing": lambda: target("savers", "racing"),
    }[name]()
    shown = screen(session, scenario)
    sentence = {
        "overwrite": "Rank 1 did rmdir ckpt (line 10), and then rank 0's rmdir ckpt (line 10)",
        "publish": "Power is lost, and rename new.pt -> model.pt did not reach the disk",
        "racing": "Rank 1 did mkdir ckpt (line ",
    }[name]
    assert re.search(rf"^FAIL  .*\n(.*\n)*      {re.escape(sentence)}", shown)
    assert re.search(r"<--- .*\.py:\d+", shown), "the line of the op that failed"
    for command in ("Replay:  racecheck replay ", "Picture: racecheck report ", "Explain: racecheck explain "):
        assert f"\n{command}" in shown
