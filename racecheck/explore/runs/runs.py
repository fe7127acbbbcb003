"""Tasks with numbers, whose results come in any order that is asked for, whoever carries them out."""

from __future__ import annotations

import pickle
import time
from typing import Any

from racecheck.explore.runs.tasks import Task
from racecheck.explore.runs.workers import Workers
from racecheck.model import config
from racecheck.model.errors import OutOfTime
from racecheck.processes.session import Session

_PATIENCE = 2.0
"""Seconds before workers start their sessions: what ends sooner needs none."""


class Runs:
    """Carries out tasks of one target here, in ``session``, and in ``workers`` if there are any."""

    def __init__(self, session: Session, target: str, workers: Workers | None = None) -> None:
        self._session, self._target, self._workers = session, target, workers
        self._begun = time.monotonic()
        self._tasks: dict[int, bytes] = {}
        """Those whose result nobody has taken, pickled.  Each is waiting, given to a worker, or done."""
        self._waiting: set[int] = set()
        self._given: set[int] = set()
        self._done: dict[int, Any] = {}
        self.elsewhere: set[int] = set()
        """The tasks that a worker has done."""
        self._base = 0
        """What is added to a number for workers, who may still be at tasks that were dropped."""

    @property
    def has_workers(self) -> bool:
        """Return whether a task may be carried out elsewhere."""
        return self._workers is not None and len(self._workers) > 0

    def __contains__(self, number: int) -> bool:
        return number in self._tasks

    def submit(self, number: int, task: Task[Any]) -> None:
        """Add a task; the numbers of one set of tasks differ."""
        self._tasks[number] = pickle.dumps(task)
        self._waiting.add(number)

    def result(self, number: int) -> Any:
        """Return the result of a task, and carry out tasks until it is there; raises what the task raises here.

        What a worker cannot do is done here.  Raises `OutOfTime` as a run does.
        """
        while number not in self._done:
            self.feed()
            if number in self._done:
                break
            mine = number if number in self._waiting else min(self._waiting, default=None)
            if mine is None:
                self._collect(wait=True)
                continue
            self._waiting.remove(mine)
            task: Task[Any] = pickle.loads(self._tasks[mine])  # noqa: S301  (this process has pickled it)
            self._done[mine] = task.run(self._session)
        del self._tasks[number]
        return self._done.pop(number)

    def feed(self) -> None:
        """Take the results that are there, and give tasks to workers."""
        if self._workers is None or time.monotonic() - self._begun < _PATIENCE:
            return
        if self._waiting:
            self._workers.open(config.read(), self._target)
        self._collect(wait=False)
        for worker in self._workers.free():
            if not self._waiting or (worker.numbers and len(self._waiting) <= len(self._workers)):
                return
            number = min(self._waiting)
            self._waiting.remove(number)
            self._given.add(number)
            self._workers.give(worker, self._base + number, self._tasks[number])

    def _collect(self, *, wait: bool) -> None:
        """Take the results that are there, or wait for one until the time of the session is up."""
        assert self._workers is not None
        until = self._session.until
        answers = self._workers.answers(max(0.0, until - time.monotonic()) if wait else 0.0)
        if wait and not answers and time.monotonic() >= until:
            raise OutOfTime
        for answer in answers:
            number = answer.number - self._base
            if number not in self._given:
                continue
            self._given.remove(number)
            if answer.is_lost:
                self._waiting.add(number)
            else:
                self._done[number] = answer.value
                self.elsewhere.add(number)

    def stay_here(self) -> None:
        """Carry out here what is left, and what a worker has done if that result was not taken."""
        self._workers = None
        again = {*self._given, *(self.elsewhere & self._done.keys())}
        self._done = {number: value for number, value in self._done.items() if number not in again}
        self._waiting |= again
        self._given.clear()

    def drop(self) -> None:
        """Forget all tasks."""
        self._base += max(self._tasks, default=0) + 1
        self._tasks.clear()
        self._waiting.clear()
        self._given.clear()
        self._done.clear()
