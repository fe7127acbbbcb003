"""The launcher of a program, as its ranks notice it: when one has failed, the launcher ends the others.

torchrun looks at its ranks every 0.1 s.  It sends SIGTERM to the others, and SIGKILL 30 s later to those that are left
(``torch/distributed/elastic/agent/server/local_elastic_agent.py``).  Both times are virtual here.
"""

from __future__ import annotations

import signal

from racecheck.model.nouns import Result
from racecheck.model.ops.launcher_ops import signal_op
from racecheck.supervisor.act.fault_injection import deliver
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.tasks import Rank

LAST = "a rank failed, and the launcher's SIGTERM to the others was tried at one moment"
"""The note of a run in which it was sent."""
_LOOK, _GRACE = 10**8, 30 * 10**9
"""Nanoseconds between two looks at the ranks, and between the two signals."""


class Launcher:
    """The launcher of a run; ``is_there`` is False if the ranks are a scenario's.

    A rank at its end gets no signal: it is held there until others have done all that they do by themselves.
    """

    def __init__(self, state: RunState, *, is_there: bool) -> None:
        self._state, self._due = state, -1
        self._orphaned = False
        self._signals = [signal.SIGTERM, signal.SIGKILL] if is_there else []

    def act(self, soonest: float) -> bool:
        """Send the next signal if it is due before ``soonest``, when another thread continues (nanoseconds, virtual).

        Returns whether it was sent.
        """
        living = [rank for rank in self._state.ranks if not rank.is_at_end]
        parent = self._state.crew.parent
        if parent is not None:
            return parent.gone and self._end_orphans(living)
        if not self._signals or not living or not any(rank.failed for rank in self._state.ranks):
            return False
        now = self._state.time.elapsed
        if self._due < 0:
            self._due = now + _LOOK
        if max(now, soonest) < self._due:
            return False
        self._state.time.tick(self._due)
        self._due += _GRACE
        number = self._signals.pop(0)
        for rank in living:
            self.send(rank, number)
        return True

    def _end_orphans(self, living: list[Rank]) -> bool:
        """Send SIGINT to ranks whose parent has ended, as the kernel does, once; returns whether it was sent."""
        if self._orphaned:
            return False
        self._orphaned = True
        for rank in living:
            self.send(rank, signal.SIGINT)
        return bool(living)

    def send(self, rank: Rank, number: signal.Signals) -> None:
        """Send a signal to a rank, unless it has ended, now."""
        state, task = self._state, rank.main
        if rank.gone:
            return
        state.ledger.note(LAST)
        op = signal_op(rank.number, task.name, number.name)
        state.trace.add(op, Result(), task.tick())
        deliver(state, rank, number)
