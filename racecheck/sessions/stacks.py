"""The Python stack of a stopped thread, also where the call comes from C++ or Rust.

faulthandler, told by a signal, writes it to a pipe.  The signal has to come *before* the call is received: it then
interrupts the call, which the kernel makes again afterwards, as a new notification.  After the call has been received
it waits for its answer undisturbed (`seccomp`), and no stack can be had.
"""

from __future__ import annotations

import functools
import os
import re
import select
import time
from pathlib import Path

from racecheck.agent.job import STACK_SIGNAL
from racecheck.kernel import libc, proc, syscalls
from racecheck.model.hypercalls import Stack
from racecheck.model.nouns import Frame
from racecheck.targets import scenarios

_CALLER = scenarios.__file__
_OURS = (*(str(Path(__file__).parent / each) for each in ("ranks", "contents")), str(Path(libc.__file__).parent))
_LINE = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')
_PATIENCE = 1000


def capture(pid: int, tid: int, pipe: int, listener: int = -1, call: int = -1) -> tuple[Frame, ...] | None:
    """Return the stack of a thread.

    The thread is stopped and its call not yet received (``listener`` is its rank's), or it runs or sleeps (-1).
    ``call`` is the number of the call that it is stopped in: the listener may also report another thread (one of
    gloo's, if the program has no other).

    Returns None if none came within a second, or the pipe has ended: the thread blocks the signal, or is gone.  Returns
    an empty stack if the thread has none, as those that C++ starts.
    """
    tgkill = syscalls.number("tgkill", libc.MACHINE)
    assert tgkill is not None
    if libc.syscall(tgkill, pid, tid, int(STACK_SIGNAL))[1] or not _is_told(pid, tid, pipe):
        return None
    if listener >= 0 and not (_readable(listener, _PATIENCE) and (call < 0 or _is_back(pid, tid, call))):
        return None
    text = b""
    while _readable(pipe, 0 if listener >= 0 else 20) and (piece := os.read(pipe, 1 << 16)):
        text += piece
    return parse(text.decode(errors="replace"))


def _is_told(pid: int, tid: int, pipe: int) -> bool:
    """Wait until the thread has written its stack, or sleeps again and has written none."""
    deadline = time.monotonic() + _PATIENCE / 1000
    while not _readable(pipe, 1):
        if _has_handled(tid) and proc.stopped_call(pid, tid) is not None:
            return True
        if time.monotonic() > deadline:
            return False
    return True


def _has_handled(tid: int) -> bool:
    """Return whether the signal is neither pending for the thread nor being handled by it."""
    known = proc.status(tid)
    masks = [int(known.get(each, "0"), 16) for each in ("SigPnd", "SigBlk")]
    return not any(mask >> (int(STACK_SIGNAL) - 1) & 1 for mask in masks)


def _is_back(pid: int, tid: int, call: int) -> bool:
    """Wait until the thread, which has written its stack, makes its call again."""
    deadline = time.monotonic() + _PATIENCE / 1000
    while time.monotonic() < deadline:
        now = proc.stopped_call(pid, tid)
        if now is not None and now[0] == call:
            return True
    return False


def _readable(descriptor: int, milliseconds: int) -> bool:
    watch = select.poll()
    watch.register(descriptor, select.POLLIN)
    return bool(watch.poll(milliseconds))


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> tuple[Frame, ...]:
    """Return faulthandler's output, innermost frame first, up to where racecheck called the scenario."""
    found: list[Frame] = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        file, number, function = match.groups()
        if file == _CALLER:
            break
        if not file.startswith(_OURS):
            found.append(Frame(file, int(number) if number.isdigit() else 0, function))
    return tuple(found)


def frames(raw: Stack) -> tuple[Frame, ...]:
    """Return a stack as the agent sends it."""
    return tuple(Frame(str(file), int(line), str(function)) for file, line, function in raw)
