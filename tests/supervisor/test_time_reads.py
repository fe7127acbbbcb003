"""The order in which files got their times is explored where a program looks; what clocks and listings show is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explained, explore
from racecheck.invariants import no_file_errors
from racecheck.model.nouns import Outcome, Returned, Violation
from racecheck.sessions.session import Session
from tests.support.targets import target


def searched(session: Session, name: str) -> tuple[list[Outcome], Report]:
    """The outcomes of a search with "dpor"."""
    found: list[Outcome] = []

    def collect(outcome: Outcome) -> list[Violation]:
        found.append(outcome)
        return []

    scenario = target("looks", name)
    return found, explore(session, Search(scenario, scenario.world, (collect,), strategy="dpor", keep_going=True))


def test_each_order_of_times_is_explored_that_a_program_looks_at(session: Session) -> None:
    found, report = searched(session, "oldest_by_time")
    assert {outcome.results for outcome in found} == {(Returned("0"),) * 2, (Returned("1"),) * 2}
    assert report.exhaustive
    assert (
        str(report.claim)
        == "EXHAUSTED: 2 traces, 0 redundant; no two changes set the same file time; listings are sorted"
    )


def test_a_recovery_may_look(session: Session) -> None:
    found, report = searched(session, "oldest_to_a_recovery")
    assert {outcome.recovery.results[0] for outcome in found if outcome.recovery} == {Returned("0"), Returned("1")}
    assert report.exhaustive


def test_a_program_that_is_not_python_may_look(session: Session) -> None:
    found, report = searched(session, "lists_with_a_program")
    assert {outcome.results[0] for outcome in found} == {Returned("0\n1\n"), Returned("1\n0\n")}
    assert report.exhaustive


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("asks_for_room", "the free space of a file system"),
        ("counts_links", "other sizes or link counts of a directory"),
        ("asks_who_read", "other access times of a file"),
        ("reads_from_a_fifo", "messages through a FIFO"),
        ("shares_what_is_outside", "ops of several ranks on ../lock, outside the watched directory"),
    ],
)
def test_what_several_ranks_share_is_an_op_or_named(session: Session, name: str, what: str) -> None:
    _, report = searched(session, name)
    assert not report.exhaustive
    assert what in report.coverage.untried


def test_a_stat_alone_is_no_look(session: Session) -> None:
    _, report = searched(session, "asks_only_what_is_there")
    assert str(report.claim) == "EXHAUSTED: 1 trace, 0 redundant"


def test_times_that_one_rank_gave_have_one_order(session: Session) -> None:
    _, report = searched(session, "ages_of_one_rank")
    assert str(report.claim) == "EXHAUSTED: 1 trace, 0 redundant; no two changes set the same file time"


def test_a_proof_that_begins_again_makes_another_run_of_the_only_order(session: Session) -> None:
    found, report = searched(session, "ages_without_others")
    assert str(report.claim) == "EXHAUSTED: 1 trace, 0 redundant; no two changes set the same file time"
    scenario = target("looks", "ages_without_others")
    short = explore(session, Search(scenario, scenario.world, (no_file_errors,), strategy="dpor", schedules=1))
    assert found[0].schedule == ()
    assert "INCOMPLETE: no schedule was run since the search began again" in str(short.claim)


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("looks_at_a_clock", "clocks read as in these schedules"),
        ("looks_at_the_date", "clocks read as in these schedules"),
        ("lists", "listings are sorted"),
    ],
)
def test_a_claim_says_what_it_takes_for_granted(session: Session, name: str, condition: str) -> None:
    _, report = searched(session, name)
    assert report.exhaustive
    assert report.claim.conditions == (condition,)


def test_the_pair_that_decides_is_that_of_the_times(session: Session) -> None:
    scenario = target("looks", "deletes_the_oldest")
    search = Search(scenario, scenario.world, scenario.invariants)
    report = explained(session, replace(search, explain=20.0), explore(session, search))
    assert report.explanation is not None
    assert report.explanation.pair is not None
    assert [report.explanation.pair.first.label, report.explanation.pair.second.label] == ["1 mkdir 1", "0 mkdir 0"]
