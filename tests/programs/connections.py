"""Scenarios whose ranks find one another over sockets.  What is slept takes virtual time.  Not collected by pytest."""

import errno
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from racecheck import Rank, scenario

HOST = "127.0.0.1"


@contextmanager
def bound(rank: Rank) -> Iterator[tuple[socket.socket, int]]:
    """A socket of rank 0 that has an address and does not listen yet, and the port as all ranks know it."""
    with socket.socket() as server:
        server.bind((HOST, 0))
        port = torch.tensor([server.getsockname()[1] if rank.rank == 0 else 0])
        dist.broadcast(port, src=0)
        yield server, int(port)


def connect(port: int, says: bytes = b"") -> str:
    with socket.socket() as client:
        try:
            client.connect((HOST, port))
        except ConnectionRefusedError:
            return "refused"
        client.sendall(says)
    return "taken"


@scenario(ranks=2)
def too_early(rank: Rank) -> str:
    """Rank 1 connects at once, rank 0 listens when it has written some files."""
    with bound(rank) as (server, port):
        if rank.rank:
            (rank.path / "first").touch()
            said = connect(port)
            assert said == "taken"
            return said
        for number in range(3):
            (rank.path / f"f{number}").touch()
        server.listen()
        server.accept()[0].close()
        return "took one"


@scenario(ranks=2)
def nobody(rank: Rank) -> str:
    """Rank 0 never listens, and both go on."""
    with bound(rank) as (_, port):
        if rank.rank:
            said = connect(port)
            (rank.path / "refused").touch()
            return said
        (rank.path / "beside").touch()
        return "never listens"


@scenario(ranks=4)
def one_after_the_other(rank: Rank) -> str:
    """Three connect, of whom the first takes the longest to get there."""
    with bound(rank) as (server, port):
        if rank.rank:
            sum(range((4 - rank.rank) * 3_000_000))
            connect(port, b"%d" % rank.rank)
            return ""
        server.listen()
        return "".join(server.accept()[0].recv(1).decode() for _ in range(3))


@scenario(ranks=1)
def two_threads(rank: Rank) -> list[str]:
    """The listener is a thread of the same rank."""
    with bound(rank) as (server, port):
        taken: list[str] = []

        def serve() -> None:
            (rank.path / "serves").touch()
            server.listen()
            taken.append(server.accept()[0].recv(1).decode())

        thread = threading.Thread(target=serve)
        thread.start()
        taken.append(connect(port, b"x"))
        thread.join()
        return sorted(taken)


@scenario(ranks=2)
def no_connection(rank: Rank) -> None:
    """Rank 0 connects a socket for which nobody has to listen, of UDP."""
    with bound(rank) as (_, port):
        if rank.rank == 0:
            with socket.socket(type=socket.SOCK_DGRAM) as client:
                client.connect((HOST, port))
        (rank.path / f"f{rank.rank}").touch()
        (rank.path / f"g{rank.rank}").touch()


@scenario(ranks=1)
def nobody_beside_a_monitor(rank: Rank) -> list[str]:
    """A thread that waits again and again for a second is no reason not to be refused."""
    over = threading.Event()

    def monitor() -> None:
        while not over.wait(1):
            pass

    thread = threading.Thread(target=monitor)
    thread.start()
    with bound(rank) as (_, port):
        said = connect(port)
    over.set()
    thread.join()
    return [said]


@scenario(ranks=2)
def nobody_beside_a_poller(rank: Rank) -> str:
    """Rank 1 polls, in virtual time, for what rank 0 does when it has been refused."""
    done = rank.path / "done"
    with bound(rank) as (_, port):
        if rank.rank == 0:
            said = connect(port)
            done.touch()
            return said
        while not done.exists():
            time.sleep(0.5)
        return "done"


@scenario(ranks=2)
def without_waiting(rank: Rank) -> list[bool]:
    """Rank 1 connects a socket that does not block, by IPv6 if there is that, and waits until it may write."""
    with bound(rank) as (server, port):
        if rank.rank == 0:
            (rank.path / "first").touch()
            server.listen()
            server.accept()[0].close()
            return []
        with socket.socket(socket.AF_INET6 if _has_ipv6() else socket.AF_INET) as client:
            client.setblocking(False)
            begun = client.connect_ex((f"::ffff:{HOST}" if _has_ipv6() else HOST, port)) in {0, errno.EINPROGRESS}
            select.select([], [client], [])
            return [begun, client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0]


def _has_ipv6() -> bool:
    try:
        socket.socket(socket.AF_INET6).close()
    except OSError:
        return False
    return True


@scenario(ranks=2)
def selects_behind_a_collective(rank: Rank) -> str:
    """A thread that waits for a descriptor, as soon as it is out of a broadcast, does not wait for that any more."""
    ends = socket.socketpair()
    with bound(rank):
        if rank.rank == 0:
            select.select([ends[0]], [], [], 0.3)
    return "over"
