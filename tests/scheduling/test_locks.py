"""Locks of every kind under "dpor": against brute force on toy programs, and on real ranks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

import pytest

from racecheck import InternalError, World, storage
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.invariants import no_deadlock
from racecheck.model.nouns import Op, Outcome, Returned, Verdict, Violation
from racecheck.model.ops.lock_ops import apply, lock_of
from racecheck.model.ops.locks import EXCLUSIVE, Lock, Locks
from racecheck.scheduling.happens_before import Order
from racecheck.scheduling.strategies import DPOR
from racecheck.sessions.session import Session
from tests.support import soak, toys
from tests.support.builders import op, use
from tests.support.targets import target
from tests.support.toy_searches import Blind, runs, searched
from tests.support.toys import Do, Program

KINDS = ("flock", "posix", "ofd")
SPANS = ((0, 0), (0, 4), (2, 4), (4, 0))
MOST = 400


def request(rng: Random, path: str, kind: str) -> Do:
    what = rng.choices(("lock", "trylock", "unlock"), (5, 2, 3))[0]
    span = rng.choice(SPANS) if kind != "flock" and rng.random() < 0.5 else (0, 0)
    then = (Do("write", "a", rng.choice("12")),) if what == "trylock" else ()
    return Do(what, path, mode=rng.choice(("EX", "SH")), kind=kind, span=span, then=then)


def steps(rng: Random, count: int, kinds: tuple[str, ...], paths: tuple[str, ...]) -> tuple[Do, ...]:
    found = [request(rng, rng.choice(paths), rng.choice(kinds)) for _ in range(count)]
    if rng.random() < 0.5:
        found.insert(rng.randint(0, count), Do("close", rng.choice(paths)))
    if rng.random() < 0.5:
        found.insert(rng.randint(0, count), Do("stat", "a") if rng.random() < 0.5 else Do("write", "a", "3"))
    return tuple(found)


def nested(rng: Random, kinds: tuple[str, ...]) -> tuple[Do, ...]:
    """Two locks, in one order or the other, and back again or kept to the end."""
    locks = [
        Do("lock", path, mode=rng.choice(("EX", "EX", "SH")), kind=rng.choice(kinds))
        for path in rng.sample(("l", "m"), 2)
    ]
    back = tuple(replace(each, what="unlock") for each in locks) if rng.random() < 0.5 else ()
    return (*locks, *back)


def random_locks(seed: int) -> Program:
    """A program of 2 or 3 actors that lock one file or two, with few enough interleavings for brute force."""
    rng = Random(f"locks {seed}")
    while True:
        kinds = rng.choice((("flock",), ("posix",), ("posix",), ("ofd",), ("posix", "ofd"), KINDS))
        paths = rng.choice((("l",), ("l", "m")))
        count = rng.choice((2, 2, 3))
        is_nested = rng.random() < 0.4
        actors = tuple(
            nested(rng, kinds) if is_nested else steps(rng, rng.randint(2, 4 if count == 2 else 3), kinds, paths)
            for _ in range(count)
        )
        program = Program(actors, files=(("a", "old"),), inherited=("l", "m"))
        if 6 <= sum(1 for _ in islice(toys.every_run(program), MOST + 1)) <= MOST:
            return program


def check(seeds: range) -> tuple[int, int]:
    """The runs made in all, and those of them that were redundant."""
    made = redundant = 0
    for seed in seeds:
        program = random_locks(seed)
        strategy, found = searched(program)
        every = [*toys.every_run(program)]
        assert {toys.effect(each) for each in found} == {toys.effect(each) for each in every}, f"seed {seed}"
        assert {toys.trace_of(each) for each in found} == {toys.trace_of(each) for each in every}, f"seed {seed}"
        assert strategy.is_proof
        made += strategy.progress.traces + strategy.progress.redundant
        redundant += strategy.progress.redundant
    return made, redundant


def test_all_outcomes_and_traces_of_programs_with_locks_are_found() -> None:
    made, redundant = check(range(8))
    assert redundant < made / 20


@pytest.mark.parametrize(("kind", "first"), [("lock", 53), ("record", 18), ("waits", 55)])
def test_a_footprint_that_overlooks_locks_is_noticed(kind: str, first: int) -> None:
    """The comparison with brute force is one that can fail."""

    def misses(seed: int) -> bool:
        program = random_locks(seed)
        try:
            found = {toys.effect(each) for each in runs(program, DPOR(Blind(kind)))}
        except InternalError:
            return True
        return found != {toys.effect(each) for each in toys.every_run(program)}

    assert any(map(misses, range(first, first + 5)))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1025, 25))
def test_all_outcomes_of_many_programs_with_locks_are_found(first: int) -> None:
    made, redundant = check(range(first, first + 25))
    assert redundant < made / 20


@pytest.mark.soak
def test_all_outcomes_of_fresh_programs_with_locks_are_found() -> None:
    for seed in soak.seeds():
        check(range(seed, seed + 1))


def flock(label: str, file: int, mode: str, **fields: Any) -> Op:
    return use(label, file, inode=7, flags=(f"LOCK_{mode}",), **fields)


def record(label: str, mode: str, **fields: Any) -> Op:
    return use(label, 1, inode=7, flags=(f"LOCK_{mode}", "F_SETLKW"), syscall="fcntl", **fields)


def races(*ops: Op) -> list[list[int]]:
    """For each op, as the next one of its thread, the earlier ones that it could go before."""
    order, counts = Order(storage.make(World())), Counter[str]()
    for each in ops:
        counts[each.thread] += 1
        order.add(replace(each, clock={each.thread: counts[each.thread]}))
    return [[*step.races] for step in order.steps]


def test_the_end_of_a_process_gives_its_locks_back() -> None:
    end = use("0 exit lock", 1, inode=7, flags=("LOCK_UN",))
    taken, waited = flock("0 flock lock", 1, "EX"), flock("1 flock lock", 2, "EX")
    assert races(taken, end, waited) == [[], [], [0]]
    assert races(record("0 flock lock", "EX"), end, record("1 flock lock", "EX")) == [[], [], [0]]
    tried = replace(waited, flags=("LOCK_EX", "LOCK_NB"))
    assert races(taken, end, tried) == [[], [], [1]]


def test_an_end_gives_back_an_open_file_only_with_its_last_descriptor() -> None:
    end = use("0 exit lock", 1, inode=7, flags=("LOCK_UN",), args={"last": 0})
    locks = Locks()
    for each in (flock("0 flock lock", 1, "EX"), end):
        apply(each, locks)
    assert [lock.owner for lock in locks.held] == [("file", 1)]
    apply(replace(end, args={"last": 1}), locks)
    assert locks.held == []


def test_processes_of_a_rank_own_their_record_locks() -> None:
    locks = Locks()
    apply(record("0 flock lock", "EX"), locks)
    child = lock_of(record("0.1 flock lock", "EX", args={"process": 1}))
    assert child is not None
    assert locks.conflict(child) is not None
    apply(use("0.1 close lock", 1, inode=7, flags=("LOCK_UN",), args={"process": 1}), locks)
    assert locks.conflict(child) is not None
    apply(use("0 close lock", 1, inode=7, flags=("LOCK_UN",)), locks)
    assert locks.conflict(child) is None


def test_a_lock_of_a_killed_rank_comes_after_all_that_the_rank_did() -> None:
    order = Order(storage.make(World()))
    order.extend([
        flock("0 flock lock", 1, "EX", clock={"0": 1}), op("0 mkdir a", clock={"0": 2}),
        flock("1 flock lock", 2, "EX", clock={"1": 1}),
    ])  # fmt: skip
    assert order.before(1, 2)


def test_the_kernel_follows_processes_that_wait_and_no_others() -> None:
    locks = Locks()
    one, other = Lock("posix", 1, "one", EXCLUSIVE), Lock("posix", 2, "other", EXCLUSIVE)
    locks.set(one)
    locks.set(other)
    wants, wanted = replace(one, owner="other"), replace(other, owner="one")
    assert not locks.is_deadlock(wants)
    locks.begin(wanted)
    assert locks.is_deadlock(wants)
    assert not locks.is_deadlock(replace(wants, kind="ofd"))
    locks.release("one")
    assert locks.conflict(wants) is None


LOST = {("", ""), ("", "0"), ("1", "")}
"""What two ranks read before they append their number: without a lock between them, both may read nothing."""
REAL = {
    "under_a_whole_lock": {("", "0"), ("1", "")},
    "under_shared_locks": LOST,
    "under_shared_record_locks": LOST,
    "under_locks_of_own_bytes": LOST,
    "under_locks_of_two_kinds": LOST,
    "busy_to_the_end": {("had", "had"), ("had", "busy")},
    "record_busy_to_the_end": {("had", "had"), ("had", "busy")},
    "circle": {("had", "had"), ("EDEADLK", "had"), ("had", "EDEADLK")},
    "converted": {("had", "had"), ("had", "busy")},
}


@pytest.mark.parametrize("name", REAL)
def test_every_order_of_real_locks_is_explored(session: Session, name: str) -> None:
    found: set[tuple[object, ...]] = set()

    def collect(outcome: Outcome) -> list[Violation]:
        found.add(tuple(each.value if isinstance(each, Returned) else each for each in outcome.results))
        return []

    scenario = target("locking", name)
    asked = Search(scenario, scenario.world, (collect, no_deadlock), strategy="dpor", schedules=2000, keep_going=True)
    report = explore(session, asked)
    assert found == REAL[name]
    assert report.exhaustive
    assert report.verdict is Verdict.PASS
