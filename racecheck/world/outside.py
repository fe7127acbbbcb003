"""Who is not of the run: a name server, a service on this machine or another.

What such a one answers comes by itself, and when depends on how busy it is.  So a thread that waits for that counts as
running: nobody else goes on before.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from collections.abc import Sequence
from contextlib import suppress

from racecheck.kernel import libc, proc, sockets, syscalls
from racecheck.world.connecting import is_own
from racecheck.world.tasks import Process, Rank, Task

_PATIENCE = 10
"""Seconds for an answer."""
_MOST = 64
"""Descriptors in a poll(2) that are looked at."""
_POLLFD = struct.Struct("ihh")
_POLLS = {syscalls.number(name, libc.MACHINE) for name in ("poll", "ppoll")}
_RECEIVES = {syscalls.number(name, libc.MACHINE) for name in ("read", "recvfrom", "recvmsg", "connect")}
_INTERNET, _SYN_SENT = {socket.AF_INET, socket.AF_INET6}, 2
_CREDENTIALS = struct.Struct("iII")


class Outside:
    """Whom the ranks of a run have connected to."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self._ranks = ranks
        self._known: dict[str, bool] = {}
        self._waiting: list[tuple[Task, bytes]] = []
        self._since = 0.0

    def who_waits(self, sleep: proc.Sleep) -> list[Task]:
        """The threads of the program's among those that ``sleep`` that wait for an answer, and not for long yet."""
        known = {tid: task for rank in self._ranks if rank.connects for tid, task in rank.tasks.items()}
        waiting = [(known[tid], ran) for tid, ran in sleep if tid in known and self._waits(known[tid])]
        if waiting != self._waiting:
            self._waiting, self._since = waiting, time.monotonic()
        return [task for task, _ in waiting] if time.monotonic() < self._since + _PATIENCE else []

    def _waits(self, task: Task) -> bool:
        with suppress(OSError):
            return any(self._is_outside(task.process, each) for each in _awaited(task.process, task.tid))
        return False

    def _is_outside(self, process: Process, descriptor: int) -> bool:
        link = os.readlink(f"/proc/{process.pid}/fd/{descriptor}")
        if not link.startswith("socket:"):
            return False
        if link not in self._known:
            copy = process.descriptors.fetch(descriptor)
            if not stat.S_ISSOCK(os.fstat(copy).st_mode):
                os.close(copy)
                return False
            with socket.socket(fileno=copy) as end:
                self._known[link] = self._leads_out(end, process.pid)
        return self._known[link]

    def _leads_out(self, end: socket.socket, pid: int) -> bool:
        """Whether no process of the run is at the other end of a connection; ``pid`` is where it is held."""
        try:
            peer = end.getpeername()
        except OSError:
            return end.family in _INTERNET and end.type == socket.SOCK_STREAM and _is_under_way(end)
        pids = [each for rank in self._ranks if not rank.gone for each in (rank.pid, *proc.descendants(rank.pid))]
        if end.family == socket.AF_UNIX:
            found, _, _ = _CREDENTIALS.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            return found not in pids
        if end.family not in _INTERNET:
            return False
        if not is_own(end.family, socket.inet_pton(end.family, peer[0].partition("%")[0])):
            return True
        return sockets.at_port(pid, peer[1]).isdisjoint(set().union(*map(sockets.held_by, pids)))


def _awaited(process: Process, tid: int) -> list[int]:
    """The descriptors that a thread waits for, as far as that is for something to come in."""
    call = proc.stopped_call(process.pid, tid)
    if call is None or call[0] not in _POLLS | _RECEIVES:
        return []
    number, arguments = call
    if number in _RECEIVES:
        return [arguments[0]]
    entries = process.memory.read(arguments[0], min(arguments[1], _MOST) * _POLLFD.size)
    return [descriptor for descriptor, _, _ in _POLLFD.iter_unpack(entries) if descriptor >= 0]


def _is_under_way(end: socket.socket) -> bool:
    """Whether somebody is being connected to who has not answered yet (tcp(7))."""
    return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _SYN_SENT
