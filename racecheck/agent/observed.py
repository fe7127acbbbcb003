"""A rank that a real launcher has started: it runs as it would without racecheck, but its file calls are seen."""

from __future__ import annotations

import os
import socket

from racecheck.kernel import capabilities, seccomp


def join(place: str, scratch: str, rank: str) -> None:
    """Hand the calls of this process, a ``rank``, to the racecheck that listens on the socket ``place``.

    Then its script starts.

    ``scratch`` has a TMPDIR for each node, of which there is one.
    """
    os.environ["TMPDIR"] = f"{scratch}/0"
    if os.geteuid() == 0:
        capabilities.give_up_mounting()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as talk:
        talk.connect(place)
        listener = seccomp.install()
        seccomp.hand_over(talk, f"[{rank}, {os.getpid()}]".encode(), [listener])
        os.close(listener)
        talk.recv(1)
