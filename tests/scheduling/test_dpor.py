"""DPOR against brute force: random small programs in memory, and real worlds with claims that are known."""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random

import pytest

from racecheck import InternalError, Returned, World, storage
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.scheduling.strategies import DPOR, Diverged
from racecheck.sessions.session import Session
from tests.support import soak, toys
from tests.support.targets import target
from tests.support.toy_searches import Blind, runs, searched
from tests.support.toys import Do, Program, Seen


def faulty(rng: Random, most: int) -> Program:
    return toys.with_faults(toys.random_program(rng, most), rng)


def compare(seeds: range, most: int, draw: Callable[[Random, int], Program] = toys.random_program) -> tuple[int, int]:
    """Programs against brute force; returns the runs made in all, and those of them that were redundant."""
    made = redundant = 0
    for seed in seeds:
        program = draw(Random(seed), most)
        strategy, found = searched(program)
        every = [*toys.every_run(program)]
        assert {toys.effect(each) for each in found} == {toys.effect(each) for each in every}, f"seed {seed}"
        assert {toys.trace_of(each) for each in found} == {toys.trace_of(each) for each in every}, f"seed {seed}"
        assert strategy.is_proof
        made, redundant = (
            made + strategy.progress.traces + strategy.progress.redundant,
            redundant + strategy.progress.redundant,
        )
        assert strategy.progress.traces == len({toys.trace_of(each) for each in found}), f"seed {seed}: a trace twice"
    return made, redundant


def test_all_outcomes_and_all_traces_are_found_each_once() -> None:
    made, redundant = compare(range(50), 600)
    assert redundant < made / 100


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1200, 100))
def test_all_outcomes_of_many_programs_are_found(first: int) -> None:
    made, redundant = compare(range(first, first + 100), 800)
    assert redundant < made / 100


def test_all_outcomes_with_faults_are_found() -> None:
    made, redundant = compare(range(50), 300, faulty)
    assert redundant < made / 20


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1200, 100))
def test_all_outcomes_of_many_programs_with_faults_are_found(first: int) -> None:
    made, redundant = compare(range(first, first + 100), 600, faulty)
    assert redundant < made / 20


@pytest.mark.soak
@pytest.mark.parametrize("draw", [toys.random_program, faulty])
def test_all_outcomes_of_fresh_programs_are_found(draw: Callable[[Random, int], Program]) -> None:
    for seed in soak.seeds():
        compare(range(seed, seed + 1), 600, draw)


@pytest.mark.parametrize("kind", ["entry", "content", "listing", "lock"])
def test_a_footprint_that_overlooks_something_is_noticed(kind: str) -> None:
    """The comparison with brute force is one that can fail."""
    missed = 0
    for seed in range(60):
        program = toys.random_program(Random(seed), 300)
        try:
            found = {toys.effect(each) for each in runs(program, DPOR(Blind(kind)))}
        except InternalError:
            missed += 1
        else:
            missed += found != {toys.effect(each) for each in toys.every_run(program)}
    assert missed


def program(*actors: list[Do]) -> Program:
    return Program(tuple(tuple(each) for each in actors))


def test_independent_ops_are_one_trace() -> None:
    strategy, found = searched(program([Do("mkdir", "a"), Do("stat", "a")], [Do("mkdir", "b"), Do("stat", "b")]))
    assert len(found) == 1
    assert str(strategy.claim()) == "EXHAUSTED: 1 trace, 0 redundant"


def test_a_barrier_orders() -> None:
    strategy, found = searched(program([Do("mkdir", "a"), Do("barrier")], [Do("barrier"), Do("stat", "a")]))
    assert (len(found), strategy.is_proof) == (1, True)


def test_a_search_that_is_cut_says_what_is_left() -> None:
    strategy = DPOR(storage.make(World()))
    next(runs(program([Do("mkdir", "a")], [Do("mkdir", "a")]), strategy))
    assert str(strategy.claim()) == "INCOMPLETE: 1 branch left to try, about 50% done; 1 trace, 0 redundant"
    assert not strategy.is_proof


def test_what_does_not_repeat_is_no_result() -> None:
    """The second run finds another program."""
    strategy = DPOR(storage.make(World()))
    next(runs(program([Do("mkdir", "a"), Do("stat", "a")], [Do("mkdir", "a")]), strategy))
    with pytest.raises(Diverged, match="step 0"):
        next(runs(program([Do("mkdir", "b"), Do("stat", "a")], [Do("mkdir", "b")]), strategy))


def polling() -> Generator[Do, Seen, None]:
    while (yield Do("stat", "a")).errno:
        yield Do("sleep")
    yield Do("mkdir", "b")


def spinning() -> Generator[Do, Seen, None]:
    while (yield Do("stat", "a")).errno:
        pass
    yield Do("mkdir", "b")


@pytest.mark.parametrize("wait", [polling, spinning])
def test_loops_that_poll_come_to_an_end(wait: Callable[[], Generator[Do, Seen, None]]) -> None:
    """What matters is not how often they ask in vain, but whether they do, and who is first when it is there."""
    maker = (Do("mkdir", "c"), Do("stat", "b"), Do("mkdir", "a"), Do("stat", "b"))
    strategy, found = searched(Program((maker, wait, wait), max_ops=300))
    assert not strategy.is_proof
    assert str(strategy.claim()).startswith("INCOMPLETE: a thread polls; what it does when it gives up was not tried")
    assert all(isinstance(result, Returned) for outcome in found for result in outcome.results)
    seen = {repr(outcome.results) for outcome in found}
    assert len(seen) >= 4, "either poller makes it, before or after the maker looks"


def test_a_lock_that_goes_with_its_process(session: Session) -> None:
    """A thread that gets it then comes after all that the process has done, and may also have come first."""
    scenario = target("worlds", "lock_kept_to_the_end")
    asked = Search(scenario, scenario.world, scenario.invariants, strategy="dpor", keep_going=True)
    report = explore(session, asked)
    assert report.exhaustive, report.reasons
    ends = {
        tuple(each.value for each in ending.outcome.results if isinstance(each, Returned)) for ending in report.endings
    }
    assert ends == {("0", "01"), ("10", "1")}
