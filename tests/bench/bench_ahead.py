"""How many processors a proof can use, by simulation: the real search, with simulated workers and simulated time.

    python tests/bench/bench_ahead.py [--writes N]... [--jobs N]... [--schedules N]

Ranks write to one file, N times each, so a proof needs one run for each order of the writes.  A run takes 50 ms, to
take a worker's run 2 ms (`RUN`, `TAKE`: seconds), and workers are there at once.  "busy" is the share of the time in
which processors make runs that the search takes.  A worker that is lost (`--lose N`) loses its task each N seconds.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest import mock

from racecheck.explore.ahead import Ahead
from racecheck.explore.requests import RunRequest
from racecheck.explore.runner import Progress
from racecheck.explore.runs import tasks
from racecheck.explore.runs.runs import Runs
from racecheck.explore.runs.tasks import Task
from racecheck.model.nouns import Outcome
from racecheck.scheduling.relation import Relation
from racecheck.scheduling.strategies import DPOR
from tests.generated.programs import Program
from tests.generated.toy import Toy, world_of
from tests.support import early_runs

RUN, TAKE = 0.050, 0.002
FAR = 10**9
QUEUE = 2


@dataclass
class Clock:
    """The time of whoever is carrying out something."""

    now: float = 0.0


@dataclass
class Worker:
    free: float = 0.0
    queue: list[tuple[int, float, Any]] = field(default_factory=list)
    """Its tasks: number, end, result."""


@dataclass
class Simulated(Runs):
    """``clock`` is the time of the process that proves."""

    clock: Clock
    workers: list[Worker]
    lose: float = 0.0
    waiting: dict[int, tuple[bytes, float]] = field(default_factory=dict)
    done: dict[int, Any] = field(default_factory=dict)
    losses: int = 0
    made: int = 0
    """How many runs tasks have made."""

    @property
    def room(self) -> int:
        self.feed()
        return len(self.workers) * QUEUE - sum(len(each.queue) for each in self.workers) - len(self.waiting)

    def submit(self, number: int, task: Task[Any], cost: float = 0.0) -> None:
        self.waiting[number] = pickle.dumps(task), cost

    def feed(self) -> None:
        """Take the results that are there by now, and give tasks to workers."""
        for worker in self.workers:
            while worker.queue and worker.queue[0][1] <= self.clock.now:
                number, _, result = worker.queue.pop(0)
                self.done[number] = result
        for worker in sorted(self.workers, key=lambda each: len(each.queue)):
            if self.waiting and len(worker.queue) < QUEUE:
                self._give(worker)

    def _give(self, worker: Worker) -> None:
        number = min(self.waiting, key=lambda each: (-self.waiting[each][1], each))
        task, _ = self.waiting.pop(number)
        before, start = self.clock.now, max(self.clock.now, worker.free)
        self.clock.now = start
        result = self._carried_out(task)
        worker.free = self.clock.now
        if self.lose and worker.free // self.lose > start // self.lose:
            self.losses += 1
            result = [], pickle.loads(task).subtrees
        worker.queue.append((number, worker.free, result))
        self.clock.now = before

    def _carried_out(self, task: bytes) -> Any:
        result = pickle.loads(task).run(None)
        self.made += len(result[0])
        return result

    def is_done(self, number: int) -> bool:
        self.feed()
        return number in self.done

    def withdraw(self, number: int) -> bool:
        self.feed()
        return self.waiting.pop(number, None) is not None

    def wait(self) -> None:
        self.clock.now = min(each.queue[0][1] for each in self.workers if each.queue)
        self.feed()

    def result(self, number: int, tell: Progress | None = None) -> Any:
        del tell
        self.feed()
        while number not in self.done:
            if self.waiting:
                mine = min(self.waiting, key=lambda each: (-self.waiting[each][1], each))
                self.done[mine] = self._carried_out(self.waiting.pop(mine)[0])
            else:
                self.clock.now = min(each.queue[0][1] for each in self.workers if each.queue)
            self.feed()
        return self.done.pop(number)


@contextmanager
def in_memory(clock: Clock) -> Iterator[None]:
    """Let tasks make runs in memory, in simulated time."""

    def run(_: object, request: RunRequest) -> Outcome:
        clock.now += RUN
        return early_runs.run(None, request)

    with (
        mock.patch.object(tasks, "run", run),
        mock.patch.object(tasks, "warm_up"),
        mock.patch.object(tasks.time, "monotonic", side_effect=lambda: clock.now),
    ):
        yield


def prove(program: Program, jobs: int, most: int, lose: float) -> tuple[int, int, float, Simulated]:
    """Return how many runs a proof has, how many of them tasks have made, its seconds, and who made them."""
    clock = Clock()
    runs = Simulated(clock, [Worker() for _ in range(jobs - 1)], lose)

    ahead, strategy, made = Ahead(runs, early_runs.requests_of(program)), DPOR(Relation(world_of(program))), 0
    with in_memory(clock):
        while made < most:
            if jobs > 1:
                ahead.offer(strategy, most - made)
                runs.feed()
            if not strategy.begin(Random(0)):
                break
            outcome = ahead.take(strategy, most - made)
            clock.now += TAKE
            if outcome is None:
                clock.now += RUN
                outcome, _ = Toy(program, strategy.choose).run()
            strategy.end(outcome)
            made += 1
    return made, ahead.taken, clock.now, runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writes", type=int, action="append", help="of one rank; repeatable (3, 3 and 3)")
    parser.add_argument("--jobs", type=int, action="append", help="a number of jobs; repeatable (1, 2, 4, 8, 16, 64)")
    parser.add_argument("--schedules", type=int, default=FAR, metavar="N", help="the most runs (as many as it takes)")
    parser.add_argument("--lose", type=float, default=0.0, metavar="SECONDS", help="a task is lost so often (never)")
    given = parser.parse_args()
    block = (("open", "a"), ("write", "a", "x"))
    program = Program(tuple(block[:1] + block[1:] * count for count in given.writes or (3, 3, 3)), files=(("a", "0"),))
    first = 0.0
    for jobs in given.jobs or (1, 2, 4, 8, 16, 64):
        made, taken, seconds, runs = prove(program, jobs, given.schedules, given.lose)
        first = first or seconds
        busy = made * RUN / seconds / jobs
        print(
            f"jobs {jobs:3}: {made} runs, {taken} made early, {runs.made - taken} in vain; {seconds:6.1f} s,"
            f" {first / seconds:5.2f} times as fast, {busy:.0%} busy"
            + (f", {runs.losses} tasks lost" if given.lose else ""),
            flush=True,
        )


if __name__ == "__main__":
    main()
