"""Prediction: races of one run, the results of their other order, and what collectives are for."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from racecheck import Outcome, Returned, Violation, World, storage
from racecheck.explore import runner
from racecheck.explore.requests import RunRequest
from racecheck.model import compare
from racecheck.model.nouns import Collective, Event, Frame, Invariant, Op, Point
from racecheck.report.prediction import data, render
from racecheck.scheduling.predict import (
    Need,
    Pair,
    PairAttempt,
    Prediction,
    Race,
    candidates,
    force,
    needed_collectives,
    predict,
)
from racecheck.scheduling.predict.clocks import clocks
from racecheck.scheduling.strategies import DPOR, Replay, Strategy
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from tests.support import toys
from tests.support.builders import op
from tests.support.toys import Do, Program, Seen

SHARED = storage.make(World())
COLLECTIVES = {"barrier", "broadcast", "gather"}


def no_exists_error(outcome: Outcome) -> Iterator[Violation]:
    """Nobody makes what is there already."""
    for index, event in enumerate(outcome.trace):
        if isinstance(event, Op) and event.result is not None and event.result.errno == "EEXIST":
            yield Violation("no-exists-error", f"rank {event.rank} finds {event.path} there", (event.rank,), (index,))


def nothing_wrong(_: Outcome) -> Iterator[Violation]:
    yield from ()


def by_default(_: Point) -> int:
    return 0


def program(*actors: Sequence[Do]) -> Program:
    return Program(tuple(tuple(each) for each in actors))


def attempt(toy: Program, *, hide: bool = False) -> PairAttempt:
    """``hide``: what the actors saw is no result, so that only the disk counts."""

    def run(strategy: Strategy) -> Outcome:
        outcome = toys.run(toy, strategy.choose)
        strategy.end(outcome)
        return replace(outcome, results=tuple(Returned() for _ in outcome.results)) if hide else outcome

    return run


def predicted(toy: Program, *invariants: Invariant, hide: bool = False) -> Prediction:
    run = attempt(toy, hide=hide)
    return predict(run(tame()), run, invariants or [no_exists_error], SHARED)


def tame() -> Strategy:
    strategy = Replay(())
    strategy.begin(Random(0))
    return strategy


def named(pair: Pair) -> tuple[str, str]:
    return pair.first.label, pair.second.label


def needed(toy: Program) -> dict[str, list[tuple[str, str]]]:
    """What each collective of a program's default run keeps in order."""
    return {f"{each.collective.kind} {each.collective.number}": [*map(named, each.pairs)] for each in needed_by(toy)}


def needed_by(toy: Program) -> list[Need]:
    return needed_collectives(toys.run(toy, by_default).trace, SHARED)


def stand_ins(toy: Program) -> list[list[str]]:
    return [[f"{each.kind} {each.number}" for each in need.stand_ins] for need in needed_by(toy)]


# Races.

MAKE = Do("stat", "d", otherwise=(Do("mkdir", "d"),))
BARRIER = Do("barrier")


def test_a_race_that_breaks_an_invariant_is_confirmed() -> None:
    prediction = predicted(program([MAKE], [MAKE]))
    (race,) = prediction.races
    assert (race.verdict, named(race.pair)) == ("confirmed", ("0 mkdir d", "1 stat d"))
    assert [each.message for each in race.violations] == ["rank 1 finds d there"]
    assert prediction.confirmed == (race,)
    assert race.outcome is not None
    assert [op.label for op in race.outcome.ops] == ["0 stat d", "1 stat d", "0 mkdir d", "1 mkdir d"]


def test_a_race_that_changes_nothing_is_harmless() -> None:
    """Both orders end in the same way; what is forced is the other order all the same."""
    both = program([Do("stat", "a"), Do("mkdir", "d")], [Do("list", ".")])
    (race,) = predicted(both, hide=True).races
    assert (race.verdict, named(race.pair), race.differences) == ("harmless", ("0 mkdir d", "1 list ."), ())
    assert race.outcome is not None
    assert [op.label for op in race.outcome.ops][-2:] == ["1 list .", "0 mkdir d"]
    (race,) = predicted(both).races
    assert race.verdict == "changes"
    assert race.differences == ("rank 1 returned ['']; before, it returned ['d']",)


