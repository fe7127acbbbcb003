"""Messages between this process and its workers: pickles, each after its length.

They go over a pair of sockets that only these two processes have; nothing else is unpickled.
The workers of a cluster are on machines of the cluster that the user has named.
"""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("<Q")


def frame(message: object) -> bytes:
    """Return a message as it is sent."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


def receive(channel: socket.socket) -> Any:
    """Return the next message; raises `EOFError` if there will be none."""
    return message(received(channel))


def received(channel: socket.socket) -> bytes:
    """Return the next message as it was sent; raises `EOFError` if there will be none."""
    start = _exactly(channel, _LENGTH.size)
    (length,) = _LENGTH.unpack(start)
    return bytes(start + _exactly(channel, length))


def message(data: bytes) -> Any:
    """Return a message that was received."""
    return pickle.loads(memoryview(data)[_LENGTH.size :])  # noqa: S301  (racecheck sent it: here, or on the cluster that was named)


def _exactly(channel: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view = memoryview(data)
    done = 0
    while done < length:
        try:
            got = channel.recv_into(view[done:])
        except ConnectionError:
            got = 0
        if not got:
            raise EOFError
        done += got
    return data
