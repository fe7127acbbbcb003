"""Ranks that find one another over sockets do so in one order, and never too early."""

from __future__ import annotations

import os
import socket

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest, Search
from racecheck.explore.search import explore
from racecheck.model.compare import first_difference
from racecheck.model.nouns import Returned
from racecheck.report.results import Page, search_text
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.session import Session
from racecheck.supervisor.calls.connections import is_own, is_stream
from tests.support.controlled_runs import controlled, made, run
from tests.support.targets import target


def test_an_early_connect_waits_for_its_listener(session: Session) -> None:
    """Whatever comes first: in every interleaving."""
    scenario = target("connections", "too_early")
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=200))
    assert not report.exhaustive
    said = search_text(report, 200, Page())
    assert "INCOMPLETE: not tried: a connect that is refused before anybody listens; " in said.partition("\n")[0]
    assert "\n      not tried: messages" in said
    results = {run(session, "too_early", file="connections", seed=seed).results for seed in range(5)}
    assert results == {(Returned("took one"), Returned("taken"))}


def test_a_connect_without_a_listener_is_refused_when_nothing_else_can_continue(session: Session) -> None:
    outcome = controlled(session, "connections", "nobody")
    assert outcome.results == (Returned("never listens"), Returned("refused"))
    assert made(outcome) == ["beside", "refused"]


@pytest.mark.parametrize(
    ("name", "results"), [("nobody_beside_a_monitor", [["refused"]]), ("nobody_beside_a_poller", ["refused", "done"])]
)
def test_a_connect_is_refused_although_others_run_forever(session: Session, name: str, results: list[object]) -> None:
    assert controlled(session, "connections", name).results == tuple(map(Returned, results))


def test_a_socket_that_does_not_block_is_connected_too(session: Session) -> None:
    assert controlled(session, "connections", "without_waiting").results == (Returned([]), Returned([True, True]))


def test_a_thread_that_selects_after_a_collective_has_left_it(session: Session) -> None:
    """Its wait times out in virtual time; it is no deadlock."""
    outcome = controlled(session, "connections", "selects_behind_a_collective")
    assert outcome.results == (Returned("over"),) * 2


def test_connections_are_made_in_the_order_of_ranks(session: Session) -> None:
    """And not in that in which ranks are ready for it."""
    assert controlled(session, "connections", "one_after_the_other").results[0] == Returned("123")


def test_the_listener_may_be_another_thread_of_the_rank(session: Session) -> None:
    assert controlled(session, "connections", "two_threads").results == (Returned(["taken", "x"]),)


def test_a_sender_of_datagrams_does_not_wait(session: Session) -> None:
    """In the default schedule rank 0 goes first."""
    scenario = target("connections", "no_connection")
    outcome = runner.run(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    assert made(outcome) == ["f0", "g0", "f1", "g1"]


@pytest.mark.parametrize(("host", "here"), [("127.0.0.1", True), ("0.0.0.0", True), ("240.0.0.1", False)])
def test_only_a_server_on_this_machine_is_waited_for(host: str, here: bool) -> None:
    assert is_own(socket.AF_INET, socket.inet_aton(host)) is here


def test_what_is_connected_is_looked_at_and_closed() -> None:
    pipe = os.pipe()
    with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagram:
        copies = [os.dup(each) for each in (stream.fileno(), datagram.fileno(), pipe[0])]
        assert [is_stream(each) for each in copies] == [True, False, False]
    for each in copies:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(each)
    for each in pipe:
        os.close(each)


@pytest.mark.parametrize("name", ["too_early", "nobody", "one_after_the_other", "two_threads"])
def test_a_schedule_repeats(session: Session, name: str) -> None:
    scenario = target("connections", name)
    first = runner.run(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    for _ in range(3):
        again = runner.run(
            session, RunRequest.of(scenario, scenario.world, Replay(first.schedule), seed="0", stacks=False)
        )
        assert first_difference(first, again) == ""