def test_to_make_a_directory_twice_is_harmless_where_that_is_no_error() -> None:
    prediction = predicted(program([Do("mkdir", "d")], [Do("mkdir", "d")]), nothing_wrong, hide=True)
    assert [(race.verdict, named(race.pair)) for race in prediction.races] == [("harmless", ("0 mkdir d", "1 mkdir d"))]


def test_of_two_that_write_the_last_one_wins() -> None:
    toy = replace(program([Do("rename", "a", "c")], [Do("rename", "b", "c")]), files=(("a", "one"), ("b", "two")))
    (race,) = predicted(toy, hide=True).races
    assert (race.verdict, race.differences) == ("changes", ("c has different content",))
    toy = replace(toy, files=(("a", "one"), ("b", "longer")))
    (race,) = predicted(toy, hide=True).races
    assert race.differences == ("c has 3 bytes; before, it had 6",)


def test_what_is_there_in_one_order_only_is_said() -> None:
    toy = program([Do("mkdir", "d")], [Do("rmdir", "d")])
    (race,) = predicted(toy, hide=True).races
    assert race.differences == ("d exists now",)


def test_pairs_that_are_alike_are_one_race() -> None:
    maker = [Do("mkdir", "d"), Do("mkdir", "d/rank0")]
    other = [[Do("stat", "d"), Do("mkdir", f"d/rank{rank}")] for rank in (1, 2)]
    prediction = predicted(program(maker, *other), hide=True)
    (race,) = prediction.races
    assert named(race.pair) == ("0 mkdir d", "1 stat d")
    assert race.pair.ranks == ((0, 1), (0, 2))
    assert race.pair.events == (0, 2)


def test_ops_that_a_collective_orders_are_no_race() -> None:
    assert predicted(program([MAKE, BARRIER], [BARRIER, MAKE])).races == ()


def test_a_race_that_cannot_be_reversed_says_why() -> None:
    """Where it is tried, rank 1 does something else first: what it had to do is not there to be done."""
    (pair,) = candidates(toys.run(program([Do("mkdir", "d")], [Do("stat", "d")]), by_default).trace, SHARED)
    before = toys.run(program([Do("mkdir", "d")], [Do("stat", "d")]), by_default)

    def forced(*actors: Sequence[Do]) -> Race:
        return force(pair, before, attempt(program(*actors)), [nothing_wrong], SHARED)

    late = forced([Do("mkdir", "d"), BARRIER], [BARRIER, Do("stat", "d")])
    assert (late.verdict, late.why) == ("infeasible", "1 stat d did not come before 0 mkdir d")
    assert forced([Do("stat", "c")], []).why == "1 stat d did not happen"
    assert forced([], []).why == "1 stat d did not happen"
    assert forced([Do("mkdir", "d")], [Do("rmdir", "d")]).why == "1 stat d did not come before 0 mkdir d"


def test_a_run_that_cannot_reverse_the_race_any_more_is_cut_short() -> None:
    outcome = toys.run(program([Do("mkdir", "d")], [Do("stat", "d")]), by_default)
    (pair,) = candidates(outcome.trace, SHARED)
    late = program([Do("mkdir", "d"), BARRIER, Do("stat", "a")], [BARRIER, Do("stat", "d")])
    ended: list[Outcome] = []

    def run(strategy: Strategy) -> Outcome:
        ended.append(toys.run(late, strategy.choose))
        return ended[0]

    assert force(pair, outcome, run, [nothing_wrong], SHARED).verdict == "infeasible"
    assert not ended


def test_what_is_left_is_untried() -> None:
    toy = program([Do("mkdir", "a"), Do("mkdir", "b")], [Do("stat", "a"), Do("stat", "b")])
    run = attempt(toy)
    outcome = run(tame())
    asked: list[int] = []

    def goes_on(tried: Sequence[Race]) -> bool:
        asked.append(len(tried))
        return len(tried) < 1

    prediction = predict(outcome, run, [nothing_wrong], SHARED, goes_on=goes_on)
    assert [race.verdict for race in prediction.races] == ["changes", "untried"]
    assert asked == [0, 1]

    def interrupted(_: Strategy) -> Outcome:
        raise KeyboardInterrupt

    prediction = predict(outcome, interrupted, [nothing_wrong], SHARED)
    assert [race.verdict for race in prediction.races] == ["untried", "untried"]


def test_an_invariant_that_was_broken_before_confirms_nothing() -> None:
    toy = program([Do("mkdir", "d"), Do("mkdir", "d")], [Do("stat", "d")])
    (race,) = predicted(toy, hide=True).races
    assert race.verdict == "harmless"


