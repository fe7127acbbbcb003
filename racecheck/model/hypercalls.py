"""Hypercalls: messages of the code inside a rank to the supervisor, since system calls alone do not show it.

A hypercall is a system call whose number no kernel has (`racecheck.kernel.seccomp.HYPERCALL`), with a message in the
rank's memory.  The thread stops in it like in any other call, until it is answered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

Stack = Sequence[tuple[str, int, str]]
"""File, line and function, the innermost frame first."""


@dataclass(frozen=True, slots=True)
class Hypercall:
    """``stack`` is where the program is, if a report may show it."""

    stack: Stack = field(default=(), kw_only=True)


# Answered at once, whatever other threads do: the thread keeps the GIL meanwhile.


@dataclass(frozen=True, slots=True)
class AtOnce(Hypercall):
    """Concerns the calling thread alone, or is only noted."""


@dataclass(frozen=True, slots=True)
class Note(AtOnce):
    """A note for the report."""

    text: str


@dataclass(frozen=True, slots=True)
class Usage(AtOnce):
    """The program has done something that cannot be controlled: the run ends, with this text as a usage error."""

    text: str


@dataclass(frozen=True, slots=True)
class Looks(AtOnce):
    """The program looks ``at`` something whose other answers are not tried: a key of `UNTRIED_LOOKS`."""

    at: str


UNTRIED_LOOKS: Mapping[str, str] = {
    "collective": "other answers about a collective that a rank does not wait for",
    "directory": "other sizes or link counts of a directory",
    "inherited": "memory, pipes or sockets that ranks inherit from the process that forks them",
    "last read": "other access times of a file",
    "process": "other answers about whether a process has ended",
}
"""The gap of each such look."""


@dataclass(frozen=True, slots=True)
class LooksAtClock(AtOnce):
    """``of_day``: the clock tells the time of day."""

    of_day: bool


@dataclass(frozen=True, slots=True)
class LooksAtTime(AtOnce):
    """The program looks at a time of a file, in nanoseconds since the run began."""

    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Sleeps(AtOnce):
    """The thread is about to sleep, with this digest of the values that its functions hold."""

    state: str


@dataclass(frozen=True, slots=True)
class Limit(AtOnce):
    """The thread is about to wait for at most this long."""

    nanoseconds: int


@dataclass(frozen=True, slots=True)
class MakesGroup(AtOnce):
    """The thread ``begins`` to make a process group, or has made it: gloo binds and connects, with retries."""

    group: str
    begins: bool


@dataclass(frozen=True, slots=True)
class StartsChild(AtOnce):
    """The thread is about to start another thread or a process."""


@dataclass(frozen=True, slots=True)
class Submit(AtOnce):
    """The thread gives work to a pool; the answer is the name of the work."""


@dataclass(frozen=True, slots=True)
class ThreadFailed(AtOnce):
    """An exception that nobody handles has ended a thread: a `Raised` as the agent sends it."""

    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ObservedWeights(AtOnce):
    """Weights that a program has saved or loaded: the fields of `Weights` but rank and event."""

    said: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ObservedStep(AtOnce):
    """A program is about to take a step of its training: the fields of `TrainingStep` but rank."""

    said: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BecomeParent(AtOnce):
    """This rank starts the others."""


# Ops in a rank with several threads; else answered when all is quiet.


@dataclass(frozen=True, slots=True)
class AmongThreads(Hypercall):
    """An op of the given ``family`` and ``name``, in a rank that has, or has had, several threads or processes."""

    family: ClassVar[str]
    name: ClassVar[str]


@dataclass(frozen=True, slots=True)
class BeginThread(AmongThreads):
    """The thread is new."""

    family, name = "begin", "thread"


@dataclass(frozen=True, slots=True)
class BeginProcess(AmongThreads):
    """The process is new."""

    family, name = "begin", "begun"


@dataclass(frozen=True, slots=True)
class BeginItem(AmongThreads):
    """The thread works on an item that was given to its pool."""

    family, name = "begin", "item"
    item: str | None


@dataclass(frozen=True, slots=True)
class EndThread(AmongThreads):
    """The thread has nothing left to do."""

    family, name = "end", "end of thread"


@dataclass(frozen=True, slots=True)
class EndItem(AmongThreads):
    """The thread has done an item of its pool."""

    family, name = "end", "end of item"


@dataclass(frozen=True, slots=True)
class StartedChild(AmongThreads):
    """The thread has started another thread or a process."""

    family, name = "start", "started"


@dataclass(frozen=True, slots=True)
class Submitted(AmongThreads):
    """The thread has given work to a pool."""

    family, name = "start", "submitted"


@dataclass(frozen=True, slots=True)
class Poll(AmongThreads):
    """The thread asks something about another one without waiting, by this method."""

    family, name = "poll", "poll"
    at: str


@dataclass(frozen=True, slots=True)
class Left(AmongThreads):
    """The thread has left a collective."""

    family, name = "leave", "left"
    ticket: int


@dataclass(frozen=True, slots=True)
class Declare(AmongThreads):
    """The scenario says which weights it has saved or loaded: the fields of `Weights` but rank and event."""

    family, name = "tell", "weights"
    said: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shutdown(AmongThreads):
    """The thread is about to shut a process group down."""

    family, name = "shutdown", "shutdown"
    group: str


@dataclass(frozen=True, slots=True)
class Finalise(AmongThreads):
    """The interpreter ends: from here on daemon threads run no Python code any more."""

    family, name = "finalise", "finalise"


# Those that depend on other ranks.


@dataclass(frozen=True, slots=True)
class Ready(Hypercall):
    """The rank is ready for its function or program."""


@dataclass(frozen=True, slots=True)
class Exit(Hypercall):
    """The rank has nothing left to do but to end."""


@dataclass(frozen=True, slots=True)
class Issue(Hypercall):
    """A part of a collective.

    ``signature`` has to be the same on all ranks.  ``python``: not issued by C++.  ``patience`` is how long the group
    waits for the others, in nanoseconds.  ``root`` and ``peer`` are ranks, -1 for none.
    """

    kind: str
    group: str
    ranks: Sequence[int]
    signature: str
    python: bool
    patience: int
    root: int = -1
    peer: int = -1
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Wait(Hypercall):
    """The thread waits for a collective.

    ``leaves``: once all ranks have issued their parts it leaves by itself.  ``limit`` is the program's own, in
    nanoseconds, 0 for none; ``gives_up``: the group's limit holds, too.
    """

    ticket: int
    leaves: bool = False
    limit: int = 0
    gives_up: bool = False


@dataclass(frozen=True, slots=True)
class AskComplete(Hypercall):
    """The thread asks whether a collective is complete."""

    ticket: int


@dataclass(frozen=True, slots=True)
class UseStore(Hypercall):
    """An operation on the key-value store.

    ``settled``: its result is the same in whatever order these operations go.  ``limit`` is for how long it waits for
    its keys, in nanoseconds, 0 for as long as it takes.
    """

    do: str
    arguments: Sequence[Any]
    settled: bool
    limit: int = 0


@dataclass(frozen=True, slots=True)
class SendSignal(Hypercall):
    """The rank that starts the others sends one of them a signal."""

    rank: int
    number: int


def _below(kind: type[Hypercall]) -> list[type[Hypercall]]:
    return [each for child in kind.__subclasses__() for each in (child, *_below(child))]


KINDS: Mapping[str, type[Hypercall]] = {each.__name__: each for each in _below(Hypercall)}
AMONG_THREADS = frozenset(each.family for each in AmongThreads.__subclasses__())
"""The families of ops that threads of a rank make among themselves."""


_FIELDS = {name: tuple(each.name for each in fields(kind) if each.name != "stack") for name, kind in KINDS.items()}
"""The fields of each kind that can be given by position."""


def encode(call: Hypercall) -> bytes:
    """Return a hypercall as it travels: its name, its stack, and its fields."""
    name = type(call).__name__
    return json.dumps([name, call.stack, *[getattr(call, each) for each in _FIELDS[name]]]).encode()


def decode(data: bytes) -> Hypercall:
    """Return the hypercall that an agent has sent."""
    name, stack, *values = json.loads(data)
    return KINDS[name](*values, stack=stack)
