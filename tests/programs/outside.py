"""Scenarios in which rank 0 asks somebody who is not of the run.  Not collected by pytest."""

import os
import select
import socket
import threading
from contextlib import suppress

from racecheck import Rank, scenario

HOST = "127.0.0.1"
os.environ.setdefault("RACECHECK_TESTS", str(os.getpid()))  # that of the tests: it is imported there first


def server_name() -> str:
    """Where a process that is not of the run tells the ports of its other sockets."""
    return f"\0racecheck.{os.environ['RACECHECK_TESTS']}"


def ask(family: int, kind: int, address: str | tuple[str, int]) -> bytes:
    with socket.socket(family, kind) as client:
        client.settimeout(30)
        client.connect(address)
        client.send(b"?")
        return client.recv(100)


def asks(rank: Rank, kind: int | None) -> None:
    """Rank 0 asks before it writes."""
    if rank.rank == 0:
        ports = ask(socket.AF_UNIX, socket.SOCK_STREAM, server_name()).split()
        if kind is not None:
            ask(socket.AF_INET, kind, (HOST, int(ports[kind == socket.SOCK_DGRAM])))
    (rank.path / f"f{rank.rank}").touch()
    (rank.path / f"g{rank.rank}").touch()


@scenario(ranks=2)
def by_name(rank: Rank) -> None:
    asks(rank, None)


@scenario(ranks=2)
def by_tcp(rank: Rank) -> None:
    asks(rank, socket.SOCK_STREAM)


@scenario(ranks=2)
def by_udp(rank: Rank) -> None:
    """As a name server is asked."""
    asks(rank, socket.SOCK_DGRAM)


@scenario(ranks=2)
def of_a_rank_by_udp(rank: Rank) -> str:
    """Rank 0 asks rank 1, which does something before it answers."""
    with socket.socket(type=socket.SOCK_DGRAM) as end:
        end.bind((HOST, 0))
        port = told(end.getsockname()[1])
        if rank.rank == 0:
            return ask(socket.AF_INET, socket.SOCK_DGRAM, (HOST, port)).decode()
        (rank.path / "before").touch()
        _, who = end.recvfrom(100)
        (rank.path / "between").touch()
        end.sendto(b"answer", who)
        return ""


@scenario(ranks=2)
def of_a_rank_by_tcp(rank: Rank) -> str:
    with socket.socket() as end:
        end.bind((HOST, 0))
        port = told(end.getsockname()[1])
        return answers(rank, end) if rank.rank else ask(socket.AF_INET, socket.SOCK_STREAM, (HOST, port)).decode()


@scenario(ranks=2)
def of_a_rank_by_name(rank: Rank) -> str:
    name = f"{server_name()}.inside"
    with socket.socket(socket.AF_UNIX) as end:
        if rank.rank:
            end.bind(name)
            end.listen()
        told(0)
        return answers(rank, end) if rank.rank else ask(socket.AF_UNIX, socket.SOCK_STREAM, name).decode()


def told(port: int) -> int:
    """What rank 1 says."""
    import torch
    import torch.distributed as dist

    found = torch.tensor([port])
    dist.broadcast(found, src=1)
    return int(found)


def answers(rank: Rank, end: socket.socket) -> str:
    """It, too, waits for a limited time at most."""
    (rank.path / "before").touch()
    end.listen()
    with end.accept()[0] as taken:
        taken.settimeout(30)
        taken.recv(100)
        (rank.path / "between").touch()
        taken.send(b"answer")
    return ""


@scenario(ranks=1)
def of_another_thread(rank: Rank) -> str:
    """Over a pair of sockets, and there is a connection besides."""
    here, there = socket.socketpair()
    with socket.socket(type=socket.SOCK_DGRAM) as end, here, there:
        end.connect((HOST, 9))

        def answer() -> None:
            (rank.path / "before").touch()
            there.send(there.recv(100))

        thread = threading.Thread(target=answer)
        thread.start()
        here.settimeout(30)
        here.send(b"answer")
        found = here.recv(100).decode()
        thread.join()
        return found


@scenario(ranks=2)
def of_nobody(rank: Rank) -> str:
    """Somebody is asked who never answers."""
    if rank.rank:
        (rank.path / "beside").touch()
        return ""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(0.5)
        client.connect(server_name())
        try:
            return client.recv(100).decode()
        except TimeoutError:
            return "no answer"


@scenario(ranks=1, timeout=6)
def again_and_again(rank: Rank) -> str:
    """Beside what is done, somebody is asked who never answers."""
    over = threading.Event()

    def ask_forever() -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(0.1)
            client.connect(server_name())
            while not over.is_set():
                with suppress(TimeoutError):
                    client.recv(100)

    thread = threading.Thread(target=ask_forever)
    thread.start()
    for number in range(5):
        (rank.path / f"f{number}").touch()
    over.set()
    thread.join()
    return "done"


@scenario(ranks=1, timeout=2)
def forever(rank: Rank) -> None:
    """What it waits for never comes, and every now and then it looks at something else."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(0.3)
        client.connect(server_name())
        while True:
            with suppress(TimeoutError):
                client.recv(100)
            rank.path.exists()


@scenario(ranks=1, timeout=2)
def forever_in_little_bits(rank: Rank) -> None:
    """Waits for one of a pair of sockets, shorter than the supervisor takes to look, and something outside."""
    here, there = socket.socketpair()
    with here, there:
        while True:
            select.select([here], [], [], 0.008)
            os.path.exists("/nowhere")


@scenario(ranks=1)
def without_a_limit(rank: Rank) -> str:
    """A thread waits, forever if need be, for what somebody may say some time."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(server_name())
    poll = select.poll()
    poll.register(client, select.POLLIN)

    def wait() -> None:
        (rank.path / "begun").touch()
        poll.poll()

    thread = threading.Thread(target=wait)
    thread.start()
    for number in range(5):
        (rank.path / f"f{number}").touch()
    client.shutdown(socket.SHUT_RDWR)
    thread.join()
    client.close()
    return "done"
