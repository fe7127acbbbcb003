"""Waits for descriptors with a time limit (poll(2), select(2), epoll_wait(2)), in virtual time.

A thread of the program's own is held before such a wait.  The kernel makes the wait once a descriptor is ready, and
ends it at once.  It times out in virtual time, where nothing else continues before: how long another process really
takes (to import a module, say) decides nothing.

The kernel makes waits for the network, for a terminal and for timers of its own: data comes there by itself.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from racecheck.kernel import proc
from racecheck.supervisor.calls.connections import open_socket
from racecheck.supervisor.calls.perform import CARRY_ON, Answer
from racecheck.supervisor.calls.sleeps import round_up
from racecheck.supervisor.state.decoder import signed
from racecheck.supervisor.state.tasks import Process, Request

_MOST = 64
"""The most descriptors of a wait in virtual time: they are examined whenever the world is quiet."""
_POLLFD = struct.Struct("ihh")
_TARGETS = ("pipe:", "anon_inode:[eventfd]", "anon_inode:[pidfd]", "pidfd:")
"""How the targets of descriptors begin (proc(5)) that a process of the run makes ready."""
_SETS = (select.POLLIN, select.POLLOUT, select.POLLPRI)
"""What select(2) asks of the descriptors in each of its three sets."""
_WORD = struct.Struct("Q")
_MASKS: Mapping[str, int] = {"ppoll": 3, "pselect6": 5, "epoll_pwait": 4}
"""Which argument points to the signals that are let in during the wait."""
_MILLISECOND, _SECOND = 1_000_000, 1_000_000_000
_UNITS: Mapping[str, int] = {"select": 1000}
"""Nanoseconds in a unit of the limit's second half, for calls that do not count nanoseconds (struct timeval)."""


def length(request: Request) -> int:
    """Return how long a call waits at most, in nanoseconds; 0 if the wait is left to the kernel.

    Raises `OSError` if its memory or its descriptors cannot be read.
    """
    name = request.call.name
    if name in _MASKS and _has_mask(request, request.arguments[_MASKS[name]]):
        return 0
    if name in {"poll", "ppoll"} and request.arguments[1] > _MOST:
        return 0
    asked = _asked(request)
    if len(asked) > _MOST or not all(_is_ours(request.task.process, each) for each, _ in asked):
        return 0
    return _limit(request)


def is_for_one(request: Request) -> bool:
    """Return whether a call waits for a single descriptor: if that is ready, no other can be found ready as well."""
    return not request.call.name.startswith("epoll") and len(_asked(request)) == 1


def _has_mask(request: Request, pointer: int) -> bool:
    if request.call.name == "pselect6" and pointer:  # to a pointer and a size
        (pointer,) = _WORD.unpack(request.task.process.memory.read(pointer, _WORD.size))
    return pointer != 0


def _limit(request: Request) -> int:
    if "timeout" in request.op.args:
        return round_up(max(0, request.number("timeout")) * _MILLISECOND)
    place = request.arguments[_limit_index(request)]
    seconds, rest = struct.unpack("qq", request.task.process.memory.read(place, 16))
    return round_up(max(0, seconds * _SECOND + rest * _UNITS.get(request.call.name, 1)))


def _limit_index(request: Request) -> int:
    return next(index for index, arg in enumerate(request.call.args) if arg.name in {"timespec", "timeval"})


def _asked(request: Request) -> list[tuple[int, int]]:
    """Return the descriptors that a call waits for, each with the events (poll(2))."""
    memory, arguments = request.task.process.memory, request.arguments
    if request.call.name.startswith("epoll"):
        return [(signed(arguments[0]), select.POLLIN)]
    if request.call.name.endswith("poll"):
        entries = memory.read(arguments[0], arguments[1] * _POLLFD.size)
        return [(descriptor, events) for descriptor, events, _ in _POLLFD.iter_unpack(entries) if descriptor >= 0]
    found: dict[int, int] = {}
    for (place, size), events in zip(_sets(arguments), _SETS, strict=True):
        bits = int.from_bytes(memory.read(place, size), sys.byteorder) if place else 0
        for descriptor in range(signed(arguments[0])):
            if bits >> descriptor & 1:
                found[descriptor] = found.get(descriptor, 0) | events
    return [*found.items()]


def _sets(arguments: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where the three sets of select(2) are, and their sizes in bytes."""
    size = -(-signed(arguments[0]) // 64) * _WORD.size
    yield from ((place, size) for place in arguments[1:4])


def _is_ours(process: Process, descriptor: int) -> bool:
    """Return whether only processes of the run make a descriptor ready: of sockets, one of a pair."""
    target = os.readlink(f"/proc/{process.pid}/fd/{descriptor}")
    if target.startswith(_TARGETS):
        return True
    if target == "anon_inode:[eventpoll]":
        return all(_is_ours(process, each) for each in _members(process, descriptor))
    if target.startswith("/"):
        return stat.S_ISFIFO(os.stat(f"/proc/{process.pid}/fd/{descriptor}").st_mode)
    end = open_socket(process.descriptors.fetch(descriptor)) if target.startswith("socket:") else None
    if end is None:
        return False
    with end, suppress(OSError):
        return end.family == socket.AF_UNIX and not end.getpeername()
    return False


def _members(process: Process, descriptor: int) -> Iterator[int]:
    """Yield the descriptors that an epoll(7) instance watches."""
    for line in Path(f"/proc/{process.pid}/fdinfo/{descriptor}").read_text().splitlines():
        if line.startswith("tfd:"):
            yield int(line.split()[1])


def news(request: Request) -> Answer | None:
    """Return that the kernel is to make the wait if it ends it now; None if it would sleep."""
    process = request.task.process
    if proc.has_signal(process.pid, request.task.tid):
        return CARRY_ON
    ready, opened = select.poll(), list[int]()
    try:
        for descriptor, events in _asked(request):
            opened.append(process.descriptors.fetch(descriptor))
            ready.register(opened[-1], events)
        return CARRY_ON if ready.poll(0) else None
    except OSError:  # closed meanwhile, or its process has ended: the kernel has the last word
        return CARRY_ON
    finally:
        for each in opened:
            os.close(each)


def time_out(request: Request) -> Answer:
    """End a wait as the kernel does when its time is over: nothing is ready, and no time is left."""
    memory, arguments = request.task.process.memory, request.arguments
    with suppress(OSError):  # its process has been killed meanwhile
        if request.call.name in {"poll", "ppoll"}:
            for index in range(arguments[1]):
                memory.write(arguments[0] + (index + 1) * _POLLFD.size - 2, bytes(2))
        elif request.call.name in {"select", "pselect6"}:
            for place, size in _sets(arguments):
                if place:
                    memory.write(place, bytes(size))
        if request.call.name in {"ppoll", "select", "pselect6"}:
            memory.write(arguments[_limit_index(request)], bytes(16))
    return Answer()
