"""A look at a call before it is received: a thread's Python stack can be fetched only while its call waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from racecheck.kernel import libc, proc
from racecheck.kernel.signature import Call
from racecheck.kernel.syscalls import number
from racecheck.sessions import stacks
from racecheck.supervisor.calls import own_state
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.decoder import Unreachable
from racecheck.supervisor.state.tasks import Rank, Request, Task
from racecheck.supervisor.wait.gil import Gil
from racecheck.supervisor.wait.memory_waits import is_unlimited
from racecheck.supervisor.wait.timed_waits import HELD, may_be_held

_SPIN = 100


@dataclass(frozen=True, slots=True)
class LookAhead:
    """Fetches stacks; ``calls`` is the table of system calls, by number."""

    state: RunState
    gil: Gil
    calls: Mapping[int, Call]

    def look(self, rank: Rank) -> None:
        """Decode the waiting call of a rank and, if it matters, fetch its stack: `Rank.ahead` has the request then."""
        for task, number_, arguments in self._waiting(rank):
            row, known = self.calls.get(number_), rank.ahead.get(task.tid)
            if row is None or row.family in own_state.NEVER_OPS:
                continue
            if self.gil.is_wanted(row, arguments) or is_unlimited(row, arguments):
                continue
            if row.family == "select":  # it may be asleep in the kernel, where the signal would end its wait
                continue
            if known is not None and known.is_of(row, arguments):
                continue
            if known is not None:
                known.close()
            request = self._decode(task, row, arguments)
            if request is not None:
                rank.ahead[task.tid] = request

    def _waiting(self, rank: Rank) -> Iterator[tuple[Task, int, tuple[int, ...]]]:
        """Yield the threads of a rank that are stopped in a call, with its number and arguments.

        The listener does not say which thread is waiting, so every stopped thread is examined.  (Not gloo's, which have
        no stack: one of these must not keep us from waiting for the program's.)
        """
        tasks = [task for task in rank.tasks.values() if task.process.is_main and not task.is_held]
        own = [task for task in tasks if task.tid not in rank.background]
        found: list[tuple[Task, int, tuple[int, ...]]] = []
        for _ in range(_SPIN):  # it may still be on its way to sleep
            found = [(task, *call) for task in own if (call := proc.stopped_call(rank.pid, task.tid)) is not None]
            if found or not rank.single:
                break
        yield from found

    def _decode(self, task: Task, row: Call, arguments: tuple[int, ...]) -> Request | None:
        try:
            request = self.state.decoder.decode(task, row, arguments)
        except (OSError, Unreachable):
            return None
        seen = request.touches and not own_state.moves_alone(request)
        if row.family in HELD:
            seen = may_be_held(task.rank, task.tid, row.family)
        if seen or row.family in own_state.WITHOUT_PLACE:
            rank, call = task.rank, number(row.name, libc.MACHINE) or -1
            assert rank.wire.listener is not None
            found = stacks.capture(rank.pid, task.tid, rank.wire.stack_pipe, rank.wire.listener.descriptor, call)
            request.op = replace(request.op, stack=found)
        return request
