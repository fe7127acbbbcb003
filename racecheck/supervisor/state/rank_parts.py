"""The parts of a rank that know no thread: its connection to us, whether it runs, how it ended, what it has done."""

from __future__ import annotations

import enum
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from racecheck.kernel.seccomp import Listener
from racecheck.model.nouns import Died, RankResult, Returned, Weights
from racecheck.model.vector_clock import Clock


class Phase(enum.Enum):
    """Whether a rank's processes may run, as far as is known."""

    RUNS = enum.auto()
    """A thread may run, and is waited for."""
    DOZES = enum.auto()
    """It slept when the world was last quiet, and may have woken since: it is waited for."""
    SLEEPS = enum.auto()
    """The kernel says that it sleeps, in a wait that we do not know."""
    STILL = enum.auto()
    """Each thread is stopped, or has ended."""

    @property
    def is_awaited(self) -> bool:
        return self in _AWAITED

    @property
    def is_asleep(self) -> bool:
        """Whether it slept when it was last looked at, and nothing has been heard of it since."""
        return self in _ASLEEP


_AWAITED = frozenset({Phase.RUNS, Phase.DOZES})
_ASLEEP = frozenset({Phase.DOZES, Phase.SLEEPS})
_STIRRED = {Phase.STILL: Phase.RUNS, Phase.SLEEPS: Phase.DOZES}


def stirred(phase: Phase) -> Phase:
    """Return the phase of a rank after something that may have woken it."""
    return _STIRRED.get(phase, phase)


@dataclass(slots=True)
class Wire:
    """The connection to a rank's main process."""

    channel: socket.socket
    listener: Listener | None = None
    stack_pipe: int = -1
    _received: bytes = b""

    def lines(self) -> Iterator[bytes]:
        """Return whole lines that the rank has sent since the last call."""
        with suppress(BlockingIOError, ConnectionError):
            while data := self.channel.recv(1 << 16, socket.MSG_DONTWAIT):
                self._received += data
        while b"\n" in self._received:
            line, _, self._received = self._received.partition(b"\n")
            yield line

    def close(self) -> None:
        self.channel.close()
        if self.listener is not None:
            self.listener.close()
        if self.stack_pipe >= 0:
            os.close(self.stack_pipe)


@dataclass(slots=True)
class RankEnd:
    """The end of a rank's main process, and the words with which it said how it would end."""

    is_program: bool = False
    """It runs a program, not a function: an end with status 0 is no failure."""
    is_over: bool = False
    is_due: bool = False
    """The process has been told to end."""
    status: int = 0
    """Its exit status, negative for a signal."""
    clock: Clock = field(default_factory=dict)
    """Its main thread's clock then."""
    result: RankResult | None = None
    lost: RankResult | None = None
    """The exception that ended one of its threads, if nobody handled it."""
    modules: list[str] = field(default_factory=list)
    weights: list[Weights] = field(default_factory=list)

    def note(self, status: int) -> None:
        """Note the end of the process.  What it reported before decides, unless its end says otherwise."""
        self.is_over, self.status = True, status
        if self.result is None and self.is_program and status == 0:
            self.result = Returned()
        elif self.result is None or (isinstance(self.result, Returned) and status != 0):
            self.result = Died(status=max(status, 0), signal=signal_name(-status) if status < 0 else "")


@dataclass(slots=True)
class RankPast:
    """The deeds of a rank that make it harder to follow."""

    forked: bool = False
    """It has started a process."""
    shared: bool = False
    """It has, or has had, several threads or processes, which share its memory."""
    replaced: bool = False
    """Its main process has executed another program."""
    alarmed: bool = False
    """It has armed a timer of the kernel's."""
    connects: bool = False
    """It has connected a socket."""
    kills: bool = False
    """One of its processes has just sent or got a signal."""
    credentials: tuple[str, ...] = ()
    """Its credentials before the first call that changes some; empty without such a call."""


def signal_name(number: int) -> str:
    """Return "SIGKILL" for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
