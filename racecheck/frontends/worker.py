"""A worker: a process that carries out tasks for another one (`racecheck.explore.runs.workers`)."""

from __future__ import annotations

import pickle
import signal
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from racecheck.explore.runs import frames
from racecheck.frontends import launching
from racecheck.frontends.interrupts import as_interrupt
from racecheck.kernel import libc
from racecheck.scheduling.strategies import Diverged
from racecheck.targets import resolve

if TYPE_CHECKING:
    from racecheck.explore.runs.tasks import Task
    from racecheck.sessions.session import Session

_PR_SET_PDEATHSIG = 1


def main(channel: socket.socket) -> None:
    """Carry out the tasks that come, until the channel is closed.

    An error ends this process, and is its last answer: the other process continues without it.
    """
    with suppress(KeyboardInterrupt, EOFError, OSError), as_interrupt(signal.SIGTERM):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        _, sys.path[:], settings, target = frames.receive(channel)
        try:
            with launching.starting_of(resolve.load(target), settings) as starting, starting.lent() as session:
                channel.sendall(frames.frame(("ready",)))
                while True:
                    _, ticket, task = frames.receive(channel)
                    channel.sendall(frames.frame(("done", ticket, _carried_out(session, task))))
        except (Exception, Diverged) as error:  # noqa: BLE001  (the other process does the task itself)
            channel.sendall(frames.frame(("failed", f"{type(error).__name__}: {error}")))


def _carried_out(session: Session, pickled: bytes) -> object:
    task: Task[object] = pickle.loads(pickled)  # noqa: S301  (the process that has started this one has pickled it)
    return task.run(session)
