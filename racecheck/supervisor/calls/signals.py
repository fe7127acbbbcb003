"""Which processes a rank's signal may reach, and which it must not: kill(2), tgkill(2), pidfd_send_signal(2).

It must not reach a process outside of the run: neither racecheck's own, nor one of the user's where ranks see it.
"""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from pathlib import Path

from racecheck.kernel import proc
from racecheck.supervisor.state.tasks import Rank, Request

KILLS = "a rank sends a signal to another process: that ends at once, if it does"
LEAVES = "a signal to a process outside of the run, which is refused (EPERM)"
_ZYGOTE = 2
"""How far it is from this process: the guardian is between them."""


def leaves_run(request: Request) -> bool:
    """Return whether a call would signal a process that no rank is, and none has started."""
    if request.number("signal") == 0:
        return False
    target = _target(request)
    if target > 0:
        return _is_outside(target)
    if target == -1:
        return request.call.name == "kill"  # to every process that there is; for other calls it means nothing
    return target != 0 and any(_is_outside(pid) for pid in proc.group(-target))


def _is_outside(pid: int) -> bool:
    """Return whether a process is none of the run's, all of which descend from the zygote; False if it is gone."""
    way = proc.ancestors(pid)
    return bool(way) and os.getpid() not in way[_ZYGOTE:]


def reaches(request: Request, rank: Rank) -> bool:
    """Return whether a signal that a call sends may reach a process of a rank, or might have before that ended."""
    target = _target(request)
    if target > 0:
        return target in rank.processes or target in rank.tasks
    if target == -1:
        return True
    group = -target or _group(request.task.process.pid)
    return any(_group(pid) == group for pid in rank.processes)


def _target(request: Request) -> int:
    """Return the process or thread that a call names, with the meanings of kill(2) for others; -1 for a bad pidfd."""
    target = ctypes.c_int(request.arguments[0] & 0xFFFFFFFF).value
    return _process_of(request.task.process.pid, target) if request.call.name == "pidfd_send_signal" else target


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
