"""Scenarios whose ranks find one another over sockets.  Not collected by pytest."""

import socket
import threading
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
    """Who listens is a thread of the same rank."""
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
