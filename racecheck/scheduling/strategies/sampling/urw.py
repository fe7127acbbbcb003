"""A random walk that is uniform over interleavings: a thread with more ops left goes more often.

Zhao, Wolff, Mathur, Roychoudhury: "Selectively Uniform Concurrency Testing", ASPLOS 2025, without the selection.  If
what is left is known exactly and no thread waits, every interleaving is as probable as any other.  At a collective
threads do wait for each other, so what counts is what is left until the thread's next one (the paper counts whole
runs).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

from racecheck.model.nouns import Event, Op, Outcome, Point
from racecheck.scheduling.strategies.sampling.rounds import Learner


@dataclass(slots=True)
class _Mean:
    total: int = 0
    count: int = 0

    def add(self, value: int) -> None:
        self.total += value
        self.count += 1

    @property
    def value(self) -> float:
        return self.total / self.count


class _ThreadProgress:
    """Progress of threads: for each the number of its collectives, and of its ops since the last one."""

    def __init__(self) -> None:
        self.at: dict[str, tuple[int, int]] = {}
        self._ops: dict[str, int] = defaultdict(int)

    def add(self, event: Event) -> None:
        """Return the number of ops and collectives in a thread's clock."""
        if isinstance(event, Op):
            thread = event.thread
            self._ops[thread] += 1
            issued = event.clock.get(thread, 0) - self._ops[thread]
            before, done = self.at.get(thread, (issued, 0))
            self.at[thread] = (issued, done + 1 if issued == before else 1)


class URW(Learner[Mapping[tuple[str, int], int]]):
    """Hits bugs that many places can show, in threads that are alike.

    How many ops a thread has between collectives is learnt from the runs, as their mean, in rounds; the first run is a
    plain random walk.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lengths: dict[str, dict[int, _Mean]] = {}

    def begin(self, rng: Random) -> bool:
        self._rng = rng
        self._progress, self._seen = _ThreadProgress(), 0
        return True

    def choose(self, point: Point) -> int:
        for event in point.trace[self._seen :]:
            self._progress.add(event)
        self._seen = len(point.trace)
        weights = [self._left(option.thread) for option in point.options]
        return self._rng.choices(range(len(weights)), weights)[0]

    def _left(self, thread: str) -> float:
        """Return how many ops a thread probably has before its next collective: at least one, since it is at one."""
        issued, done = self._progress.at.get(thread, (0, 0))
        lengths = self._lengths.get(thread, {})
        left = lengths[issued].value - done if issued in lengths else 0.0
        if left <= 0.0:  # it may have passed a collective already, which its next op will show
            left = next((lengths[each].value for each in sorted(lengths) if each > issued), 1.0)
        return max(1.0, left)

    def end(self, outcome: Outcome) -> None:
        """Learn from a run, which may be another strategy's."""
        progress = _ThreadProgress()
        last: dict[tuple[str, int], int] = {}
        for op in outcome.ops:
            progress.add(op)
            issued, done = progress.at[op.thread]
            last[op.thread, issued] = done
        self.learn(self.rounds.add(last))

    def learn(self, lessons: Iterable[Mapping[tuple[str, int], int]]) -> None:
        for lengths in lessons:
            for (thread, issued), length in lengths.items():
                self._lengths.setdefault(thread, {}).setdefault(issued, _Mean()).add(length)
