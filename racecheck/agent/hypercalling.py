"""The rank's end of hypercalls: there is one channel, so they and ops keep the order in which a thread makes them."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from racecheck.kernel import libc, seccomp
from racecheck.model.hypercalls import AtOnce, Hypercall, encode
from racecheck.targets import scenarios

OURS = (f"{Path(__file__).parent}{os.sep}", scenarios.__file__)
"""The files whose frames are no part of a program's stack."""
_replies = threading.local()
ECHO = "racecheck_echo"
"""The attribute of an exception that says whether it is an echo of a peer's failure."""


def hypercall(call: Hypercall, room: int = 4096) -> Any:
    """Make a hypercall and wait for its answer (JSON data); None without a listener.

    ``room`` is the most bytes that the answer may take.  A thread keeps the GIL where the answer comes at once: which
    other one takes it meanwhile would depend on how fast they are.
    """
    data, keep = encode(call), isinstance(call, AtOnce)
    if getattr(_replies, "room", 0) < room:
        _replies.buffer, _replies.room = ctypes.create_string_buffer(room), room
    length, error = libc.syscall(seccomp.HYPERCALL, data, len(data), _replies.buffer, _replies.room, keep_gil=keep)
    if error == errno.ENOSYS:
        return None
    if error:
        raise libc.os_error(error)
    return json.loads(ctypes.string_at(_replies.buffer, length)) if length else None


def nanoseconds(limit: timedelta | None) -> int:
    """Return a time limit as the supervisor receives it; 0 for none."""
    return round(limit.total_seconds() * 1e9) if limit is not None else 0


def stack(frame: FrameType | None = None) -> list[tuple[str, int, str]]:
    """Return the calling thread's Python stack, innermost frame first.

    It ends where the scenario was called, and leaves out our own frames.
    """
    return list(_frames(frame or sys._getframe(1)))


def _frames(frame: FrameType | None) -> Iterator[tuple[str, int, str]]:
    while frame is not None and frame.f_code.co_filename != scenarios.__file__:
        if not frame.f_code.co_filename.startswith(OURS):
            yield frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back