def test_a_new_reason_for_doubt_is_a_change() -> None:
    toy = program([Do("mkdir", "d")], [Do("mkdir", "d")])

    def unsure(outcome: Outcome) -> list[Violation]:
        raise ValueError("as ever" if outcome.ops[0].rank == 0 else "now this")

    (race,) = predicted(toy, unsure, hide=True).races
    assert race.verdict == "changes"
    assert race.differences == ("not certain: unsure could not judge the run: ValueError: now this",)

    def never_sure(_: Outcome) -> list[Violation]:
        raise ValueError("as ever")

    assert [race.verdict for race in predicted(toy, never_sure, hide=True).races] == ["harmless"]


def test_the_result_of_the_recovery_counts() -> None:
    hidden = attempt(program([Do("mkdir", "d")], [Do("mkdir", "d")]), hide=True)

    def run(strategy: Strategy) -> Outcome:
        outcome = hidden(strategy)
        return replace(outcome, recovery=replace(outcome, results=(Returned(outcome.ops[0].rank),)))

    (race,) = predict(run(tame()), run, [nothing_wrong], SHARED).races
    assert race.differences == ("in the recovery, rank 0 returned 1; before, it returned 0",)


def test_a_poll_beyond_the_old_run_does_not_block_the_others() -> None:
    """In the other order: rank 1 waits for what rank 0 does only then."""

    def poll() -> Generator[Do, Seen, None]:
        made = yield Do("mkdir", "x")
        if made.errno:
            yield Do("stat", "y")
        else:
            while (yield Do("stat", "go")).errno:
                pass

    looks = (Do("stat", "p"), Do("stat", "q"), Do("mkdir", "go"))
    toy = Program(((Do("mkdir", "x", then=looks[:1], otherwise=looks),), poll))
    (race,) = predicted(toy, nothing_wrong).races
    assert race.outcome is not None
    assert all(isinstance(each, Returned) for each in race.outcome.results)


def test_every_race_of_random_programs_is_reversed() -> None:
    """The verdict is that of a run in which the two ops went the other way."""
    reversed_ = 0
    for seed in range(50):
        toy = toys.random_program(Random(seed), 200)
        run = attempt(toy)
        outcome = run(tame())
        for pair in candidates(outcome.trace, SHARED):
            race = force(pair, outcome, run, [nothing_wrong], SHARED)
            assert race.outcome is not None, f"seed {seed}: {race.why}"
            first, second = (_number(outcome, event) for event in pair.events)
            order = [_number(race.outcome, event) for event in _ops(race.outcome)]
            assert second in order[: order.index(first)] if first in order else second in order
            assert race.verdict == (
                "harmless" if compare.effect(race.outcome) == compare.effect(outcome) else "changes"
            )
            reversed_ += 1
    assert reversed_ > 30


def _ops(outcome: Outcome) -> list[int]:
    return [index for index, event in enumerate(outcome.trace) if isinstance(event, Op)]


def _number(outcome: Outcome, index: int) -> tuple[str, int]:
    """An op, as the n-th of its thread."""
    op = outcome.trace[index]
    assert isinstance(op, Op)
    return op.thread, sum(each.thread == op.thread for each in outcome.trace[:index] if isinstance(each, Op))


# Collectives.

WRITE, READ = Do("mkdir", "a"), Do("stat", "a")


def test_the_barrier_between_what_is_written_and_what_is_read_is_needed() -> None:
    toy = program([WRITE, BARRIER, Do("stat", "own"), BARRIER], [BARRIER, READ, BARRIER])
    assert needed(toy) == {"barrier 0": [("0 mkdir a", "1 stat a")], "barrier 1": []}
    assert [each.is_needed for each in needed_by(toy)] == [True, False]
    assert stand_ins(toy) == [[], []]


def test_the_closest_pair_that_a_barrier_orders_is_reported() -> None:
    publish = [Do("write", "new", "1"), Do("rename", "new", "latest")]
    toy = program([*publish, BARRIER], [BARRIER, Do("read", "latest"), Do("read", "latest")])
    assert needed(toy) == {"barrier 0": [("0 rename new -> latest", "1 open latest")]}
    apart = program([Do("mkdir", "a"), Do("mkdir", "b"), BARRIER], [BARRIER, Do("stat", "a"), Do("stat", "b")])
    assert needed(apart) == {"barrier 0": [("0 mkdir a", "1 stat a"), ("0 mkdir b", "1 stat b")]}
    apart = program([Do("mkdir", "a"), Do("mkdir", "b"), BARRIER], [BARRIER, Do("stat", "b"), Do("stat", "a")])
    assert needed(apart) == {"barrier 0": [("0 mkdir b", "1 stat b")]}


