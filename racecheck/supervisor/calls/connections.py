"""Connections to this machine: made one at a time, when the world is quiet and a process listens.

Otherwise the speed of the machine would decide which of two comes first, and whether one that comes before there is
anybody to listen is refused, and tries again after a time that it draws.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Mapping
from dataclasses import replace

from racecheck.kernel import sockets
from racecheck.supervisor.state.decoder import signed
from racecheck.supervisor.state.tasks import Request

_BIND_ADDRESS_NO_PORT = 24
"""From ip(7); `socket` has no name for it before Python 3.12."""
_ADDRESSES: Mapping[int, slice] = {socket.AF_INET: slice(4, 8), socket.AF_INET6: slice(8, 24)}
"""Where a ``struct sockaddr_in`` or ``sockaddr_in6`` has the address (ip(7), ipv6(7)); the port is before it."""


def is_here(request: Request) -> bool:
    """Return whether a connect(2) is for TCP on this machine; its op then shows the port.

    Raises `OSError` if its memory cannot be read, or its socket not be shared.
    """
    process = request.task.process
    length = min(28, max(0, request.op.args["length"]))
    address = process.memory.read(request.arguments[1], length)
    family = struct.unpack_from("H", address)[0] if length > 2 else 0
    if family not in _ADDRESSES or length < _ADDRESSES[family].stop:
        return False
    if not is_stream(process.descriptors.fetch(signed(request.arguments[0]))):
        return False
    request.op = replace(request.op, args={"port": struct.unpack_from("!H", address, 2)[0]})
    return is_own(family, address[_ADDRESSES[family]])


def is_stream(descriptor: int) -> bool:
    """Return whether a socket is TCP; closes it."""
    found = open_socket(descriptor)
    if found is None:
        return False
    with found:
        return found.type == socket.SOCK_STREAM


def open_socket(descriptor: int) -> socket.socket | None:
    """Return the socket behind a duplicate of a rank's descriptor; for anything else close it and return None.

    Python would set O_NONBLOCK on a socket with a default time limit, and so on the rank's.
    """
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    limit = socket.getdefaulttimeout()
    socket.setdefaulttimeout(None)
    try:
        return socket.socket(fileno=descriptor)
    finally:
        socket.setdefaulttimeout(limit)


def is_own(family: int, address: bytes) -> bool:
    """Return whether an address is one of this machine's: only those can be bound to (no port is taken for that)."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
            probe.bind((str(ipaddress.ip_address(address)), 0))
        except OSError:
            return False
    return True


def is_awaited(request: Request) -> bool:
    """Return whether a process listens where a held call wants to connect to."""
    return sockets.listens(request.task.process.pid, request.op.args["port"])
