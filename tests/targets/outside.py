"""Scenarios in which rank 0 asks somebody who is not of the run.  Not collected by pytest."""

import os
import socket

from racecheck import Rank, scenario

HOST = "127.0.0.1"


def server_name() -> str:
    """Where a process that is not of the run tells the ports of its other sockets."""
    return "\0racecheck." + ".".join(os.environ.get(f"PYTEST_XDIST_{each}", "") for each in ("TESTRUNUID", "WORKER"))


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
def of_a_rank(rank: Rank) -> str:
    """Rank 0 asks rank 1, which does something before it answers."""
    import torch
    import torch.distributed as dist

    with socket.socket(type=socket.SOCK_DGRAM) as end:
        end.bind((HOST, 0))
        port = torch.tensor([end.getsockname()[1]])
        dist.broadcast(port, src=1)
        if rank.rank == 0:
            return ask(socket.AF_INET, socket.SOCK_DGRAM, (HOST, int(port))).decode()
        (rank.path / "before").touch()
        _, who = end.recvfrom(100)
        (rank.path / "between").touch()
        end.sendto(b"answer", who)
        return ""


@scenario(ranks=2)
def of_nobody(rank: Rank) -> str:
    """Somebody is asked who never answers."""
    if rank.rank:
        (rank.path / "beside").touch()
        return ""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        client.connect(server_name())
        try:
            return client.recv(100).decode()
        except TimeoutError:
            return "no answer"
