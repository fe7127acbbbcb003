"""Which processes a signal may reach that a rank sends: kill(2), tgkill(2), pidfd_send_signal(2)."""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from pathlib import Path

from racecheck.supervisor.threads.tasks import Rank, Request


def reaches(request: Request, rank: Rank) -> bool:
    """Return whether a signal that a call sends may reach a process of a rank, or might have before that ended."""
    target = ctypes.c_int(request.arguments[0] & 0xFFFFFFFF).value
    if request.call.name == "pidfd_send_signal":
        target = _process_of(request.task.process.pid, target)
    if target > 0:
        return target in rank.processes or target in rank.tasks
    if target == -1:
        return True
    group = -target or _group(request.task.process.pid)
    return any(_group(pid) == group for pid in rank.processes)


def _process_of(pid: int, descriptor: int) -> int:
    """Return the process that a pidfd of a process stands for, -1 if that is unknown."""
    with suppress(OSError):
        found = re.search(r"^Pid:\s*(\d+)", Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text(), re.MULTILINE)
        if found is not None:
            return int(found[1])
    return -1


def _group(pid: int) -> int:
    """Return the group of a process; one that is gone led its own, as ranks do."""
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return pid
