"""Tasks with numbers, whose results come in any order that is asked for, whoever carries them out."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from racecheck.explore.runner import Progress
from racecheck.explore.runs.tasks import Task
from racecheck.explore.runs.workers import Workers
from racecheck.model import config
from racecheck.model.errors import OutOfTime
from racecheck.sessions.session import Session

_PATIENCE = 2.0
"""Seconds before workers start their sessions, unless what waits takes longer: what ends sooner needs none."""


class Runs:
    """Carries out tasks here, in the session that ``lend`` lends, and in ``workers`` if there are any.

    Workers start sessions for ``target``.  No wait for one is longer than until ``until()``, of `time.monotonic`.
    """

    def __init__(
        self,
        lend: Callable[[], AbstractContextManager[Session]],
        target: str,
        workers: Workers | None = None,
        until: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._lend, self._target, self._workers, self._until = lend, target, workers, until
        self._begun = time.monotonic()
        self._pace = 0.0
        """Seconds of the last task that was carried out here."""
        self._tasks: dict[int, Task[Any]] = {}
        """Those whose result nobody has taken.  Each is waiting, given to a worker, or done."""
        self._costs: dict[int, float] = {}
        self._waiting: set[int] = set()
        self._given: dict[int, int] = {}
        """The numbers of tasks by the tickets of workers."""
        self._done: dict[int, Any] = {}
        self.elsewhere: set[int] = set()
        """The tasks that a worker has done."""

    @property
    def has_workers(self) -> bool:
        """Return whether a task may be carried out elsewhere."""
        return self._workers is not None and len(self._workers) > 0

    @property
    def room(self) -> int:
        """Return how many more tasks workers would take soon."""
        most = self._workers.most if self._workers is not None else 0
        return max(0, most - len(self._given) - len(self._waiting))

    def __contains__(self, number: int) -> bool:
        return number in self._tasks

    def begin(self) -> None:
        """Have the workers start their sessions now, since there is enough to do; returns at once."""
        self._begun = -math.inf
        if self._workers is not None:
            self._workers.open(config.read(), self._target)

    def submit(self, number: int, task: Task[Any], cost: float = 0.0) -> None:
        """Add a task; the numbers of one set of tasks differ.  Workers take those with the highest cost first."""
        self._tasks[number] = task
        self._waiting.add(number)
        self._costs[number] = cost

    def withdraw(self, number: int) -> bool:
        """Forget a task, if nobody has begun it; return whether that is so."""
        if number not in self._waiting:
            return False
        self._waiting.remove(number)
        del self._tasks[number]
        return True

    def is_done(self, number: int) -> bool:
        """Return whether the result of a task is there."""
        return number in self._done

    def result(self, number: int, tell: Progress | None = None) -> Any:
        """Return the result of a task, and carry out tasks until it is there; raises what the task raises here.

        If a worker fails at a task, it is carried out here again.  ``tell`` hears of the progress of tasks that are
        carried out here.  Raises `OutOfTime` as a run does.
        """
        while number not in self._done:
            self.feed()
            if number in self._done:
                break
            mine = number if number in self._waiting else self._next()
            if mine is None:
                self._collect(wait=True)
                continue
            self._waiting.remove(mine)
            begun = time.monotonic()
            with self._lend() as session:
                self._done[mine] = self._tasks[mine].run(session, tell)
            self._pace = time.monotonic() - begun
        del self._tasks[number]
        return self._done.pop(number)

    def wait(self) -> None:
        """Wait until a worker has a result, or has begun to take tasks; raises `OutOfTime`."""
        self.feed()
        self._collect(wait=True)

    def feed(self) -> None:
        """Take the results that are there, and give tasks to workers."""
        if self._workers is None:
            return
        expected = len(self._waiting) * self._pace
        if max(time.monotonic() - self._begun, expected) < _PATIENCE:
            return
        if self._waiting:
            self._workers.open(config.read(), self._target)
        self._collect(wait=False)
        for worker in self._workers.free():
            if not self._waiting or (worker.tickets and len(self._waiting) <= len(self._workers)):
                return
            number = self._next()
            assert number is not None
            self._waiting.remove(number)
            self._given[self._workers.give(worker, pickle.dumps(self._tasks[number]))] = number

    def _next(self) -> int | None:
        """Return the task that begins next, unless another one is asked for."""
        return min(self._waiting, key=lambda each: (-self._costs[each], each), default=None)

    def _collect(self, *, wait: bool) -> None:
        """Take the results that are there, or wait for one until the time of the session is up."""
        assert self._workers is not None
        until = self._until()
        answers = self._workers.answers(max(0.0, until - time.monotonic()) if wait else 0.0)
        if wait and not answers and time.monotonic() >= until:
            raise OutOfTime
        for answer in answers:
            number = self._given.pop(answer.ticket, None)
            if number is None:
                continue
            if answer.is_lost:
                self._waiting.add(number)
            else:
                self._done[number] = answer.value
                self.elsewhere.add(number)

    def stay_here(self) -> None:
        """Carry out all other tasks here, and forget the results of workers that nobody has taken."""
        self._workers = None
        again = {*self._given.values(), *(self.elsewhere & self._done.keys())}
        self._done = {number: value for number, value in self._done.items() if number not in again}
        self._waiting |= again
        self._given.clear()

    def drop(self) -> None:
        """Forget all tasks."""
        self._tasks.clear()
        self._waiting.clear()
        self._given.clear()
        self._done.clear()
