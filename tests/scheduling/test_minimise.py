"""Failing runs are made small: on toy worlds, where brute force says how small."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random

import pytest

from racecheck import CannotRun, Outcome, UsageError, Violation, World, faults
from racecheck.invariants import no_deadlock, no_file_errors, no_unexpected_errors
from racecheck.model.nouns import Invariant, Op, Point, Result, Size
from racecheck.model.ops.op_names import pattern
from racecheck.scheduling.minimise import (
    Failure,
    FindRun,
    Spent,
    TimedAttempt,
    same_failure,
    shrink,
    smaller_world,
    switches,
)
from racecheck.scheduling.minimise.blocks import blocks, joined, shifted
from racecheck.scheduling.strategies import RandomWalk, Replay, Strategy, check_strategy
from racecheck.scheduling.strategies.following.guided import Guided, Turn
from racecheck.scheduling.strategies.following.indices import Tape
from tests.support import builders, toys
from tests.support.builders import op, raised, returned, stopped
from tests.support.toy_failures import ENSURE, attempts, failing, no_errors, noise, run
from tests.support.toys import Do, Program


def never(*expected: str) -> Invariant:
    """That nobody sees this of ``a``, look by look."""

    def invariant(outcome: Outcome) -> Iterator[Violation]:
        looks = [each.result.errno for each in outcome.ops if (each.call, each.path) == ("stat", "a") and each.result]
        if looks == [*expected]:
            yield Violation("never", "seen")

    return invariant


# The tape.


def test_two_actors_and_one_switch_are_left_of_a_long_noisy_schedule() -> None:
    actor = (*noise("x", 10), ENSURE, *noise("y", 10))
    program = Program((actor, actor, noise("z", 20), noise("z", 20)))
    found, fails = failing(program, no_errors)
    assert switches(found.schedule) > 40
    least = shrink(found, attempts(program), fails)
    assert switches(least.outcome.schedule) == 1
    assert not least.cut
    assert least.runs <= 200
    assert [choice.label for choice in least.outcome.schedule if choice.index] == ["1 stat x0"]
    assert [each.label for each in least.outcome.ops].index("1 stat x0") == 11, "when 0 has looked, not before"
    assert least.violation == fails(least.outcome)


def test_two_switches_stay_where_they_are_needed() -> None:
    """One that looks sees what is there for a moment, and then that it is gone."""
    makes = (*noise("w", 10), Do("mkdir", "a"), Do("rmdir", "a"), *noise("w", 10))
    looks = (*noise("r", 10), Do("stat", "a"), Do("stat", "a"), *noise("r", 10))
    program = Program((makes, noise("z", 20), noise("z", 20), looks))
    found, fails = failing(program, never("", "ENOENT"))
    least = shrink(found, attempts(program), fails)
    assert switches(found.schedule) > 40
    assert switches(least.outcome.schedule) == 2
    assert {each.label for each in least.outcome.schedule if each.index} == {"3 stat r0", "0 rmdir a"}


def test_as_few_switches_as_brute_force_finds() -> None:
    got = fewest = 0
    for seed in range(40):
        program = toys.random_program(Random(seed), 300)
        every = [*toys.every_run(program)]
        for found in Random(seed).sample(every, 4):
            wanted = toys.effect(found)

            def fails(other: Outcome, wanted: toys.Effect = wanted) -> Violation | None:
                return Violation("effect", "") if toys.effect(other) == wanted else None

            got += switches(shrink(found, attempts(program), fails).outcome.schedule)
            fewest += min(switches(other.schedule) for other in every if fails(other))
    assert fewest <= got <= fewest * 1.03


def found_at_once(outcome: Outcome) -> Iterator[Violation]:
    """A rank that looks for ``a`` finds it."""
    for index, event in enumerate(outcome.trace):
        if isinstance(event, Op) and (event.call, event.path) == ("stat", "a") and event.result == Result("ENOENT"):
            yield Violation("found-at-once", "missing", (event.rank,), (index,))


@pytest.mark.parametrize("tape", [[0, 0, 0, 1], [3], [0, 2]])
def test_of_runs_with_one_switch_the_one_that_fails_first_is_taken_and_then_the_tamer_one(tape: list[int]) -> None:
    looks = (Do("stat", "a"), *noise("y", 2))
    program = Program(((*noise("x", 5), Do("mkdir", "a")), looks, looks, looks))
    found = run(program, Tape(tape))
    fails = same_failure(found, next(found_at_once(found)), [found_at_once])
    least = shrink(found, attempts(program), fails)
    assert [choice.index for choice in least.outcome.schedule if choice.index] == [1]
    assert least.violation.events == (0,)


def labels(order: Iterable[Turn]) -> str:
    return " ".join(f"{thread}{number}" for thread, number in order)


def test_blocks_are_joined_forward_and_backward() -> None:
    found = run(Program((noise("x", 3), noise("y", 1))), Guided([("0", 1), ("0", 2), ("1", 1), ("0", 3)]))
    assert [labels(block) for block in blocks(found)] == ["01 02", "11", "03"]
    assert [[*map(labels, joined(found, number))] for number in range(3)] == [
        ["11 01 02 03"], [], ["01 02 03 11"],
    ]  # fmt: skip


def test_a_switch_is_shifted_to_where_others_can_notice() -> None:
    own, other = (*noise("x", 2), Do("mkdir", "a"), *noise("y", 2)), (Do("stat", "a"), Do("stat", "b"))
    found = run(Program((own, other)), Guided([("0", 1), ("1", 1), *(("0", each) for each in (2, 3, 4, 5)), ("1", 2)]))
    assert [labels(block) for block in blocks(found)] == ["01", "11", "02 03 04 05", "12"]
    assert [*map(labels, shifted(found, 0))] == ["01 02 11 12 03 04 05", "01 02 03 11 12 04 05"]
    assert not [*shifted(found, 1)]


def test_many_ranks_take_few_runs() -> None:
    actor = (*noise("x", 10), ENSURE, *noise("y", 10))
    program = Program((actor,) * 8)
    found, fails = failing(program, no_errors)
    least = shrink(found, attempts(program), fails)
    assert switches(found.schedule) > 100
    assert switches(least.outcome.schedule) == 1
    assert least.runs < 100


def test_the_budget_cuts_and_is_kept() -> None:
    actor = (*noise("x", 10), ENSURE, *noise("y", 10))
    program = Program((actor,) * 4)
    found, fails = failing(program, no_errors)
    cut = shrink(found, attempts(program), fails, budget=5)
    assert (cut.runs, cut.cut) == (5, True)
    assert fails(cut.outcome)


def test_what_is_found_is_kept_when_time_is_up() -> None:
    actor = (*noise("x", 10), ENSURE, *noise("y", 10))
    program = Program((actor,) * 4)
    found, fails = failing(program, no_errors)
    left = iter(range(20))

    def attempt(world: World, strategy: Strategy) -> Outcome:
        if next(left, None) is None:
            raise Spent
        return attempts(program)(world, strategy)

    cut = shrink(found, attempt, fails)
    assert cut.cut
    assert 0 < switches(cut.outcome.schedule) < switches(found.schedule)


def test_the_same_twice() -> None:
    actor = (*noise("x", 3), ENSURE)
    program = Program((actor,) * 3)
    found, fails = failing(program, no_errors)
    assert shrink(found, attempts(program), fails) == shrink(found, attempts(program), fails)


def test_a_failure_that_does_not_repeat_is_refused() -> None:
    racy, sound = Program(((ENSURE,),) * 2), Program((noise("d", 2),) * 2)
    found, fails = failing(racy, no_errors)
    with pytest.raises(CannotRun, match="does not repeat"):
        shrink(found, attempts(sound), fails)


def test_what_takes_other_choices_the_second_time_is_refused() -> None:
    racy = Program(((ENSURE,),) * 2)
    found, fails = failing(racy, no_errors)
    other = replace(found, schedule=(*found.schedule, replace(found.schedule[0], index=1)))
    with pytest.raises(CannotRun, match="does not repeat"):
        shrink(other, attempts(racy), fails)


# The world.


def first_failing(program: Program, fails: Failure) -> FindRun:
    def search(world: World, budget: int) -> Outcome | None:
        if world.ranks == 2 and world.nodes == 2:
            raise UsageError("not on two nodes")
        runs = (run(program, RandomWalk(), seed, ranks=world.ranks) for seed in range(budget))
        return next((each for each in runs if fails(each)), None)

    return search


def needs(ranks: int) -> Program:
    """A rank removes ``a``, and the n-th one misses it."""
    others = (noise("x", 2),) * (ranks - 2)
    return Program(((Do("unlink", "a"),), *others, (Do("unlink", "a"),), *(noise("x", 1),) * 3), files=(("a", ""),))


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_the_smallest_world_that_fails_is_found(ranks: int) -> None:
    program = needs(ranks)
    found, fails = failing(program, no_errors)
    smaller = smaller_world(found, first_failing(program, fails), fails)
    assert smaller.outcome is not None
    assert smaller.outcome.world.ranks == ranks
    assert [world.ranks for world in smaller.tried] == [*range(1, ranks)]
    assert fails(smaller.outcome)


def first_passing(program: Program, fails: Failure) -> FindRun:
    def search(world: World, budget: int) -> Outcome | None:
        runs = (run(program, RandomWalk(), seed, ranks=world.ranks) for seed in range(budget))
        return next((each for each in runs if fails.is_gone(each)), None)

    return search


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_a_smaller_world_keeps_the_rank_that_the_race_is_with(ranks: int) -> None:
    """The first rank removes what the last one makes: without that one it fails, too, in whatever order."""
    program = Program(((Do("rmdir", "a"),), *(noise("x", 2),) * (ranks - 2), (Do("mkdir", "a"),)))
    found, fails = failing(program, no_errors)
    smaller = smaller_world(found, first_failing(program, fails), fails, passing=first_passing(program, fails))
    assert smaller.outcome is None
    assert [world.ranks for world in smaller.tried] == [*range(2, ranks)]
    lost = smaller_world(found, first_failing(program, fails), fails)
    assert lost.outcome is not None
    assert lost.outcome.world.ranks == 1, "of a failure without a race"


def test_a_race_is_kept_in_a_smaller_world() -> None:
    program = Program(((Do("rmdir", "a"),), (Do("mkdir", "a"),), *(noise("x", 2),) * 3))
    found, fails = failing(program, no_errors)
    smaller = smaller_world(found, first_failing(program, fails), fails, passing=first_passing(program, fails))
    assert smaller.outcome is not None
    assert smaller.outcome.world.ranks == 2
    assert not smaller.tried


def test_nodes_fit_the_ranks_and_an_impossible_world_is_reported() -> None:
    program = needs(4)
    found, fails = failing(program, no_errors)
    found = replace(found, world=World(ranks=6, nodes=2, skew=(1.0,) * 6))
    smaller = smaller_world(found, first_failing(program, fails), fails)
    assert smaller.impossible == ["not on two nodes"]
    assert [(world.ranks, world.nodes) for world in smaller.tried] == [(1, 1), (2, 1), (3, 1)]
    assert smaller.tried[2].skew == (1.0,) * 3


def test_what_the_search_takes_for_the_failure_has_to_be_it() -> None:
    program = needs(3)
    found, fails = failing(program, no_errors)
    passing = run(program, RandomWalk(), ranks=2)
    assert smaller_world(found, lambda *_: passing, fails).outcome is None


def test_what_needs_all_ranks_has_no_smaller_world() -> None:
    program = needs(4)
    program = replace(program, actors=program.actors[:4])
    found, fails = failing(program, no_errors)
    smaller = smaller_world(found, first_failing(program, fails), fails)
    assert smaller.outcome is None
    assert [world.ranks for world in smaller.tried] == [1, 2, 3]


def test_sizes_come_after_the_ranks_and_faults_last() -> None:
    """It takes two ranks, three steps (which are four in powers of two) and the second fault."""
    found, fails = failing(needs(2), no_errors)
    told, other = faults.parse("slow on write seconds=1"), faults.parse("slow on unlink seconds=1")
    world = World(ranks=2, sizes=(Size("shards", 5), Size("steps", 9)), faults=(other, told))

    def search(world: World, budget: int) -> Outcome | None:
        steps = next(each.value for each in world.sizes if each.name == "steps")
        fails = world.ranks == 2 and steps >= 3 and told in world.faults
        return replace(found, world=world) if fails else None

    smaller = smaller_world(replace(found, world=world), search, fails)
    assert smaller.outcome is not None
    assert smaller.outcome.world == World(ranks=2, sizes=(Size("shards", 1), Size("steps", 4)), faults=(told,))
    tried = [(world.ranks, [each.value for each in world.sizes], len(world.faults)) for world in smaller.tried]
    assert tried == [(1, [5, 9], 2), (2, [1, 1], 2), (2, [1, 2], 2), (2, [1, 4], 0)]


# The same failure.


def file_error(rank: int, path: str, errno: str = "ENOENT") -> Outcome:
    kind = {"ENOENT": "FileNotFoundError", "EEXIST": "FileExistsError"}[errno]
    trace = [op(f"{rank} unlink {path}", errno=errno)]
    failed = raised(kind, path, errno=errno, path=path)
    return builders.outcome(*(failed if each == rank else returned() for each in range(2)), trace=trace)


def like(found: Outcome) -> Failure:
    (violation,) = no_file_errors(found)
    return same_failure(found, violation, [no_file_errors])


def test_another_rank_and_other_numbers_are_the_same_failure() -> None:
    fails = like(file_error(0, "step1/shard0"))
    assert fails(file_error(1, "step20/shard3"))
    assert not fails(file_error(0, "step1/optimizer"))
    assert not fails(file_error(0, "step1/shard0", "EEXIST"))
    assert not fails(builders.outcome(returned(), returned()))


def test_a_failure_without_an_op_is_identified_by_its_first_words_and_paths() -> None:
    found = builders.outcome(stopped("lock", "waits for the lock on lock1"), returned(), pending=(op("0 flock lock1"),))
    (violation,) = no_deadlock(found)
    fails = same_failure(found, violation, [no_deadlock])
    assert fails(replace(found, results=found.results[::-1]))
    other = replace(found, results=(stopped("lock", "waits for the lock on other"), returned()))
    assert not fails(replace(other, pending=(op("0 flock other"),)))


def test_what_begins_otherwise_is_another_failure() -> None:
    found = builders.outcome(raised("EOFError", "Ran out of input"), returned())
    (violation,) = no_unexpected_errors(found)
    fails = same_failure(found, violation, [no_unexpected_errors])
    assert fails(builders.outcome(returned(), raised("EOFError", "Something else")))
    assert not fails(builders.outcome(raised("RuntimeError", "Ran out of input"), returned()))


def test_a_failure_is_not_gone_if_the_run_leaves_a_doubt() -> None:
    fails = like(file_error(0, "a"))
    assert fails.is_gone(builders.outcome(returned(), returned()))
    assert not fails.is_gone(file_error(0, "b"))
    assert not fails.is_gone(builders.outcome(returned(), stopped("running", "out of time")))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("ckpt/step10/__0_1.distcp", "ckpt/step#/__#_#.distcp"),
        ("out/tmpa8_x3kq9/w", "out/tmp#/w"),
        ("run-7f3a9c01e2/log", "run-#/log"),
        ("deadbeef/facade", "deadbeef/facade"),
        (".tmp<0:1>", ".tmp<#:#>"),
    ],
)
def test_patterns_leave_out_what_varies(path: str, expected: str) -> None:
    assert pattern(path) == expected


# The strategies.


def test_a_tape_can_be_any_list() -> None:
    options = tuple(op(f"{rank} stat a") for rank in range(3))
    points = [Point("next", options[:count]) for count in (3, 2, 3, 2)]
    tape = Tape([2, 3, 1])
    check_strategy(lambda: Tape([2, 3, 1]), points)
    assert tape.begin(Random(0))
    assert [tape.choose(point) for point in points] == [2, 0, 1, 0]
    assert tape.begin(Random(0))
    assert tape.choose(points[0]) == 2


def test_an_order_is_followed_as_far_as_it_goes() -> None:
    """Where 1 is no longer what it was, and 3 does not exist."""
    program = Program((noise("x", 2), noise("y", 1), noise("z", 2)))
    guided = Guided([("2", 1), ("3", 1), ("1", 1), ("1", 2), ("0", 1), ("2", 2)])
    assert [each.label for each in run(program, guided).ops] == [
        "2 stat z0", "1 stat y0", "0 stat x0", "2 stat z1", "0 stat x1",
    ]  # fmt: skip


def test_no_run_begins_after_the_end_and_why_is_known() -> None:
    def attempt(world: World, strategy: Strategy) -> Outcome:
        del strategy
        return Outcome(world, (), (), ())

    timed = TimedAttempt(attempt, time.perf_counter() + 3600)
    timed(World(), Replay(()))
    assert not timed.is_late
    timed.end = 0.0
    with pytest.raises(Spent):
        timed(World(), Replay(()))
    assert (timed.is_late, timed.is_interrupted) == (True, False)


def test_an_interrupt_ends_all_further_runs() -> None:
    def attempt(world: World, strategy: Strategy) -> Outcome:
        raise KeyboardInterrupt

    timed = TimedAttempt(attempt, time.perf_counter() + 3600)
    for _ in range(2):
        with pytest.raises(Spent):
            timed(World(), Replay(()))
    assert (timed.is_late, timed.is_interrupted) == (False, True)
