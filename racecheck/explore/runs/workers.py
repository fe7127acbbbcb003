"""Processes that make runs while this one makes others.

A worker is a process and no thread: umask, limits, the working directory and the mount namespace that covers the
machine's files belong to a process.  It has a guardian, a slot and a zygote of its own.  It starts when it is needed,
or, because it covers the machine's files itself, before this process does: then it is a Python that imports nothing and
waits, which costs little.

The workers of a Ray cluster are processes of its nodes.  One process here, the relay, has a channel for each of them
(`racecheck.frontends.cluster`): Ray has many threads, with which no process can cover its files.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from racecheck.explore.runs import frames
from racecheck.model.config import Config

_MAIN = (
    "import socket, sys; channel = socket.socket(fileno=int(sys.argv[1]));"
    "channel.recv(1, socket.MSG_PEEK) or sys.exit();"
    "import json; sys.path[:] = json.loads(sys.argv[2]);"
    "from racecheck.frontends.worker import main; main(channel)"
)
_RELAY = (
    "import select, socket, sys; channels = [socket.socket(fileno=int(each)) for each in sys.argv[3:]];"
    "ready = select.select(channels, [], [])[0]; any(each.recv(1, socket.MSG_PEEK) for each in ready) or sys.exit();"
    "import json; sys.path[:] = json.loads(sys.argv[2]);"
    "from racecheck.frontends.cluster import main; main(sys.argv[1], channels)"
)
_LEAVES = 10.0
"""Seconds that a worker has to end its session, before it is killed: then its guardian does that."""
_MOST = 63
"""The most workers: no more runs than that are known before their turn."""
_LONGEST = 3600.0
"""The longest single wait, in seconds."""
_AHEAD = 2
"""Tasks that a worker has: the one that it carries out, and the next."""


@dataclass(slots=True, eq=False)
class Worker:
    """A worker process; ``tickets`` are those of its tasks."""

    process: subprocess.Popen[bytes] | None
    """None if it is a cluster's."""
    channel: socket.socket
    is_open: bool = False
    """It was told what to run."""
    is_ready: bool = False
    unsent: bytes = b""
    """It may be about to send a large result itself, so it is no use to wait until it reads."""
    tickets: list[int] = field(default_factory=list)

    @property
    def is_free(self) -> bool:
        return self.is_ready and len(self.tickets) < _AHEAD


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """The result of a task, or that its worker is gone; the ticket is that of `Workers.give`."""

    ticket: int
    value: Any
    is_lost: bool = False


class Workers:
    """``count`` workers, on this machine or in the Ray cluster with an address; ``lost`` says why some are not used."""

    def __init__(self, count: int, cluster: str = "") -> None:
        self._due, self._cluster = min(count, _MOST), cluster
        self._relay: subprocess.Popen[bytes] | None = None
        self._all: list[Worker] = []
        self.lost: list[str] = []
        self._tickets = itertools.count()

    def __len__(self) -> int:
        return self._due + len(self._all)

    @property
    def most(self) -> int:
        """Return how many tasks the workers have at most."""
        return len(self) * _AHEAD

    def start(self) -> None:
        """Start the processes, before this one covers its files."""
        count, self._due = self._due, 0
        try:
            if self._cluster and count:
                self._relay, self._all = _relayed(self._cluster, count)
            else:
                for _ in range(count):
                    self._all.append(_started())
        except OSError as error:  # the workers that have started are enough
            self.lost.append(str(error))

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [each.pid for each in (self._relay, *(each.process for each in self._all)) if each is not None]

    def open(self, settings: Config, target: str) -> None:
        """Have all workers start sessions for a target, if they have not; returns at once."""
        self.start()
        for each in [each for each in self._all if not each.is_open]:
            each.is_open = True
            self._send(each, ("open", sys.path, settings, target))

    def free(self) -> Iterator[Worker]:
        """Return the workers that take a task, the idle ones first."""
        return iter(sorted((each for each in self._all if each.is_free), key=lambda each: len(each.tickets)))

    def give(self, worker: Worker, task: bytes) -> int:
        """Send a task, pickled, to a worker that is free; return its ticket."""
        ticket = next(self._tickets)
        worker.tickets.append(ticket)
        self._send(worker, ("task", ticket, task))
        return ticket

    def answers(self, seconds: float) -> list[WorkerAnswer]:
        """Return the results that are there; if there is none, wait for one, ``seconds`` at most."""
        found: list[WorkerAnswer] = []
        until = time.monotonic() + seconds
        while True:
            channels = {each.channel: each for each in self._all if each.is_open}
            unsent = [each.channel for each in self._all if each.unsent]
            left = 0.0 if found or not any(each.tickets for each in self._all) else until - time.monotonic()
            ready, able, _ = select.select([*channels], unsent, [], min(max(0.0, left), _LONGEST))
            if not ready and not able and left <= _LONGEST:
                return found
            for each in able:
                _flush(channels[each])
            for each in ready:
                found += self._answer(channels[each])

    def _answer(self, worker: Worker) -> list[WorkerAnswer]:
        try:
            what, *rest = frames.receive(worker.channel)
        except EOFError:
            what, rest = "failed", ["it was killed, or ran out of memory"]
        if what == "ready":
            worker.is_ready = True
        elif what == "done":
            worker.tickets.remove(rest[0])
            return [WorkerAnswer(*rest)]
        else:
            self._all.remove(worker)
            self.lost.append(rest[0])
            _end([worker])
            return [WorkerAnswer(ticket, None, is_lost=True) for ticket in worker.tickets]
        return []

    def _send(self, worker: Worker, message: Sequence[object]) -> None:
        worker.unsent += frames.frame(message)
        _flush(worker)

    def close(self) -> None:
        """End the workers and all that they have started."""
        workers, self._all, self._due = self._all, [], 0
        _end(workers)
        if self._relay is not None:
            _wait(self._relay)

    def __enter__(self) -> Workers:  # noqa: PYI034  (Self is not there in Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _flush(worker: Worker) -> None:
    """Send what a worker takes without a wait."""
    try:
        while worker.unsent:
            worker.unsent = worker.unsent[worker.channel.send(worker.unsent, socket.MSG_DONTWAIT) :]
    except BlockingIOError:
        return
    except OSError:  # its next answer says that it is gone
        worker.unsent = b""


def _started() -> Worker:
    ours, theirs = socket.socketpair()
    with theirs:
        return Worker(started(theirs), ours)


def started(channel: socket.socket) -> subprocess.Popen[bytes]:
    """Start a worker process that has this channel; raises `OSError`."""
    return _python(_MAIN, [str(channel.fileno()), _path()], [channel])


def _relayed(cluster: str, count: int) -> tuple[subprocess.Popen[bytes], list[Worker]]:
    """Start the relay to the workers of a cluster, and return it and these workers."""
    pairs = [socket.socketpair() for _ in range(count)]
    theirs = [each for _, each in pairs]
    try:
        relay = _python(_RELAY, [cluster, _path(), *(str(each.fileno()) for each in theirs)], theirs)
    finally:
        for each in theirs:
            each.close()
    return relay, [Worker(None, ours) for ours, _ in pairs]


def _path() -> str:
    return json.dumps([each or os.getcwd() for each in sys.path])


def _python(code: str, words: Sequence[str], channels: Sequence[socket.socket]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        pass_fds=[each.fileno() for each in channels], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def _end(workers: Sequence[Worker]) -> None:
    processes = [each.process for each in workers if each.process is not None]
    for each in workers:
        each.channel.close()
    for process in processes:
        process.terminate()
    for process in processes:
        _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_LEAVES)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
