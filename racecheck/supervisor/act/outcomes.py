"""The effects of a call that was performed: times of files, identities, the record of bytes."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from racecheck.kernel import libc
from racecheck.kernel.signature import Treatment
from racecheck.model.errors import CannotRun
from racecheck.supervisor.calls.perform import CARRY_ON, Answer, Next, creates, perform
from racecheck.supervisor.finish.recorder import Recorder
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.tasks import Request

_OURS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.ENFILE})
"""Errors of the machine, not of the code under test."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Notes them; a ``recorder`` keeps the bytes that ops write."""

    state: RunState
    recorder: Recorder | None

    def perform(self, request: Request, next_: Next) -> Answer:
        """Carry a call out and note its effects; raises `CannotRun` for an error that is this machine's."""
        makes = creates(request)
        try:
            result = next_(request)
        except OSError:
            return CARRY_ON
        if not result.errno and not result.carry_on:
            if makes:
                self._created(request, result)
            self.state.time.stamp(request, result.opened)
            if request.call.family == "stat":
                shown = self.state.time.show(request)
                self.state.told.show(shown, request.op, all_seen=request.task.process.is_foreign)
        if result.errno in _OURS:
            name = libc.errno_name(result.errno)
            raise CannotRun(
                f"{request.op.label} got {name} from this machine, not from a fault: free space, or set RACECHECK_RUNS"
            )
        if self.recorder is not None:
            self.recorder.performed(len(self.state.trace), request, result, self.state.identities)
        return result

    def _created(self, request: Request, result: Answer) -> None:
        if result.opened >= 0:
            status = os.fstat(result.opened)
        else:
            status = os.lstat([*request.located.values()][-1].via.rstrip("/"))
        self.state.identities.created(status)
        self.state.time.created(status)


def kernel(request: Request) -> Answer:
    """Perform a call in its rank's place, or let the kernel do it."""
    return CARRY_ON if request.call.treatment is Treatment.CONTINUE else perform(request)
