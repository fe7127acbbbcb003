"""Facts about the sockets of this machine from ``/proc`` (proc_pid_net(5), proc_pid_fd(5))."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

_LISTENS = "0A"
_TCP, _UDP = ("tcp", "tcp6"), ("udp", "udp6")


def listens(pid: int, port: int) -> bool:
    """Return whether some process listens at a TCP port in the network namespace of a process."""
    return any(state == _LISTENS for state, _ in _at(pid, _TCP, port))


def at_port(pid: int, port: int) -> set[int]:
    """Return the inodes of the sockets at a TCP or UDP port in the namespace of a process (0: not accepted yet)."""
    return {inode for _, inode in _at(pid, _TCP + _UDP, port)}


def held_by(pid: int) -> set[int]:
    """Return the inodes of a process's sockets; none once it is gone."""
    found = set()
    with suppress(OSError):
        for each in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                kind, _, inode = os.readlink(f"/proc/{pid}/fd/{each}").partition(":")
                if kind == "socket":
                    found.add(int(inode.strip("[]")))
    return found


def _at(pid: int, tables: tuple[str, ...], port: int) -> Iterator[tuple[str, int]]:
    """Return the states and inodes of the sockets at a local port."""
    for table in tables:
        with suppress(OSError), open(f"/proc/{pid}/net/{table}", encoding="ascii") as file:
            for fields in map(str.split, file):
                if fields[1].endswith(f":{port:04X}"):
                    yield fields[3], int(fields[9])
