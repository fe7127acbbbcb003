"""A rank goes on before its peers come where its part of a collective needs nothing of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from racecheck.explore import runner
from racecheck.explore.reports import Report
from racecheck.explore.requests import RunRequest, Search
from racecheck.explore.search import explore
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Outcome, Raised, Returned, Verdict, Violation
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.session import Session
from racecheck.targets.scenarios import make_world
from tests.support.targets import target

RECEIVED = {
    "broadcast": [1.0] * 3,
    "send": [1.0] * 3,
    "scatter": [2.0] * 3,
    "gather": [1.0] * 3,
    "reduce": [3.0] * 3,
    "functional_broadcast": [1.0] * 3,
    "broadcast_of_cpp": [1.0] * 3,
    "broadcast_in_inference": [1.0] * 3,
}
"""What rank 1 has after each collective: of rank 0, what its tensor held when it took its part."""


def searched(session: Session, name: str, collectives: str) -> tuple[list[Outcome], Report]:
    """The outcomes of a search with "dpor"."""
    found: list[Outcome] = []

    def collect(outcome: Outcome) -> list[Violation]:
        found.append(outcome)
        return []

    scenario = target("early", name)
    world = make_world(scenario.world, collectives=collectives)
    asked = Search(scenario, world, (collect,), strategy="dpor", schedules=500, keep_going=True)
    return found, explore(session, asked)


def values(outcome: Outcome) -> list[Any]:
    return [each.value if isinstance(each, Returned) else each for each in outcome.results]


@pytest.mark.parametrize("kind", RECEIVED)
def test_with_gloo_the_peer_comes_first_and_the_claim_says_so(session: Session, kind: str) -> None:
    found, report = searched(session, kind, "gloo")
    assert [values(each)[1] for each in found] == [[True, RECEIVED[kind]]]
    assert report.exhaustive
    assert report.claim.conditions == ("for gloo",)


@pytest.mark.parametrize("kind", RECEIVED)
def test_with_the_weakest_collectives_both_orders_are_explored(session: Session, kind: str) -> None:
    found, report = searched(session, kind, "weakest")
    assert {str(values(each)[1]) for each in found} == {str([there, RECEIVED[kind]]) for there in (True, False)}
    assert {str(values(each)[0]) for each in found} == {str([1.0] * 3)}
    assert report.exhaustive
    assert report.claim.conditions == ("for collectives that return as early as MPI and NCCL allow",)


def test_a_broadcast_reaches_each_rank_whatever_the_others_do(session: Session) -> None:
    found, report = searched(session, "skips_a_rank", "weakest")
    assert {tuple(there for there, _ in values(each)[1:]) for each in found} == {
        (False, False), (True, False), (False, True),
    }  # fmt: skip
    assert report.exhaustive


def test_a_rank_that_has_left_is_still_heard(session: Session) -> None:
    found, report = searched(session, "leaves", "weakest")
    assert {str(values(each)) for each in found} == {"[False, [1.0, 1.0]]", "[True, [1.0, 1.0]]"}
    assert report.exhaustive


def test_more_parts_at_a_time_than_gloo_has_threads(session: Session) -> None:
    found, _ = searched(session, "many", "weakest")
    assert [values(each) for each in found] == [[[0.0, 1.0, 2.0, 3.0, 4.0]] * 2]


def test_an_early_end_behind_an_early_return_is_reported(session: Session) -> None:
    found, _ = searched(session, "never_received", "weakest")
    raised = values(found[0])[0]
    assert isinstance(raised, Raised)
    assert raised.lacks == "barrier #0 of group 0 lacks rank 1, which has returned"


@pytest.mark.parametrize("kind", RECEIVED)
def test_a_schedule_repeats(session: Session, kind: str) -> None:
    found, _ = searched(session, kind, "weakest")
    scenario, wanted = target("early", kind), found[-1]
    for _ in range(5):
        again = runner.run(session, RunRequest.of(scenario, wanted.world, Replay(wanted.schedule), seed="0"))
        assert (again.trace, again.results) == (wanted.trace, wanted.results)


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown collectives 'mpi'; known: gloo, weakest"):
        make_world(target("early", "many").world, collectives="mpi")


def test_free_mode_refuses_it(session: Session) -> None:
    scenario = target("early", "many")
    world = replace(scenario.world, collectives="weakest")
    with pytest.raises(UsageError, match="needs controlled mode"):
        explore(session, Search(scenario, world, scenario.invariants, free=True, schedules=1))


def test_the_verdict_depends_on_it(session: Session) -> None:
    def sees_it(outcome: Outcome) -> list[Violation]:
        missed = values(outcome)[1][0] is False
        return [Violation("sees-it", "rank 1 misses the file", (1,))] * missed

    scenario = target("early", "broadcast")
    verdicts = {}
    for each in ("gloo", "weakest"):
        world = make_world(scenario.world, collectives=each)
        verdicts[each] = explore(session, Search(scenario, world, (sees_it,), strategy="dpor")).verdict
    assert verdicts == {"gloo": Verdict.PASS, "weakest": Verdict.FAIL}
