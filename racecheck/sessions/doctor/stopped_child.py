"""A process under the filter, as a rank is, for the doctor's probes."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from racecheck.agent.job import STACK_SIGNAL
from racecheck.kernel import libc, seccomp

_PR_SET_PDEATHSIG = 1


class LackingError(Exception):
    """The machine lacks something."""


@dataclass(frozen=True, slots=True)
class StoppedSubject:
    """A child with the filter on, stopped in its first call, which has not been received yet."""

    pid: int
    listener: seccomp.Listener
    stack_pipe: int

    def receive(self) -> seccomp.Notification:
        """Return the call that it is stopped in; raises `LackingError`."""
        if not readable(self.listener.descriptor):
            raise LackingError("the filter did not report a call")
        found = self.listener.receive()
        if found is None:
            raise LackingError("a reported call vanished before it was received")
        return found

    def status(self) -> int:
        """Let it run to its end; returns its exit status."""
        while True:
            if self._pass_on():
                continue
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)

    def _pass_on(self) -> bool:
        if not readable(self.listener.descriptor, 10):
            return False
        found = self.listener.receive()
        return found is not None and self.listener.carry_on(found.id)


@contextmanager
def stopped(act: Callable[[], int]) -> Iterator[StoppedSubject]:
    """Start a child that puts the filter on and ends with the status that ``act`` returns."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        leave(lambda: _be_subject(theirs, act))
    theirs.close()
    try:
        data, received, _, _ = socket.recv_fds(ours, 200, 2)
        if len(received) != 2:
            raise LackingError(data.decode() or "a filter with a listener could not be installed")
        yield StoppedSubject(pid, seccomp.Listener(received[0]), received[1])
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _be_subject(channel: socket.socket, act: Callable[[], int]) -> int:
    reading, writing = os.pipe()
    faulthandler.register(STACK_SIGNAL, file=writing, all_threads=False, chain=False)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        listener = seccomp.install()
    except OSError as error:
        channel.send(f"seccomp(2): {error.strerror}".encode())
        return 1
    seccomp.hand_over(channel, b"\n", [listener, reading])
    return act()


def leave(function: Callable[[], int]) -> None:
    """Run a function in a forked child, which ends with the function's status, and with its parent at the latest."""
    status = 70
    try:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(2, 1)
        status = function()
    finally:
        os._exit(status)


def expect(held: bool, otherwise: str) -> None:
    """Raise `LackingError` with the message ``otherwise`` unless the condition holds."""
    if not held:
        raise LackingError(otherwise)


def readable(descriptor: int, milliseconds: int = 5000) -> bool:
    """Return whether there is something to read, now or soon."""
    watch = select.poll()
    watch.register(descriptor, select.POLLIN)
    return any(event & select.POLLIN for _, event in watch.poll(milliseconds))
