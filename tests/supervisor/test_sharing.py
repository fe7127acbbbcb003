"""The order of one rank's threads and processes, and that of operations on the store, is explored like any other."""

from __future__ import annotations

import pytest

from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model.compare import first_difference
from racecheck.model.nouns import Outcome, Raised, Returned, Verdict, Violation
from racecheck.sessions.session import Session
from racecheck.supervisor.state import hypercall_ops
from racecheck.targets.scenarios import make_world
from tests.support.controlled_runs import run, values
from tests.support.targets import target

BOTH = {"[True]", "[False]"}
EITHER_WAY = {
    "is_alive": BOTH,
    "future_done": BOTH,
    "event_is_set": BOTH,
    "queue_empty": BOTH,
    "process_poll": BOTH,
    "waited_without_hang": BOTH,
    "two_threads": BOTH,
    "changed_beside_a_sleep": BOTH,
    "unchanged_for_a_second": BOTH,
    "gives_up": {"[True, True]", "[True, False]"},
    "two_sets": {"['', '', '0']", "['', '', '1']"},
    "two_sets_of_a_tcp_store": {"['', '', '0']", "['', '', '1']"},
    "no_number": {"['refused', 'refused']"},
    "sub_group": {"[None, None]"},
    "waits_for_a_key": {"['file key', '']", "['key file', '']"},
    "compared": {"['0', '0']", "['1', '1']"},
    "deleted": {"[True, True]", "[True, False]"},
}
"""By scenario: what its ranks return, in some order of their ops."""


def searched(session: Session, name: str) -> tuple[list[Outcome], Report]:
    """The outcomes of a search with "dpor"."""
    found: list[Outcome] = []

    def collect(outcome: Outcome) -> list[Violation]:
        found.append(outcome)
        return []

    scenario = target("sharing", name)
    asked = Search(scenario, scenario.world, (collect,), strategy="dpor", schedules=2000, keep_going=True)
    return found, explore(session, asked)


def returned(outcome: Outcome) -> str:
    return str([each.value if isinstance(each, Returned) else each for each in outcome.results])


_LONG = {"unchanged_for_a_second"}
"""Searches of a thousand runs."""


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow) if each in _LONG else each for each in EITHER_WAY]
)
def test_both_orders_are_explored(session: Session, name: str) -> None:
    found, report = searched(session, name)
    assert {returned(outcome) for outcome in found} == EITHER_WAY[name]
    assert report.exhaustive


@pytest.mark.parametrize("name", ["daemon_cut", "killed_child"])
def test_an_end_cuts_a_thread_at_each_op(session: Session, name: str) -> None:
    found, report = searched(session, name)
    assert {frozenset(outcome.disk) for outcome in found} == {
        frozenset[str](),
        frozenset({"first"}),
        frozenset({"first", "second"}),
    }
    assert report.exhaustive


@pytest.mark.slow
def test_a_poll_that_steers_a_collective_leaves_it_without_a_rank(session: Session) -> None:
    found, report = searched(session, "steers_a_collective")
    ends = [outcome.results[1] for outcome in found]
    assert {isinstance(each, Raised) for each in ends} == {True, False}
    assert all("lacks rank 0" in each.lacks for each in ends if isinstance(each, Raised))
    assert report.exhaustive


def test_what_threads_share_is_said_with_the_claim(session: Session) -> None:
    _, report = searched(session, "two_threads")
    assert hypercall_ops.CONDITION in report.coverage.notes


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("torn_mapping", "reads through a mapping while another thread writes the file"),
        ("moved_working_directory", "a path from getcwd or /proc"),
        ("moved_beside_a_link", "a path from getcwd or /proc"),
        ("executed_while_written", "an exec of a file while another thread has it open for writing"),
        ("limited_key", "an earlier timeout of a wait for a collective or a store key"),
        ("limited_wait", "an earlier timeout of a wait for a collective or a store key"),
        ("limited_pipe", "an earlier timeout of a wait for a descriptor"),
        ("looks_at_a_future", "other answers about a collective that a rank does not wait for"),
        ("signals_a_peer", "other moments for a signal between ranks"),
        ("impatient_functional", "a collective that its group gives up on before all ranks arrive"),
        ("never_waits", "accesses to a tensor whose collective is never waited for"),
        ("sends_datagrams", "messages over the program's own sockets"),
    ],
)
def test_what_is_no_op_is_named(session: Session, name: str, what: str) -> None:
    _, report = searched(session, name)
    assert report.verdict is Verdict.PASS
    assert not report.exhaustive
    assert any(what in each for each in report.coverage.untried)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("impatient_group", "RuntimeError on rank 1: "),
        ("uploads_for_an_hour", "RuntimeError on rank 1: "),
        ("issues_and_works", "RuntimeError on rank 1: "),
        ("waits_for_nobody", "RuntimeError on rank 0: barrier #0 of group 1 lacks rank 1"),
    ],
)
def test_a_group_gives_up_in_virtual_time_unless_a_peer_has_ended(session: Session, name: str, says: str) -> None:
    scenario = target("sharing", name)
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=10))
    assert report.verdict is Verdict.FAIL
    (found,) = report.violations
    assert found.violation.message.startswith(says), "the other rank's failure is an echo"