def test_of_two_barriers_in_a_row_either_will_do() -> None:
    toy = program([WRITE, BARRIER, BARRIER], [BARRIER, BARRIER, READ])
    assert stand_ins(toy) == [["barrier 1"], ["barrier 0"]]
    assert needed(toy)["barrier 0"] == [("0 mkdir a", "1 stat a")]
    assert not any(each.is_needed for each in needed_by(toy))
    three = program([WRITE, *[BARRIER] * 3], [*[BARRIER] * 3, READ])
    assert [len(each) for each in stand_ins(three)] == [1, 1, 1]


def test_a_barrier_far_away_stands_in_for_none() -> None:
    """The last two barriers are alike; the first is another matter."""
    other = Do("mkdir", "b")
    toy = program([WRITE, BARRIER, other, BARRIER, BARRIER], [BARRIER, READ, BARRIER, BARRIER, Do("stat", "b")])
    assert stand_ins(toy) == [[], ["barrier 2"], ["barrier 1"]]
    assert needed(toy)["barrier 0"] == [("0 mkdir a", "1 stat a")]


def test_what_is_near_but_orders_nothing_stands_in_for_nothing() -> None:
    toy = program([WRITE, BARRIER, Do("gather"), BARRIER], [BARRIER, Do("gather"), BARRIER, READ])
    assert stand_ins(toy) == [["barrier 2"], [], ["barrier 0"]]


def test_a_broadcast_orders_from_its_root_to_the_others_only() -> None:
    both = ([Do("mkdir", "a"), Do("broadcast"), Do("stat", "b")], [Do("mkdir", "b"), Do("broadcast"), Do("stat", "a")])
    toy = program(*both)
    assert needed(toy) == {"broadcast 0": [("0 mkdir a", "1 stat a")]}
    assert [named(race.pair) for race in predicted(toy, hide=True).races] == [("0 stat b", "1 mkdir b")]


def test_a_gather_orders_from_the_others_to_its_root_only() -> None:
    toy = program([Do("mkdir", "a"), Do("gather"), Do("stat", "b")], [Do("mkdir", "b"), Do("gather"), Do("stat", "a")])
    assert needed(toy) == {"gather 0": [("1 mkdir b", "0 stat b")]}
    assert [named(race.pair) for race in predicted(toy, hide=True).races] == [("0 mkdir a", "1 stat a")]


def test_a_gather_and_a_broadcast_do_what_a_barrier_does() -> None:
    pair = [Do("gather"), Do("broadcast")]
    toy = program(
        [BARRIER, *pair, Do("stat", "a"), Do("stat", "b")],
        [Do("mkdir", "a"), BARRIER, *pair, Do("stat", "b")],
        [Do("mkdir", "b"), BARRIER, *pair, Do("stat", "a")],
    )
    assert stand_ins(toy) == [["gather 1", "broadcast 2"], ["barrier 0"], ["barrier 0"]]
    together = program(*([each for each in actor if each is not BARRIER] for actor in actors_of(toy)))
    assert [each.is_needed for each in needed_by(together)] == [True, True]


def actors_of(toy: Program) -> list[tuple[Do, ...]]:
    return [actor for actor in toy.actors if isinstance(actor, tuple)]


def test_what_a_thread_does_comes_after_the_barrier_before_it_was_started() -> None:
    toy = program([BARRIER, Do("start", then=(READ,))], [WRITE, BARRIER])
    assert needed(toy) == {"barrier 0": [("1 mkdir a", "0.1 stat a")]}
    early = program([Do("start", then=(READ,)), BARRIER], [WRITE, BARRIER])
    assert needed(early) == {"barrier 0": []}


