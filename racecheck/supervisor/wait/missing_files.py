"""Loops that ask for a file outside the watched directories, without a pause, until another process has made it.

While such a loop runs the world is not quiet, so the other process would not continue.  After many questions in a row
the thread is therefore held before the next one, until the file is there or a moment of virtual time is over.
"""

from __future__ import annotations

import os

from racecheck.supervisor.calls.perform import CARRY_ON, Answer
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.tasks import Request, Task

_IN_VAIN = 1000
"""A thread that has asked this often, and has made no other call, waits for the file."""
_PAUSE, _LONGEST = 1_000_000, 10
"""Nanoseconds of virtual time that it waits at most before it asks again; how often they double."""


class MissingFiles:
    """Counts the questions of a run's threads for files that are not there."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._asked: dict[Task, tuple[object, int]] = {}

    def pause(self, request: Request) -> int:
        """Return how long a thread waits for a file before it makes this call, in nanoseconds: 0 if it does not."""
        task = request.task
        if not request.located or has_come(request):
            self._asked.pop(task, None)
            return 0
        question = (request.call.name, *request.paths.values(), len(self._state.trace))
        before, count = self._asked.get(task, ((), 0))
        if question != before:
            count = 0
        self._asked[task] = question, count + 1
        return _PAUSE << min(count - _IN_VAIN, _LONGEST) if count >= _IN_VAIN else 0


def has_come(request: Request) -> bool:
    """Return whether a file that a call asks for is there."""
    return any(os.path.lexists(each.via) for each in request.located.values() if each.handle >= 0)


def news(request: Request) -> Answer | None:
    """Return that the call is to be made if the file is there now."""
    return CARRY_ON if has_come(request) else None