def test_a_group_that_has_time_does_not_give_up(session: Session) -> None:
    _, report = searched(session, "patient_group")
    assert report.verdict is Verdict.PASS


def test_a_mapping_without_writers_is_no_doubt(session: Session) -> None:
    _, report = searched(session, "mapped_after_writing")
    assert report.exhaustive


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("two_append", "bytes lost when two NFS clients append to one file"),
        ("replaced_link", "an old symbolic link that an NFS client follows"),
        ("moved_aside", "a file that an NFS client opens by a name that another client has just removed"),
    ],
)
def test_what_the_model_of_nfs_leaves_out_is_named(session: Session, name: str, what: str) -> None:
    scenario = target("sharing", name)
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=60))
    assert not report.exhaustive
    assert any(what in each for each in report.coverage.untried)


def test_a_limited_wait_for_a_key_that_is_never_set_times_out(session: Session) -> None:
    found, _ = searched(session, "limited_key")
    assert {returned(outcome) for outcome in found} == {"['timed out', '']"}


def test_a_limited_wait_for_a_collective_without_peers_gives_up(session: Session) -> None:
    found, _ = searched(session, "nobody_comes")
    assert {returned(outcome) for outcome in found} == {"['gave up', 'nothing']"}


def test_a_claim_says_that_tensors_are_left_alone_until_the_wait(session: Session) -> None:
    _, report = searched(session, "reads_before_the_wait")
    assert report.claim.conditions == ("no rank changes a collective's tensor before its wait",)


def test_a_thread_of_gloo_is_not_taken_for_one_of_the_program(session: Session) -> None:
    found, report = searched(session, "waits_in_a_thread")
    threads = {op.thread for outcome in found for op in outcome.ops}
    assert threads == {"0", "0.1", "1", "1.1"}
    assert report.verdict is Verdict.PASS


def test_a_store_answers_as_the_real_one_does(session: Session) -> None:
    """That of PyTorch 2.13, that is, which counts a key of its own."""
    found, _ = searched(session, "uses_a_store")
    expected = [["a"], 2, 1, "first", "1", "0:05:00", "timed out"]
    assert [outcome.results for outcome in found] == [(Returned(expected),)]


def test_the_processes_of_a_killed_rank_continue(session: Session) -> None:
    found, report = searched(session, "outlived_by_a_child")
    assert {frozenset(outcome.disk) for outcome in found} == {frozenset({"left"})}
    assert report.exhaustive


def test_an_exec_gives_back_the_locks_of_the_files_that_it_closes(session: Session) -> None:
    scenario = target("sharing", "locked_until_an_exec")
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, strategy="dpor", schedules=3))
    assert report.verdict is Verdict.PASS
    assert any("an exec that releases a lock" in each for each in report.coverage.untried)


@pytest.mark.parametrize(("seconds", "end"), [(3, "timed out"), (20, "set")])
def test_a_limited_wait_for_a_key_ends_in_virtual_time(session: Session, seconds: int, end: str) -> None:
    scenario = target("sharing", "key_beside_a_sleep")
    world = make_world(scenario.world, sizes={"seconds": seconds})
    report = explore(session, Search(scenario, world, scenario.invariants, schedules=50))
    assert {ending.outcome.results for ending in report.endings} == {(Returned(end), Returned(""))}


@pytest.mark.parametrize(("seconds", "end"), [(3, "timed out"), (20, "met")])
def test_a_limited_wait_for_a_collective_ends_in_virtual_time(session: Session, seconds: int, end: str) -> None:
    scenario = target("sharing", "barrier_beside_a_sleep")
    world = make_world(scenario.world, sizes={"seconds": seconds})
    report = explore(session, Search(scenario, world, (), schedules=20))
    assert {ending.outcome.results[0] for ending in report.endings} == {Returned(end)}


def test_a_random_device_is_drawn_from_the_seed(session: Session) -> None:
    one, two = (run(session, "reads_a_random_device", file="sharing") for _ in range(2))
    assert values(one) == values(two)
    drawn = {each for found in values(one) if isinstance(found, list) for each in found}
    assert len(drawn) == 4, "each rank, and each open, has numbers of its own"
    assert first_difference(one, two) == ""


def test_a_database_is_covered(session: Session) -> None:
    _, report = searched(session, "keeps_a_database")
    assert report.exhaustive, report.reasons


def test_the_store_of_a_group_has_queues(session: Session) -> None:
    scenario = target("stores", "queue_of_the_group")
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=5))
    assert report.verdict is Verdict.PASS, report.violations
    assert report.outcome is not None
    assert [each.value for each in report.outcome.results if isinstance(each, Returned)] == ["", "first second 0"]