def test_a_thread_that_was_woken_up_knows_no_more_than_the_one_that_woke_it_up() -> None:
    """While rank 0 waits in the barrier, a thread of it goes on; what rank 1 has heard from rank 2 comes later."""
    trace: list[Event] = [
        op("2 mkdir c", clock={"2": 1}),
        op("0.1 stat y", clock={"0": 1, "0.1": 1}),
        op("1 mkdir a", clock={"1": 1, "2": 1}),
        Collective("barrier", "0", 0, (0, 1), issued={"0": 1, "1": 2}, left={"0": 1, "1": 2}),
        op("0 stat a", clock={"0": 2, "1": 2, "2": 1}),
    ]
    assert clocks(trace) == {index: event.clock for index, event in enumerate(trace) if isinstance(event, Op)}
    assert clocks(trace, {3})[4] == {"0": 2}


def test_giving_a_lock_back_and_waiting_for_it_is_no_race() -> None:
    """The two that take it are."""
    locks = [Do("lock", "l"), Do("unlock", "l")]
    toy = replace(program([*locks, BARRIER], [BARRIER, *locks]), inherited=("l",))
    (need,) = needed_by(toy)
    assert [(pair.first.flags, pair.second.flags) for pair in need.pairs] == [(("LOCK_EX",), ("LOCK_EX",))]


def test_clocks_without_a_collective_are_those_of_the_program_without_it() -> None:
    """Each run of a random program against the same order of ops in the program that lacks one collective."""
    compared = 0
    for seed in range(50):
        toy = toys.random_program(Random(seed), 200)
        for outcome in [*toys.every_run(toy)][::40]:
            ops = {index: event for index, event in enumerate(outcome.trace) if isinstance(event, Op)}
            assert clocks(outcome.trace) == {index: op.clock for index, op in ops.items()}
            if not all(isinstance(each, Returned) for each in outcome.results):
                continue
            for index, event in enumerate(outcome.trace):
                if isinstance(event, Collective):
                    less = same_order(without(toy, event.number), outcome).ops
                    left = clocks(outcome.trace, {index})
                    assert before(outcome.ops, [left[each] for each in ops]) == before(less, [op.clock for op in less])
                    compared += 1
    assert compared > 30


def before(ops: Sequence[Op], times: Sequence[Mapping[str, int]]) -> list[list[bool]]:
    """Which ops happen before which, by these clocks."""
    return [[clock.get(op.thread, 0) >= op.clock[op.thread] for op in ops] for clock in times]


def without(toy: Program, number: int) -> Program:
    """A program without its ``number``-th collective."""
    actors = []
    for actor in actors_of(toy):
        at = [index for index, step in enumerate(actor) if step.what in COLLECTIVES][number]
        actors.append((*actor[:at], *actor[at + 1 :]))
    return replace(toy, actors=tuple(actors))


def same_order(toy: Program, outcome: Outcome) -> Outcome:
    """The run in which ops go in the order in which they went in this one."""
    threads = [op.thread for op in outcome.ops]

    def choose(point: Point) -> int:
        return [option.thread for option in point.options].index(threads[sum(isinstance(e, Op) for e in point.trace)])

    return toys.run(toy, choose)


def test_without_a_collective_that_no_run_needs_nothing_new_can_happen() -> None:
    kept = lost = 0
    for seed in range(50):
        toy = toys.random_program(Random(seed), 200)
        runs = [*every_trace(toy)]
        count = max(
            (event.number + 1 for run in runs for event in run.trace if isinstance(event, Collective)), default=0
        )
        if not all(isinstance(each, Returned) for run in runs for each in run.results):
            continue
        every = [needed_collectives(run.trace, SHARED) for run in runs]
        for number in range(count):
            less = {effect(each) for each in every_trace(without(toy, number))}
            if any(each[number].pairs for each in every):
                lost += less != {effect(run) for run in runs}
            else:
                assert less == {effect(run) for run in runs}, f"seed {seed}"
                kept += 1
    assert kept > 3
    assert lost > 3


def every_trace(toy: Program) -> Iterator[Outcome]:
    strategy = DPOR(SHARED)
    while strategy.begin(Random(0)):
        outcome = toys.run(toy, strategy.choose)
        strategy.end(outcome)
        yield outcome


def effect(outcome: Outcome) -> object:
    """What ops came to, and the disk: but not what was heard in collectives."""
    seen = [(op.label, op.result and (op.result.errno, op.result.digest)) for op in outcome.ops]
    return tuple(sorted(seen)), tuple(outcome.disk.items())


# Reports.


def located(outcome: Outcome) -> Outcome:
    """Every op with a line of code."""
    frames = (Frame("/usr/lib/python3.10/shutil.py", 1, "rmtree"), Frame("/project/train.py", 7, "save"))
    trace = (replace(each, stack=frames) if isinstance(each, Op) else each for each in outcome.trace)
    return replace(outcome, trace=tuple(trace))


