"""Clocks apart: which programs run with them, how often, and what a report says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from racecheck.explore.clocks import Clocks, worlds
from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model.nouns import Fault, Outcome, Verdict, World
from racecheck.report.decisive import decisive
from racecheck.report.sentence import plain, sentence
from racecheck.scheduling.claims import CLOCKS, Claim
from racecheck.scheduling.minimise.world_size import fewer_ranks
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from tests.support.builders import op

FILE = Path(__file__).parents[1] / "programs" / "stamped.py"


def searched(session: Session, name: str, **more: Any) -> Report:
    scenario = resolve.load(f"{FILE}::{name}")
    return explore(session, replace(Search(scenario, scenario.world, scenario.invariants), **more))


def read(world: World, ranks: range | None = None) -> Outcome:
    """A run in which these ranks, or all, read the time of day."""
    return Outcome(world, (), (), (), times=dict.fromkeys(ranks or range(world.ranks), 0))


def skews(world: World, ranks: range | None = None) -> list[tuple[float, ...]]:
    return [each.skew for each in worlds(read(world, ranks))]


def test_one_rank_at_a_time_is_ahead_or_behind() -> None:
    assert skews(World(ranks=2)) == [(0, 1), (1, 0)]
    assert skews(World(ranks=4)) == [(0, 0, 0, 1), (1, 0, 0, 0), (0, 1, 1, 1), (1, 1, 1, 0)]
    assert skews(World(ranks=4), range(1, 3)) == [(0, 0, 1, 0), (0, 1, 0, 0)]


def test_the_ranks_of_a_node_have_one_clock() -> None:
    assert skews(World(ranks=4, nodes=2)) == [(0, 0, 1, 1), (1, 1, 0, 0)]
    assert skews(World(ranks=4, nodes=2), range(2)) == [], "both are on one node"


def test_clocks_agree_if_one_rank_asks_or_the_world_says_otherwise() -> None:
    assert skews(World(ranks=2), range(1)) == []
    assert skews(World(ranks=2, skew=(0, 5))) == []
    assert skews(World(ranks=2, faults=(Fault("ENOSPC"),))) == []


def test_a_part_of_the_runs_is_for_clocks_apart_if_that_changes_something() -> None:
    clocks, first = Clocks(), read(World(ranks=2))
    clocks.begin(first)
    for _ in range(2):
        turn = clocks.next(1, at_end=False)
        assert turn is not None
        clocks.take(turn, replace(first, trace=(op("0 mkdir other"),)))
    assert [clocks.next(done, at_end=False) is None for done in (3, 8, 9)] == [True, True, False]
    assert clocks.next(3, at_end=True) is not None, "nothing else is left"
    quiet = Clocks()
    quiet.begin(first)
    for _ in range(2):
        turn = quiet.next(1, at_end=False)
        assert turn is not None
        quiet.take(turn, first)
    assert quiet.next(100, at_end=False) is quiet.next(100, at_end=True) is None


def test_a_name_from_each_clock_is_found_by_default(session: Session) -> None:
    report = searched(session, "own_minute", explain=20.0)
    assert (report.verdict, report.schedule_number) == (Verdict.FAIL, 1)
    assert report.outcome is not None
    assert report.world.skew == (0.0, 1.0)
    said = plain(sentence(report.outcome, [each.violation for each in report.violations], decisive(report.outcome, [])))
    assert said.startswith(
        "The clock is ahead by 1 s on rank 1 (rank 0 reads 2033-05-18 23:59:59.000; rank 1 reads 2033-05-19 00:00:00."
    )
    assert report.explanation is not None
    assert report.explanation.agreeing == 5


@pytest.mark.parametrize(
    ("name", "runs"),
    [("one_clock", 8), ("own_directories", 2), ("contents", 2), ("stopwatch", 0), ("asked_by_one", 0)],
)
def test_sound_programs_pass(session: Session, name: str, runs: int) -> None:
    report, alone = searched(session, name), searched(session, name, strategy="dpor")
    assert (report.verdict, report.claim.traces) == (Verdict.PASS, alone.claim.traces)
    assert report.schedules == alone.schedules + runs
    assert f"{CLOCKS}, {runs} of which have clocks 1 s apart" * (runs > 0) in str(report.claim)
    assert CLOCKS in alone.claim.conditions


def test_a_claim_without_clocks_stays_as_it_is() -> None:
    claim = Claim(proves=True, conditions=("for gloo", CLOCKS))
    assert Clocks().told(claim) == claim


def test_fewer_ranks_keep_their_clocks_apart() -> None:
    found = {each.ranks: each.skew for each in fewer_ranks(World(ranks=4, skew=(0, 0, 0, 1)))}
    assert found == {1: (0,), 2: (0, 1), 3: (0, 0, 1)}
