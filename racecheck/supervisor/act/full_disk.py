"""A disk that is nearly full: how much room a call needs, and how much it frees.

A file takes as much room as it is long.  Bytes that replace others take none, and neither does a hole.  A file that is
removed while somebody has it open keeps its room.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress

from racecheck.faults import Plan
from racecheck.model.ops import op_kinds
from racecheck.supervisor.act.client_caches import open_files
from racecheck.supervisor.calls.perform import extent
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.tasks import Request


class FullDisk:
    """The room of a run's disks, which the ``plan`` counts."""

    def __init__(self, state: RunState, plan: Plan) -> None:
        self._state, self._plan = state, plan
        self._is_limited = any(each.what == "full" for each in state.world.faults)

    def room(self, request: Request) -> int | None:
        """Take room for a call; returns how many of its bytes there is room for, None if for all."""
        if not self._is_limited or request.op.call not in op_kinds.FILLS or not request.files:
            return None
        file = [*request.files.values()][0 if request.op.call != "copy" else _target(request)]
        size = file.status().st_size
        try:
            start, length = extent(request)
        except OSError:
            return None
        if request.op.call == "copy" or fcntl.fcntl(file.descriptor, fcntl.F_GETFL) & os.O_APPEND:
            start = size if request.op.call != "copy" else _copied_to(request, file.descriptor)
        replaced = min(length, max(0, size - start))
        given = self._plan.room(request.op, length - replaced)
        if given == length - replaced:
            return None
        if request.op.call == "allocate":
            self._plan.free(request.op, given)
            return 0
        return replaced + given

    def freed(self, request: Request) -> int:
        """Return how many bytes a call frees if it succeeds."""
        if not self._is_limited or not request.touches:
            return 0
        located = [*request.located.values()]
        status, family = located[-1].status if located else request.file.status(), request.op.call
        if status is None or not stat.S_ISREG(status.st_mode):
            return 0
        if op_kinds.truncates(request.op):
            return status.st_size
        if family == "truncate":
            return max(0, status.st_size - request.number("length"))
        if family not in {"unlink", "rename"} or status.st_nlink > 1 or self._is_open(status):
            return 0
        if family == "rename" and request.op.places[0].inode == request.op.places[-1].inode:
            return 0
        return status.st_size

    def _is_open(self, wanted: os.stat_result) -> bool:
        found = (file for rank in self._state.ranks for file in open_files(rank))
        return any(os.path.samestat(wanted, file.status()) for file in found)


def asked(request: Request) -> int:
    """Return how many bytes a call is to move."""
    with suppress(OSError):
        return extent(request)[1]
    return 0


def _target(request: Request) -> int:
    names = [request.call.args[index].name for index in request.files]
    return names.index("to")


def _copied_to(request: Request, descriptor: int) -> int:
    """Return where in the target a copy begins."""
    if request.call.name == "copy_file_range":
        pointer = request.arguments[3]
        if pointer:
            return int.from_bytes(request.task.process.memory.read(pointer, 8), "little")
    return os.lseek(descriptor, 0, os.SEEK_CUR)
