"""What somebody answers who is not of the run is waited for, as if it came at once."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from racecheck import runner
from racecheck.model import Returned
from racecheck.strategies import Replay
from racecheck.world.session import Session
from tests.conftest import target
from tests.targets import outside
from tests.test_world import controlled, made, run


@pytest.mark.parametrize("name", ["by_name", "by_tcp", "by_udp"])
def test_an_answer_is_waited_for(session: Session, name: str) -> None:
    """In the tamest schedule rank 0 goes first."""
    scenario = target("outside", name)
    with slow_server():
        outcome = runner.run_once(session, scenario, scenario.world, Replay(()), seed="0")
    assert not outcome.coverage.holes
    assert made(outcome) == ["f0", "g0", "f1", "g1"]


def test_that_of_a_rank_is_not(session: Session) -> None:
    """It comes when that rank has been let go on."""
    before = time.monotonic()
    outcome = controlled(session, "outside", "of_a_rank")
    assert outcome.results == (Returned("answer"), Returned(""))
    assert time.monotonic() - before < 10


def test_nobody_is_waited_for_for_ever(session: Session) -> None:
    """That nothing came in time is told of: it goes by the real clock."""
    with slow_server():
        outcome = run(session, "of_nobody", file="outside")
    assert outcome.results == (Returned("no answer"), Returned(""))
    assert outcome.coverage.holes.keys() == {"a wait with a time limit in real time"}


@contextmanager
def slow_server() -> Iterator[None]:
    """A thread of this process that takes its time for each question, and answers with its ports."""
    over = threading.Event()
    with socket.socket(socket.AF_UNIX) as here, socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        here.bind(outside.server_name())
        tcp.bind((outside.HOST, 0))
        udp.bind((outside.HOST, 0))
        ports = b"%d %d" % (tcp.getsockname()[1], udp.getsockname()[1])

        def serve() -> None:
            while not over.is_set():
                for end in select.select([here, tcp, udp], [], [], 0.05)[0]:
                    time.sleep(0.2)
                    if end is udp:
                        udp.sendto(ports, udp.recvfrom(100)[1])
                    else:
                        with end.accept()[0] as taken:
                            if taken.recv(100):
                                taken.send(ports)

        here.listen()
        tcp.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
