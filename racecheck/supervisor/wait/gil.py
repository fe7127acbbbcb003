"""Which thread gets the GIL, the lock of Python's interpreter, next.

A thread that finds the GIL taken waits for it by futex(2), and stops there: which of several waiters the kernel would
wake, and whether that one is faster than the thread that has just released the GIL, is luck.  Each thread keeps the GIL
until it waits for something else.  When no thread of its rank runs any more and the GIL is free, the waiter that comes
first by name among those that were signalled continues.

In CPython a release signals a condition variable, which changes the word that its waiters look at (pthread_cond_signal
of glibc); a call that comes late finds that, and ends with EAGAIN.
"""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass

from racecheck.kernel import interpreter
from racecheck.kernel.seccomp import Notification
from racecheck.kernel.signature import Call
from racecheck.supervisor.calls.perform import Answer
from racecheck.supervisor.finish.answers import answer_call
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.tasks import Rank
from racecheck.supervisor.wait import memory_waits

COMPUTES = "a thread computed for a second while others waited: when they continue depends on this machine"


@dataclass(slots=True)
class Gil:
    """The threads of a run that wait for the GIL of their process; ``address`` is where it is, 0 if unknown."""

    state: RunState
    address: int

    def is_wanted(self, row: Call, arguments: tuple[int, ...]) -> bool:
        """Return whether a call waits for the GIL."""
        return row.family == "wait" and interpreter.is_of_gil(self.address, arguments[0])

    def stop(self, rank: Rank, row: Call, notification: Notification) -> bool:
        """Return whether a call waits for the GIL; if so, its thread stops."""
        if not self.is_wanted(row, notification.arguments) or rank.process(notification.thread).is_another_program:
            return False
        rank.gil[notification.thread] = memory_waits.of(notification)
        return True

    def pass_on(self, rank: Rank) -> bool:
        """Let one thread of a rank have a free GIL that it waits for; returns whether there was one."""
        names = {tid: rank.tasks[tid].name if tid in rank.tasks else "" for tid in rank.gil}
        for tid in sorted(rank.gil, key=lambda tid: (not names[tid], names[tid], tid)):
            if self._may_go_on(rank, tid):
                self._end(rank, tid, errno.EAGAIN)
                return True
        return False

    def ask(self) -> bool:
        """Let waiters ask the holder for the GIL: it computes, perhaps until another thread has done something.

        Returns whether there was one.
        """
        waiting = [(rank, tid) for rank in self.state.ranks for tid in rank.gil]
        for rank, tid in waiting:
            self._end(rank, tid, errno.ETIMEDOUT)
        return bool(waiting)

    def _may_go_on(self, rank: Rank, tid: int) -> bool:
        memory, wait = rank.process(tid).memory, rank.gil[tid]
        try:
            is_signalled = int.from_bytes(memory.read(wait.word, 4), sys.byteorder) != wait.expected
            return is_signalled and not interpreter.is_held(self.address, memory)
        except OSError:  # the process has ended
            return False

    def _end(self, rank: Rank, tid: int, error: int) -> None:
        answer_call(rank, rank.gil.pop(tid).id, Answer(errno=error))
