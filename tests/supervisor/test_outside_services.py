"""What somebody answers who is not of the run is waited for, as if it came at once."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.kernel.memory import Memory
from racecheck.kernel.sleepers import Sleep
from racecheck.model.nouns import Returned, Stopped
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.session import Session
from racecheck.supervisor.calls.connections import open_socket
from racecheck.supervisor.files.open_files import Descriptors, OpenFiles
from racecheck.supervisor.files.paths import Watched
from racecheck.supervisor.state.rank_parts import Wire
from racecheck.supervisor.state.tasks import Process, Rank
from racecheck.supervisor.wait.outside_services import OutsideServices, leads_out, processes
from tests.programs import outside
from tests.support.controlled_runs import controlled, made, run
from tests.support.targets import target

LOOKS = 5
REAL_TIME = {"a wait with a real-time limit"}


class Looks(list[bool]):
    """Whether anybody outside was waited for, at each look at sleepers; and when it has been so several times: were the
    world quiet at the first of them, another rank would have gone on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.awaited = threading.Event()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Looks:
    original = OutsideServices.is_awaited
    looks = Looks()

    def is_awaited(self: OutsideServices, sleep: Sleep) -> bool:
        looks.append(original(self, sleep))
        if looks[-1] and sum(looks) % LOOKS == 0:
            looks.awaited.set()
        return looks[-1]

    monkeypatch.setattr(OutsideServices, "is_awaited", is_awaited)
    return looks


@pytest.mark.parametrize("name", ["by_name", "by_tcp", "by_udp"])
def test_an_answer_is_waited_for(session: Session, waits: Looks, name: str) -> None:
    """In the default schedule rank 0 goes first."""
    scenario = target("outside", name)
    with slow_server(waits.awaited):
        outcome = runner.run(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    assert any(waits)
    assert not outcome.coverage.holes
    assert made(outcome) == ["f0", "g0", "f1", "g1"]


@pytest.mark.parametrize("kind", ["a_rank_by_udp", "a_rank_by_tcp", "a_rank_by_name", "another_thread"])
def test_that_of_a_rank_is_not(session: Session, waits: Looks, kind: str) -> None:
    """It comes when that rank has been let go on."""
    outcome = controlled(session, "outside", f"of_{kind}")
    assert outcome.results[0] == Returned("answer")
    assert waits
    assert not any(waits)


def test_what_may_come_some_time_is_not(session: Session, waits: Looks) -> None:
    with slow_server():
        assert controlled(session, "outside", "without_a_limit").results == (Returned("done"),)
    assert waits
    assert not any(waits)


def test_a_late_answer_is_reported(session: Session) -> None:
    """It goes by the real clock, and only the rank's own clock knows by how much."""
    with slow_server():
        for _ in range(5):
            outcome = run(session, "of_nobody", file="outside")
            assert outcome.results == (Returned("no answer"), Returned(""))
            assert outcome.coverage.holes.keys() == REAL_TIME


def test_no_wait_lasts_forever(session: Session, waits: Looks) -> None:
    """Patience is for a run, not for each question, and shorter than what the run has."""
    with slow_server():
        outcome = run(session, "again_and_again", file="outside")
    assert any(waits)
    assert outcome.results == (Returned("done"),)
    assert outcome.coverage.holes.keys() == REAL_TIME


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("forever", "real-time waits took more than 2 s in total"),
        ("forever_in_little_bits", "500 waits timed out in a row and nothing else happened; a polling loop?"),
    ],
)
def test_an_endless_wait_is_stopped(session: Session, name: str, why: str) -> None:
    """It is no deadlock either, whenever the supervisor looks."""
    with slow_server():
        (found,) = run(session, name, file="outside").results
    assert isinstance(found, Stopped)
    assert (found.kind, found.why) == ("running", why)


def test_a_peer_that_does_not_answer_yet_is_outside() -> None:
    """The queue of a server that takes nobody is full sooner or later, and it does not answer any more."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server((outside.HOST, 0), backlog=0))
        assert not leads_out(stack.enter_context(socket.socket()), os.getpid(), set())
        while True:
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            with suppress(BlockingIOError):
                client.connect(server.getsockname())
            if not select.select([], [client], [], 0.2)[1]:
                break
        assert leads_out(client, os.getpid(), set())


def test_other_processes_and_machines_are_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((outside.HOST, 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert not leads_out(client, os.getpid(), {os.getpid()})
        assert leads_out(client, os.getpid(), set())
        monkeypatch.setattr("racecheck.supervisor.wait.outside_services.is_own", lambda *_: False)
        assert leads_out(client, os.getpid(), {os.getpid()})


def test_a_pair_does_not_depend_on_the_ranks_that_made_it() -> None:
    """It may have been there before the run."""
    here, there = socket.socketpair()
    with here, there:
        assert not leads_out(here, os.getpid(), set())


def test_an_orphan_belongs_to_the_run() -> None:
    """It is no descendant of its rank any more, and neither is what it starts."""
    script = "import subprocess; child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True); child.wait()"
    with (
        subprocess.Popen(["sleep", "60"]) as main,
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as orphan,
        socket.socket() as channel,
    ):
        assert orphan.stdout is not None
        child = int(orphan.stdout.readline())
        rank = Rank(0, Wire(channel), OpenFiles(Watched({})), pid=main.pid)
        rank.process(main.pid)
        assert processes([rank]) == {main.pid}
        rank.processes[orphan.pid] = Process(rank, orphan.pid, Memory(orphan.pid), Descriptors(orphan.pid, rank.files))
        assert processes([rank]) == {main.pid, orphan.pid, child}
        os.kill(child, signal.SIGKILL)
        main.kill()


@pytest.mark.parametrize("limit", [None, 1.0])
def test_what_is_looked_at_blocks_as_before(limit: float | None) -> None:
    with socket.socket() as end:
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(limit)
        try:
            found = open_socket(os.dup(end.fileno()))
            assert socket.getdefaulttimeout() == limit
        finally:
            socket.setdefaulttimeout(before)
        assert found is not None
        found.close()
        assert os.get_blocking(end.fileno())


@contextmanager
def slow_server(awaited: threading.Event | None = None) -> Iterator[None]:
    """A thread of this process that answers questions with its ports, each when it is known to be ``awaited``."""
    over = threading.Event()
    awaited = awaited or threading.Event()
    with socket.socket(socket.AF_UNIX) as here, socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        here.bind(outside.server_name())
        tcp.bind((outside.HOST, 0))
        udp.bind((outside.HOST, 0))
        ports = b"%d %d" % (tcp.getsockname()[1], udp.getsockname()[1])

        def serve() -> None:
            while not over.is_set():
                for end in select.select([here, tcp, udp], [], [], 0.05)[0]:
                    if end is udp:
                        _, who = udp.recvfrom(100)
                        awaited.wait(10)
                        udp.sendto(ports, who)
                    else:
                        with end.accept()[0] as taken:
                            if taken.recv(100):
                                awaited.wait(10)
                                taken.send(ports)
                    awaited.clear()

        here.listen()
        tcp.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