def shown(prediction: Prediction) -> str:
    return render(prediction, root=Path("/project"))


def test_a_prediction_is_shown_with_the_worst_first() -> None:
    toy = program([Do("mkdir", "e"), MAKE, BARRIER, WRITE], [Do("list", "."), MAKE, BARRIER], [MAKE, BARRIER, READ])
    run = attempt(toy, hide=True)
    prediction = predict(located(run(tame())), run, [no_exists_error], SHARED)
    text = shown(prediction).splitlines()
    assert text[:5] == [
        "3 races: 1 confirmed, 2 harmless",
        "",
        "confirmed: the other order violates no-exists-error",
        "           rank 0  mkdir d  ok                  train.py:7 save",
        "      then rank 2  stat d  dir                  train.py:7 save",
    ]
    assert text[5:8] == [
        "    => no-exists-error: rank 2 finds d there",
        "",
        "harmless: same results and same disk in the other order",
    ]
    assert text[-4:] == [
        "1 collective, 1 needed to order file ops",
        "barrier #0 is needed: nothing else orders",
        "           rank 1  list .  2 entries            train.py:7 save",
        "    before rank 0  mkdir a  ok                  train.py:7 save",
    ]


def test_collectives_are_shown_with_what_they_keep() -> None:
    remove = Do("rmdir", "a")
    toy = program([WRITE, BARRIER, remove, *[BARRIER] * 3], [BARRIER, READ, BARRIER, BARRIER, READ, BARRIER])
    text = shown(predicted(toy, hide=True))
    assert text.partition("\n\n4 ")[2].splitlines() == [
        "collectives, 1 needed to order file ops",
        "barrier #0 is needed: nothing else orders",
        "           rank 0  mkdir a  ok",
        "    before rank 1  stat a  none",
        "barrier #1 is redundant as long as barrier #2 is there; it also orders",
        "           rank 0  rmdir a  ok",
        "    before rank 1  stat a  none",
        "barrier #2 is redundant as long as barrier #1 is there",
        "orders no file ops: barrier #3",
    ]


def test_pairs_that_are_alike_are_counted() -> None:
    toy = program([WRITE, BARRIER], [BARRIER, READ], [BARRIER, READ], [BARRIER, READ])
    assert "    before rank 1  stat a  dir\n           and 2 like it, of ranks 0 and 2, 0 and 3" in shown(
        predicted(toy)
    )


def test_what_could_not_be_brought_about_or_is_not_tried_says_so() -> None:
    outcome = toys.run(program([WRITE, Do("mkdir", "b")], [READ, Do("stat", "b")]), by_default)
    one, other = candidates(outcome.trace, SHARED)
    races = (Race(one, "infeasible", why="1 stat a did not come"), Race(other))
    assert shown(Prediction(outcome, races, ())).splitlines() == [
        "2 races: 1 untried, 1 infeasible",
        "",
        "untried: the other order was not run",
        "           rank 0  mkdir b  ok",
        "      then rank 1  stat b  dir",
        "",
        "infeasible: the other order could not be produced",
        "           rank 0  mkdir a  ok",
        "      then rank 1  stat a  dir",
        "    => 1 stat a did not come",
    ]


def test_nothing_to_predict() -> None:
    prediction = predicted(program([WRITE], [Do("stat", "b")]))
    assert shown(prediction) == "no races: every pair of dependent ops is ordered"


def test_lines_are_no_longer_than_asked_for() -> None:
    """What makes room: the directory of the file, then the function, then a line of its own."""
    outcome = toys.run(program([WRITE], [READ]), by_default)
    frames = (Frame("/project/scenarios/test_something.py", 70, "a_function"),)
    for width, line in (
        (90, "           rank 0  mkdir a  ok                  scenarios/test_something.py:70 a_function"),
        (88, "           rank 0  mkdir a  ok                  test_something.py:70 a_function"),
        (70, "           rank 0  mkdir a  ok                  test_something.py:70"),
        (60, "           rank 0  mkdir a  ok"),
    ):
        trace = [replace(op, stack=frames) for op in outcome.ops]
        (pair,) = candidates(trace, SHARED)
        text = render(Prediction(outcome, (Race(pair, why="x " * 80),), ()), width=width, root=Path("/project"))
        assert line in text.splitlines()
        assert max(map(len, text.splitlines())) <= width
        assert "test_something.py:70" in text


