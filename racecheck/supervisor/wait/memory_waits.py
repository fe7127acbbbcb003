"""Waits without a time limit for something in memory: a lock, an event, a queue, another thread's end.

Like those with a limit (`timed_waits`) they come down to futex(2): wait until a word in memory has changed.  A thread
that the kernel wakes there needs no further call to take the GIL, if that happens to be free: whether the thread that
has woken it continues first would be luck.  So a thread of the program's own stops before such a wait.  When no thread
of its rank runs any more and its word has changed, the call ends with EAGAIN, as one that comes late does; of several
such threads of a rank the first by name continues first.

Threads inside a collective, those of gloo, and programs that a rank has started wait in the kernel.
"""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass

from racecheck.kernel import proc
from racecheck.kernel.seccomp import Notification
from racecheck.kernel.signature import Call
from racecheck.supervisor.calls.perform import Answer
from racecheck.supervisor.finish.answers import answer_call
from racecheck.supervisor.state.tasks import MemoryWait, Rank, Request, Task

_LIMIT = 3
"""The argument of futex(2) that points to the time limit."""


def is_unlimited(row: Call, arguments: tuple[int, ...]) -> bool:
    """Return whether a call waits for a word in memory for as long as it takes."""
    return row.family == "wait" and not arguments[_LIMIT]


def of(call: Notification | Request) -> MemoryWait:
    """Return the wait that a call of futex(2) makes."""
    word, _, expected = call.arguments[:3]
    return MemoryWait(call.id, word, expected & 0xFFFFFFFF)


@dataclass(slots=True)
class MemoryWaits:
    """The threads of a run's ranks that are stopped before such a wait."""

    ranks: list[Rank]

    def stop(self, rank: Rank, notification: Notification) -> bool:
        """Stop a thread before its wait; returns whether it is one that stops there."""
        task = rank.tasks.get(notification.thread)
        if task is None or not task.started or task.inside is not None or task.makes_group:
            return False
        if task.process.is_another_program:
            return False
        task.stop(of(notification))
        return True

    def pass_on(self, rank: Rank) -> bool:
        """Let one thread of a rank continue whose wait is over; returns whether there was one."""
        for task in sorted(rank.tasks.values(), key=lambda task: task.name):
            error = news(task, task.memory_wait) if task.memory_wait is not None else 0
            if error and task.memory_wait is not None:
                answer_call(rank, task.memory_wait.id, Answer(errno=error))
                task.release()
                return True
        return False

    def release(self) -> None:
        """Let all of them wait in the kernel, where a signal that asks for their stack reaches them."""
        for rank in self.ranks:
            for task in rank.tasks.values():
                if task.memory_wait is not None:
                    answer_call(rank, task.memory_wait.id)
                    task.release()


def news(task: Task, wait: MemoryWait) -> int:
    """Return the errno with which a wait of a thread ends now, 0 if it continues."""
    try:
        now = int.from_bytes(task.process.memory.read(wait.word, 4), sys.byteorder)
    except OSError:  # the program has freed it, or its process has ended
        return errno.EFAULT
    if now != wait.expected:
        return errno.EAGAIN
    return errno.EINTR if proc.has_signal(task.process.pid, task.tid) else 0
