"""The swap audit: what two ops touch is true if nobody can tell the order of those that do not depend on each other.

In controlled runs of real processes two ops that came one right after the other, and are independent, are swapped:
every op must end as it did before, every rank tell the same, and the disk be the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from random import Random

from racecheck import runner, storage
from racecheck.dependence import depends
from racecheck.happens_before import is_step
from racecheck.model import Op, Outcome, Point, Returned
from racecheck.storage import Storage
from racecheck.strategies import Strategy
from racecheck.targets import Scenario
from racecheck.world.session import Session

Key = tuple[str, int]
"""A thread, and which of its steps."""


class Follow:
    """Lets the steps go in a given order; ``lost`` says where that was not possible, "" if it was."""

    def __init__(self, order: Sequence[Key], storage_: Storage) -> None:
        self._order, self._storage = [*order], storage_
        self.lost = ""

    def begin(self, rng: Random) -> bool:
        self._done: dict[str, int] = {}
        self._seen = 0
        self.lost = ""
        return True

    def choose(self, point: Point) -> int:
        for op in steps(point.trace[self._seen :], self._storage):
            self._done[op.thread] = self._done.get(op.thread, 0) + 1
        self._seen = len(point.trace)
        wanted = next((thread for thread, number in self._order if self._done.get(thread, 0) < number), "")
        threads = [op.thread for op in point.options]
        if wanted in threads:
            return threads.index(wanted)
        self.lost = self.lost or f"{wanted or 'nobody'} should go next, but there is: {', '.join(threads)}"
        return 0

    def end(self, outcome: Outcome) -> None:
        pass

    def claim(self) -> str:
        return ""


def steps(events: Sequence[object], storage_: Storage) -> list[Op]:
    """The ops that are chosen."""
    return [event for event in events if isinstance(event, Op) and is_step(event, storage_)]


class Audit:
    """Runs a scenario and swaps neighbours in what comes of it."""

    def __init__(self, session: Session, scenario: Scenario) -> None:
        self.session, self.scenario = session, scenario
        self.storage = storage.make(scenario.world)
        runner.warm_up(session, scenario, scenario.world, seed="0")

    def run(self, strategy: Strategy, seed: str) -> Outcome:
        strategy.begin(Random(f"swaps:{seed}"))
        return runner.run_once(self.session, self.scenario, self.scenario.world, strategy, seed=seed, stacks=False)

    def neighbours(self, outcome: Outcome, *, dependent: bool = False) -> list[int]:
        """Where two ops of different threads follow each other that nothing orders."""
        taken = steps(outcome.trace, self.storage)
        return [
            at
            for at, (one, other) in enumerate(pairwise(taken))
            if one.thread != other.thread
            and other.clock.get(one.thread, 0) < one.clock[one.thread]
            and depends(self.storage.footprint(one), self.storage.footprint(other)) == dependent
        ]

    def swap(self, outcome: Outcome, at: int, seed: str) -> str:
        """Run once more with the steps ``at`` and after it swapped; gives what is different then, "" for nothing."""
        order = keys(steps(outcome.trace, self.storage))
        order[at : at + 2] = order[at + 1], order[at]
        follow = Follow(order, self.storage)
        again = self.run(follow, seed)
        return follow.lost or difference(outcome, again)


def keys(taken: Sequence[Op]) -> list[Key]:
    counts: dict[str, int] = {}
    for op in taken:
        counts[op.thread] = counts.get(op.thread, 0) + 1
    found, seen = [], dict.fromkeys(counts, 0)
    for op in taken:
        seen[op.thread] += 1
        found.append((op.thread, seen[op.thread]))
    return found


def difference(one: Outcome, other: Outcome) -> str:
    """How two runs differ, thread by thread; "" if they do not."""
    return next(_differences(one, other), "")


def _differences(one: Outcome, other: Outcome) -> Iterator[str]:
    first, second = _by_thread(one), _by_thread(other)
    same: dict[tuple[str, int], int] = {}
    for thread in sorted({*first, *second}):
        for number, (before, after) in enumerate(zip_longest(first.get(thread, []), second.get(thread, [])), start=1):
            if before is None or after is None or _told(before) != _told(after):
                yield f"op {number} of {thread}: {_told(before)}, swapped {_told(after)}"
                return
            for kind, mine, theirs in _identities(before, after):
                if same.setdefault((kind, mine), theirs) != theirs:
                    yield f"op {number} of {thread}: {before.label} is about another {kind}"
    for rank, (ended, ends) in enumerate(zip_longest(one.results, other.results)):
        if _end(ended) != _end(ends):
            yield f"rank {rank} ended with {ended}, swapped {ends}"
    for path in sorted({*one.disk, *other.disk}):
        if one.disk.get(path) != other.disk.get(path):
            yield f"on disk {path} is {one.disk.get(path)}, swapped {other.disk.get(path)}"


def _by_thread(outcome: Outcome) -> dict[str, list[Op]]:
    found: dict[str, list[Op]] = {}
    for op in outcome.ops:
        found.setdefault(op.thread, []).append(op)
    return found


def _told(op: Op | None) -> tuple[object, ...]:
    """An op and its result.  What a file that is open is called now does not matter to who uses it, nor has one that
    O_TMPFILE made a name of its own.
    """
    if op is None:
        return ("the end",)
    unnamed = [place.open_file or place.name.startswith("#") for place in op.places]
    places = [
        place.kind if has_no_name else (place.kind, place.path, place.through)
        for place, has_no_name in zip(op.places, unnamed, strict=True)
    ]
    return op.call, op.syscall, op.flags, dict(op.args), places, op.result


def _identities(one: Op, other: Op) -> Iterator[tuple[str, int, int]]:
    for mine, theirs in zip(one.places, other.places, strict=True):
        yield "object", mine.inode, theirs.inode
        yield "object", mine.directory, theirs.directory
        yield "open file", mine.open_file, theirs.open_file


def _end(result: object) -> object:
    return result.value if isinstance(result, Returned) else type(result).__name__