def test_data_is_json() -> None:
    toy = program([MAKE, BARRIER, WRITE, BARRIER, BARRIER], [MAKE, BARRIER, BARRIER, BARRIER, READ])
    run = attempt(toy)
    prediction = predict(located(run(tame())), run, [no_exists_error], SHARED)
    found = json.loads(json.dumps(data(prediction, root=Path("/project"))))
    (race,) = found["races"]
    assert race == {
        "verdict": "confirmed",
        "first": {
            "event": 1, "rank": 0, "thread": "0", "call": "mkdir", "paths": ["d"], "errno": "",
            "where": "train.py:7 save",
        },
        "second": {
            "event": 2, "rank": 1, "thread": "1", "call": "stat", "paths": ["d"], "errno": "",
            "where": "train.py:7 save",
        },
        "ranks": [[0, 1]],
        "violations": [{"invariant": "no-exists-error", "message": "rank 1 finds d there"}],
        "differences": [],
        "why": "",
    }  # fmt: skip
    barriers = [(each["collective"], each["needed"], each["stand_ins"]) for each in found["collectives"]]
    assert barriers == [
        ("barrier #0", False, []), ("barrier #1", False, ["barrier #2"]), ("barrier #2", False, ["barrier #1"]),
    ]  # fmt: skip
    assert [each["first"]["paths"] for each in found["collectives"][1]["keeps"]] == [["a"]]


# Real worlds.

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def real(session: Session, name: str) -> tuple[Outcome, Prediction]:
    scenario = resolve.load(str(Path(__file__).parents[2] / name))
    runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))

    def run(strategy: Strategy) -> Outcome:
        return runner.run(session, RunRequest.of(scenario, scenario.world, strategy, seed="0"))

    outcome = run(tame())
    return outcome, predict(outcome, run, scenario.invariants, storage.make(scenario.world))


@pytest.mark.parametrize(
    "name",
    [
        "scenarios/test_pytorch_async_save.py::staged",
        "tests/programs/worlds.py::every_collective",
        "tests/programs/worlds.py::point_to_point",
        "tests/programs/worlds.py::sub_groups",
        "tests/programs/threads.py::pool",
        "tests/programs/threads.py::children",
    ],
)
def test_the_clocks_of_real_ops_can_be_made_again(session: Session, name: str) -> None:
    outcome, _ = real(session, name)
    assert clocks(outcome.trace) == {
        index: event.clock for index, event in enumerate(outcome.trace) if isinstance(event, Op)
    }


def test_what_comes_after_a_barrier_was_issued_is_not_kept_in_order_by_it(session: Session) -> None:
    """And what a thread does comes after a barrier that the one which started it has been through."""
    _, prediction = real(session, "tests/programs/predicting.py::issued_early")
    assert [named(race.pair) for race in prediction.races] == [("0 mkdir between0", "1.1 stat between0")]
    assert [race.verdict for race in prediction.races] == ["harmless"]
    (need,) = prediction.needs
    assert [*map(named, need.pairs)] == [("0 mkdir before", "1.1 stat before")]


def test_a_missing_barrier_is_predicted(session: Session) -> None:
    _, prediction = real(session, "scenarios/test_makedirs_without_barrier.py::racy")
    (race,) = prediction.confirmed
    assert named(race.pair) == ("0 mkdir base_checkpoints/d20", "1 stat base_checkpoints/d20")
    assert {each.invariant for each in race.violations} == {"no-unexpected-errors"}
    _, prediction = real(session, "scenarios/test_makedirs_without_barrier.py::barrier")
    assert prediction.races == ()
    (need,) = prediction.needs
    assert [*map(named, need.pairs)] == [("0 mkdir base_checkpoints/d20", "1 stat base_checkpoints/d20")]
    assert "barrier #0 (test_makedirs_without_barrier.py:95 barrier) is needed" in render(prediction, root=SCENARIOS)


def test_a_real_op_that_cannot_come_first_is_infeasible(session: Session) -> None:
    """Nobody sleeps so long that another would have to wait for it."""
    _, prediction = real(session, "tests/programs/predicting.py::late")
    (race,) = prediction.races
    assert (race.verdict, race.why) == ("infeasible", "1 sleep did not come before 0 mkdir made")
