"""Processes outside the run: a name server, a service on this machine or another one.

What such a one answers comes by itself, and when depends on how busy it is.  So a thread that asks it something, and
waits for a limited time, counts as running: no other thread continues before it.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress

from racecheck.kernel import libc, proc, sockets, syscalls
from racecheck.kernel.sleepers import Sleep
from racecheck.supervisor.calls import real_waits
from racecheck.supervisor.calls.connections import is_own, open_socket
from racecheck.supervisor.state.tasks import Process, Rank, Task

_PATIENCE, _LOOK = 5, 0.1
"""Seconds for all answers of a run; and the most that the time between two looks counts for: others may have run."""
_MOST = 64
"""The most descriptors of a poll(2) that are examined."""
_POLLFD = struct.Struct("ihh")
_POLLS = {syscalls.number(name, libc.MACHINE) for name in ("poll", "ppoll")}
_INTERNET, _SYN_SENT = {socket.AF_INET, socket.AF_INET6}, 2
_CREDENTIALS = struct.Struct("iII")


class OutsideServices:
    """The peers that the ranks of a run have connected to; ``timeout`` is the world's, in seconds."""

    def __init__(self, ranks: Sequence[Rank], timeout: float) -> None:
        self._ranks = ranks
        self._known: dict[Task, tuple[bytes, bool]] = {}
        self._left, self._looked = min(_PATIENCE, timeout / 2), 0.0
        self._waiting: set[tuple[Task, bytes]] = set()

    def is_awaited(self, sleep: Sleep) -> bool:
        """Return whether one of the program's threads that ``sleep`` waits for an answer, with time left.

        How long it has slept is not known: its limit counts from when it was last released.
        """
        known = {tid: task for rank in self._ranks if rank.past.connects for tid, task in rank.tasks.items()}
        waiting = {(known[tid], ran) for tid, ran in sleep if tid in known and self._waits(known[tid], ran)}
        for task, _ in waiting:
            now, ends = time.monotonic_ns(), real_waits.deadline(task)
            task.deadline = task.deadline or (ends and ends - now + (task.released or now))
        last, self._looked = self._looked, time.monotonic()
        if not waiting.isdisjoint(self._waiting):
            self._left -= min(_LOOK, self._looked - last)
        self._waiting = waiting
        return bool(waiting) and self._left > 0

    def _waits(self, task: Task, ran: bytes) -> bool:
        """Return whether a thread waits for an answer; ``ran`` is a value that changes whenever the thread runs."""
        if task not in self._known or self._known[task][0] != ran:
            with suppress(OSError):
                self._known[task] = ran, any(self._is_outside(task.process, each) for each in _awaited(task))
        return self._known.get(task) == (ran, True)

    def _is_outside(self, process: Process, descriptor: int) -> bool:
        if not os.readlink(f"/proc/{process.pid}/fd/{descriptor}").startswith("socket:"):
            return False
        end = open_socket(process.descriptors.fetch(descriptor))
        if end is None:
            return False
        with end:
            return leads_out(end, process.pid, processes(self._ranks))


def processes(ranks: Sequence[Rank]) -> set[int]:
    """Return all processes of some ranks, also those whose parents have ended."""
    known = {each for rank in ranks for each in (rank.pid, *rank.processes)}
    return known.union(*map(proc.descendants, known))


def _awaited(task: Task) -> list[int]:
    """Return the descriptors that a thread polls for a while."""
    call = proc.stopped_call(task.process.pid, task.tid)
    if call is None or call[0] not in _POLLS or not real_waits.deadline(task):
        return []
    entries = task.process.memory.read(call[1][0], min(call[1][1], _MOST) * _POLLFD.size)
    return [descriptor for descriptor, _, _ in _POLLFD.iter_unpack(entries) if descriptor >= 0]


def leads_out(end: socket.socket, pid: int, pids: set[int]) -> bool:
    """Return whether none of these processes is at the other end of a connection; ``pid`` is where it is held.

    What has no name at the other end is one of a pair, or has not been connected (nor are datagrams on this machine
    told apart but by their ports).
    """
    try:
        peer = end.getpeername()
    except OSError:
        return end.family in _INTERNET and end.type == socket.SOCK_STREAM and _is_under_way(end)
    if end.family in _INTERNET:
        if not is_own(end.family, socket.inet_pton(end.family, peer[0].partition("%")[0])):
            return True
        return sockets.at_port(pid, peer[1]).isdisjoint(set().union(*map(sockets.held_by, pids)))
    if end.family != socket.AF_UNIX or end.type == socket.SOCK_DGRAM or not peer:
        return False
    found, _, _ = _CREDENTIALS.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return found not in pids


def _is_under_way(end: socket.socket) -> bool:
    """Return whether a connect to a peer is still unanswered (tcp(7))."""
    return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _SYN_SENT
