"""The toy worlds agree with themselves, and with what the supervisor promises."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from racecheck.model.nouns import Collective, Point, Returned, Stopped
from tests.support.toys import Do, Program, every_outcome, every_run, every_trace, random_program, run


def by_default(_: Point) -> int:
    return 0


def prefer(*threads: str) -> Callable[[Point], int]:
    """The first of these threads that can go, op by op."""
    order = list(threads)

    def choose(point: Point) -> int:
        able = [option.thread for option in point.options]
        return able.index(order.pop(0)) if order and order[0] in able else 0

    return choose


def test_of_two_ranks_that_make_a_directory_one_gets_eexist() -> None:
    runs = list(every_run(Program(((Do("mkdir", "d"),), (Do("mkdir", "d"),)))))
    assert len(runs) == 2
    assert [outcome.results for outcome in runs] == [
        (Returned([""]), Returned(["EEXIST"])),
        (Returned(["EEXIST"]), Returned([""])),
    ]
    assert all([*outcome.disk] == ["d"] for outcome in runs)


@pytest.mark.parametrize(("lengths", "expected"), [((2, 3), 10), ((1, 1, 2), 12)])
def test_brute_force_goes_through_every_interleaving_once(lengths: tuple[int, ...], expected: int) -> None:
    program = Program(tuple(tuple(Do("mkdir", f"{rank}{each}") for each in range(n)) for rank, n in enumerate(lengths)))
    orders = [tuple(op.label for op in outcome.ops) for outcome in every_run(program)]
    assert len(orders) == len(set(orders)) == expected
    assert math.factorial(sum(lengths)) == expected * math.prod(map(math.factorial, lengths))


def test_unnoticeable_orders_are_one_trace() -> None:
    apart = Program(((Do("mkdir", "a"), Do("stat", "a")), (Do("mkdir", "b"), Do("stat", "b"))))
    assert len(every_trace(apart)) == len(every_outcome(apart)[1]) == 1
    race = Program(((Do("stat", "a"),), (Do("mkdir", "a"),)))
    assert len(every_trace(race)) == len(every_outcome(race)[1]) == 2


def test_locks_taken_in_other_orders_deadlock_and_show_what_never_went() -> None:
    one = (Do("lock", "l"), Do("lock", "m"))
    other = (Do("lock", "m"), Do("lock", "l"))
    program = Program((one, other), inherited=("l", "m"))
    stuck = run(program, prefer("0", "1"))
    assert [each.label for each in stuck.pending] == ["0 flock m", "1 flock l"]
    assert [each.clock for each in stuck.pending] == [{"0": 2}, {"1": 2}]
    assert stuck.results == (Stopped("lock", "waits for the lock on m"), Stopped("lock", "waits for the lock on l"))
    well = run(program, by_default)
    assert well.pending == ()
    assert well.results == (Returned(["", "", "", ""]), Returned(["", "", "", ""]))
    assert [op.label for op in well.ops[:5]] == ["0 flock l", "0 flock m", "0 close l", "0 close m", "1 flock m"]


def test_a_lock_that_is_held_is_no_option_and_one_that_is_tried_fails() -> None:
    program = Program(((Do("lock", "l"), Do("unlock", "l")), (Do("trylock", "l"),)), inherited=("l",))
    outcome = run(program, prefer("0", "1"))
    assert [(op.label, op.result.errno) for op in outcome.ops if op.result] == [
        ("0 flock l", ""), ("1 flock l", "EAGAIN"), ("0 flock l", ""),
    ]  # fmt: skip
    waiting = Program(((Do("lock", "l"), Do("unlock", "l")), (Do("lock", "l"), Do("unlock", "l"))), inherited=("l",))
    assert every_outcome(waiting)[0] == 2


@pytest.mark.parametrize(
    ("kind", "clocks"),
    [
        ("barrier", {"0": {"0": 3, "1": 2}, "1": {"0": 2, "1": 3}}),
        ("broadcast", {"0": {"0": 3}, "1": {"0": 2, "1": 3}}),
        ("gather", {"0": {"0": 3, "1": 2}, "1": {"1": 3}}),
    ],
)
def test_collectives_order_no_more_than_they_guarantee(kind: str, clocks: dict[str, dict[str, int]]) -> None:
    program = Program(tuple((Do("mkdir", f"a{rank}"), Do(kind), Do("mkdir", f"b{rank}")) for rank in range(2)))
    outcome = run(program, by_default)
    assert {op.thread: op.clock for op in outcome.ops if op.path.startswith("b")} == clocks
    (together,) = (event for event in outcome.trace if isinstance(event, Collective))
    assert (together.kind, together.clock) == (kind, {"0": 2, "1": 2})


def test_what_a_rank_hears_in_a_collective_can_decide_what_it_does() -> None:
    told = (Do("broadcast"), Do("read", "a"))
    outcome = run(Program(((Do("read", "a"), *told), told), files=(("a", "1"),)), by_default)
    assert outcome.results == (Returned(["1", "1", ""]), Returned(["1", "1"]))


def test_a_wait_for_a_rank_that_never_comes_is_stopped() -> None:
    program = Program(((Do("lock", "l"), Do("barrier")), (Do("lock", "l"), Do("barrier"))), inherited=("l",))
    first, second = run(program, by_default).results
    assert isinstance(first, Stopped)
    assert first.kind == "collective"
    assert isinstance(second, Stopped)
    assert second.kind == "lock"


def test_a_write_goes_to_the_file_that_was_opened_whatever_its_name_is_now() -> None:
    program = Program(((Do("open", "a"), Do("write", "a", "new")), (Do("rename", "a", "b"),)))
    outcome = run(program, prefer("0", "1"))
    assert [op.label for op in outcome.ops] == ["0 open a", "1 rename a -> b", "0 write b"]
    opened, renamed, written = outcome.ops
    assert opened.places[0].inode == 0
    assert renamed.places[0].inode == written.places[0].inode > 0
    assert written.places[0].open_file == 1
    assert outcome.disk["b"].size == 3


def test_a_thread_that_starts_late_comes_after_what_started_it() -> None:
    program = Program(((Do("mkdir", "a"), Do("start", then=(Do("mkdir", "b"),)), Do("mkdir", "c")), (Do("stat", "b"),)))
    outcome = run(program, by_default)
    assert {op.path: op.clock for op in outcome.ops if op.thread == "0.1"} == {"b": {"0": 1, "0.1": 1}}
    assert outcome.results[0] == Returned(["", "", [""]])


def test_the_thread_that_was_chosen_last_comes_first() -> None:
    seen = []

    def choose(point: Point) -> int:
        seen.append([option.thread for option in point.options])
        return len(point.options) - 1

    run(Program(tuple((Do("mkdir", f"{rank}"), Do("stat", f"{rank}")) for rank in range(3))), choose)
    assert seen == [["0", "1", "2"], ["2", "0", "1"], ["1", "0", "2"], ["0", "1"]]


def test_random_programs_have_what_explorers_stumble_over() -> None:
    """Few interleavings; deadlocks, collectives that are waited for in vain, branches and lost races among them."""
    kinds: set[str] = set()
    branching = traces = total = 0
    for seed in range(50):
        program = random_program(Random(seed), limit=100)
        lengths = set()
        found = set()
        runs = list(every_run(program))
        assert 4 <= len(runs) <= 100
        for outcome in runs:
            kinds |= {each.kind for each in outcome.results if isinstance(each, Stopped)}
            lengths.add(len(outcome.ops))
            found.add(tuple(map(repr, outcome.results)))
        branching += len(lengths) > 1
        traces += len(every_trace(program))
        total += len(runs)
        assert len(every_trace(program)) >= len(every_outcome(program)[1])
    assert kinds == {"lock", "collective"}
    assert branching >= 4
    assert traces < total / 2
