"""The swap audit: footprints are right if nobody can tell the order of two ops that do not depend on each other.

In controlled runs of real processes two ops that came one right after the other, and are independent, are swapped (or
all ops are put into another order that leaves only dependent ones in theirs): every op must end as it did before, every
rank tell the same, and the disk be the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, zip_longest
from pathlib import Path
from random import Random

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.model.nouns import Op, Outcome, Point, Returned
from racecheck.model.ops.footprint import Dependence, Footprint, depends
from racecheck.scheduling.happens_before import is_step
from racecheck.scheduling.relation import Relation
from racecheck.scheduling.strategies import RandomWalk, Replay, Strategy
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from racecheck.targets.scenarios import Scenario
from tests.support import soak
from tests.support.targets import target

SCENARIOS = Path(__file__).parents[2] / "scenarios"
PROGRAMS = {"drawn": 18, "close_by": 18, "locked": 10, "shared_offsets": 4, "on_nodes": 8}
REPORTED = {
    "test_openpi_overwrite.py::first_run": 5,
    "test_transformers_rotation.py::racy": 4,
    "test_msswift_symlink.py::racy": 2,
    "test_ddp_last_checkpoint.py::every_rank_writes": 3,
}
"""How often each is swapped."""
_PER_RUN = 5


class Follow(Strategy):
    """Lets the steps go in the given order of threads; ``lost`` says where that was not possible, "" if it was."""

    def __init__(self, order: Sequence[str], relation: Dependence) -> None:
        self._order, self._relation = order, relation
        self._seen = self._done = 0
        self.lost = ""

    def begin(self, rng: Random) -> bool:
        del rng
        self._seen, self._done, self.lost = 0, 0, ""
        return True

    def choose(self, point: Point) -> int:
        for op in steps(point.trace[self._seen :], self._relation):
            if self._done >= len(self._order) or op.thread != self._order[self._done]:
                self.lost = self.lost or f"{op.label} went out of its turn"
            self._done += 1
        self._seen = len(point.trace)
        threads = [op.thread for op in point.options]
        wanted = self._order[self._done] if self._done < len(self._order) else "nobody"
        if wanted in threads and not self.lost:
            return threads.index(wanted)
        self.lost = self.lost or f"{wanted} should go next, but there is: {', '.join(threads)}"
        return 0


def steps(events: Sequence[object], relation: Dependence) -> list[Op]:
    """The ops that are chosen."""
    return [event for event in events if isinstance(event, Op) and is_step(event, relation)]


class Audit:
    """Runs a scenario, and again with its steps in another order."""

    def __init__(self, session: Session, scenario: Scenario, relation: Dependence | None = None) -> None:
        self._session, self._scenario = session, scenario
        self._relation = relation or Relation(scenario.world)
        runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))

    def run(self, strategy: Strategy, seed: str) -> Outcome:
        strategy.begin(Random(f"swaps:{seed}"))
        return runner.run(
            self._session, RunRequest.of(self._scenario, self._scenario.world, strategy, seed=seed, stacks=False)
        )

    def swaps(self, number: int, *, dependent: bool = False, first: int = 0) -> Iterator[tuple[Op, Op, str]]:
        """So many pairs of neighbours of different threads that nothing orders, with what their swap changed."""
        for seed in count(first):
            outcome = self.run(RandomWalk(), str(seed))
            taken = steps(outcome.trace, self._relation)
            pairs = [at for at in range(len(taken) - 1) if self._is_pair(taken[at], taken[at + 1], dependent=dependent)]
            for at in Random(seed).sample(pairs, min(_PER_RUN, len(pairs), number)):
                order = [*range(at), at + 1, at, *range(at + 2, len(taken))]
                yield taken[at], taken[at + 1], self.again(outcome, order, str(seed))
                number -= 1
            if number <= 0:
                return

    def _is_pair(self, one: Op, other: Op, *, dependent: bool) -> bool:
        return not _follows(one, other) and self._depend(one, other) == dependent

    def _depend(self, one: Op, other: Op) -> bool:
        return depends(self._relation.footprint(one), self._relation.footprint(other))

    def shuffles(self, number: int) -> Iterator[str]:
        """Runs in another order of everything that is independent, with what that changed."""
        for seed in range(number):
            outcome = self.run(RandomWalk(), str(seed))
            yield self.again(outcome, self._shuffled(steps(outcome.trace, self._relation), Random(seed)), str(seed))

    def _shuffled(self, taken: Sequence[Op], rng: Random) -> list[int]:
        footprints = [self._relation.footprint(op) for op in taken]
        before = [
            {at for at in range(end) if _follows(taken[at], taken[end]) or depends(footprints[at], footprints[end])}
            for end in range(len(taken))
        ]
        order: list[int] = []
        left = set(range(len(taken)))
        while left:
            free = sorted(each for each in left if before[each].isdisjoint(left))
            order.append(rng.choice([*free, free[-1]]))
            left.remove(order[-1])
        return order

    def again(self, outcome: Outcome, order: Sequence[int], seed: str) -> str:
        """What is different if the steps go in this order, "" for nothing."""
        taken = steps(outcome.trace, self._relation)
        follow = Follow([taken[each].thread for each in order], self._relation)
        swapped = self.run(follow, seed)
        return follow.lost or next(_differences(outcome, swapped), "")


def _follows(one: Op, other: Op) -> bool:
    """Whether a later op comes after an earlier one whatever they do."""
    return one.thread == other.thread or other.clock.get(one.thread, 0) >= one.clock[one.thread]


def _differences(one: Outcome, other: Outcome) -> Iterator[str]:
    first, second = _by_thread(one), _by_thread(other)
    same: dict[tuple[str, int], int] = {}
    for thread in sorted({*first, *second}):
        for number, (before, after) in enumerate(zip_longest(first.get(thread, []), second.get(thread, [])), start=1):
            if before is None or after is None or _told(before) != _told(after):
                yield f"op {number} of {thread}: {before and _told(before)}, swapped {after and _told(after)}"
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


def _told(op: Op) -> tuple[object, ...]:
    """An op and its result.  What a file that is open is called now does not matter to who uses it, nor has one that
    O_TMPFILE made a name of its own.
    """
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


def check_swaps(audit: Audit, number: int, first: int = 0) -> None:
    found = [*audit.swaps(number, first=first)]
    assert len(found) == number
    wrong = [f"{one.label} and {other.label}: {difference}" for one, other, difference in found if difference]
    assert not wrong, "\n".join(wrong)


def reported(name: str) -> Scenario:
    return resolve.load(f"{SCENARIOS}/{name}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_neighbours_of_random_programs_can_be_swapped(session: Session, name: str) -> None:
    check_swaps(Audit(session, target("swaps", name)), PROGRAMS[name])


@pytest.mark.parametrize("name", REPORTED)
def test_neighbours_of_reported_races_can_be_swapped(session: Session, name: str) -> None:
    check_swaps(Audit(session, reported(name)), REPORTED[name])


class Without(Relation):
    """Knows nothing of one sort of locations."""

    def __init__(self, scenario: Scenario, kind: str) -> None:
        super().__init__(scenario.world)
        self._kind = kind

    def footprint(self, op: Op) -> Footprint:
        return {where: mode for where, mode in super().footprint(op).items() if where.kind != self._kind}


def test_the_audit_notices_what_a_footprint_leaves_out(session: Session) -> None:
    scenario = target("swaps", "close_by")
    found = Audit(session, scenario, Without(scenario, "entry")).swaps(60)
    assert any(difference for *_, difference in found)


def test_an_op_by_way_of_a_link_that_leads_out(session: Session) -> None:
    """The op that replaces the link decides where it leads; what happens outside is the kernel's, and is named."""
    outcome = Audit(session, target("swaps", "way_out")).run(RandomWalk(), "0")
    assert outcome.results == (Returned(["somewhere else", 14]),)
    assert [(op.call, op.result and op.result.known) for op in outcome.ops if op.places[-1].through == ("out",)] == [
        ("open", False), ("open", False), ("stat", True),
    ]  # fmt: skip
    [(path, who)] = outcome.outside.items()
    assert path.endswith("/outside-by-link")
    assert who == "rank 0 open, rank 0 unlink"
    assert not outcome.coverage.holes


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_many_neighbours_of_random_programs(session: Session, name: str) -> None:
    check_swaps(Audit(session, target("swaps", name)), 2 * PROGRAMS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTED)
def test_many_neighbours_of_reported_races(session: Session, name: str) -> None:
    check_swaps(Audit(session, reported(name)), 2 * REPORTED[name])


@pytest.mark.soak
@pytest.mark.parametrize("name", [*PROGRAMS, *REPORTED])
def test_fresh_neighbours(session: Session, name: str) -> None:
    audit = Audit(session, reported(name) if "::" in name else target("swaps", name))
    for seed in soak.seeds():
        check_swaps(audit, 5, first=1000 * seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PROGRAMS, *REPORTED])
def test_everything_independent_in_another_order(session: Session, name: str) -> None:
    scenario = reported(name) if "::" in name else target("swaps", name)
    assert [each for each in Audit(session, scenario).shuffles(8) if each] == []
