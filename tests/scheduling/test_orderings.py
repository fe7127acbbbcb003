"""What a failing run owes its failure to: the critical pair, and the orderings with which every run fails."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import NamedTuple

import pytest

from racecheck import Op, Outcome, Violation, World
from racecheck.invariants import no_deadlock
from racecheck.model.nouns import Constraint, Invariant, OpName, Point, Returned
from racecheck.model.ops.launcher_ops import signal_op
from racecheck.scheduling import file_times
from racecheck.scheduling.explain import explain
from racecheck.scheduling.minimise import Failure, Flip, critical_pair, fewest_orderings, same_failure, shrink
from racecheck.scheduling.minimise.hitting_set import smallest_hitting_set
from racecheck.scheduling.strategies import RandomWalk, Strategy, check_strategy
from racecheck.scheduling.strategies.following.constrained import Constrained
from racecheck.scheduling.strategies.following.guided import Guided
from racecheck.scheduling.strategies.following.indices import Tape
from racecheck.scheduling.strategies.following.reversed_race import Forcing
from tests.support.builders import op
from tests.support.toy_failures import ENSURE, attempts, failing, no_errors, noise, run
from tests.support.toys import Do, Program, Seen


def published_complete(outcome: Outcome) -> Iterator[Violation]:
    """``latest`` comes last."""
    at = {event.path: index for index, event in enumerate(outcome.trace) if isinstance(event, Op)}
    for path, index in at.items():
        if path.startswith("shard") and index > at["latest"]:
            yield Violation("published-complete", "too early", (0, 1), (at["latest"], index))


def removed_by_one(outcome: Outcome) -> Iterator[Violation]:
    """What removes a directory finds it."""
    return (each for each in no_errors(outcome) if "rmdir" in each.message)


class Race(NamedTuple):
    """``pair`` is critical; empty if no pair is, and then ``others`` are the runs of those that were tried.

    With ``orderings`` every run fails.
    """

    program: Program
    pair: tuple[str, ...]
    others: tuple[Flip, ...]
    orderings: tuple[str, ...]
    invariant: Invariant = no_errors


CLEAR = (Do("list", "d", then=(Do("unlink", "d/x"),)), Do("stat", "end"))
REMOVE = (Do("stat", "d", then=(Do("unlink", "d/x"), Do("rmdir", "d"))),)
MAKE_STEP = (Do("mkdir", "step", otherwise=(Do("stat", "step"),)),)
PUBLISH = Do("rename", "tmp", "latest")
ONE, OTHER = ((Do("lock", first), Do("stat", "x"), Do("lock", second)) for first, second in ("lm", "ml"))

RACES = {
    "exists, mkdir": Race(
        Program(((ENSURE,),) * 2),
        ("0 stat d", "1 mkdir d"),
        (),
        ("0 stat d before 1 mkdir d", "1 mkdir d before 0 mkdir d"),
    ),
    "unlink, unlink": Race(
        Program(((Do("unlink", "a"),),) * 2, files=(("a", ""),)),
        (),
        ("another rank",),
        (),
    ),
    "rename, read": Race(
        Program(((*noise("x", 2), PUBLISH), (Do("read", "tmp"),)), files=(("tmp", "1"),)),
        ("0 rename tmp -> latest", "1 open tmp"),
        (),
        ("0 rename tmp -> latest before 1 open tmp",),
    ),
    "list, unlink": Race(
        Program((CLEAR, CLEAR), directories=("d",), files=(("d/x", ""),)),
        ("0 list d", "1 unlink d/x"),
        (),
        ("0 list d before 1 unlink d/x", "1 unlink d/x before 0 unlink d/x"),
    ),
    "locks in other orders": Race(
        Program((ONE, OTHER), inherited=("l", "m")),
        ("0 flock l", "1 flock l"),
        (),
        ("0 flock l before 1 flock l", "1 flock m before 0 flock m"),
        no_deadlock,
    ),
    "no barrier before publishing": Race(
        Program(((Do("mkdir", "shard0"), PUBLISH), (Do("mkdir", "shard1"),)), files=(("tmp", ""),)),
        ("0 rename tmp -> latest", "1 mkdir shard1"),
        (),
        ("0 rename tmp -> latest before 1 mkdir shard#",),
        published_complete,
    ),
    "two renames": Race(
        Program(((Do("rename", "a", "b"),), (Do("rename", "a", "c"),)), files=(("a", ""),)),
        (),
        ("another failure",),
        ("1 rename a -> c before 0 rename a -> b",),
    ),
    "exists, rmdir": Race(
        Program((REMOVE, REMOVE), ("d",), (("d/x", ""),)),
        ("1 stat d", "0 rmdir d"),
        (),
        ("0 unlink d/x before 1 rmdir d", "1 rmdir d before 0 rmdir d"),
        removed_by_one,
    ),
    "behind ops that are made good": Race(
        Program((MAKE_STEP + REMOVE, MAKE_STEP + REMOVE), ("d",), (("d/x", ""),)),
        ("1 stat d", "0 rmdir d"),
        (),
        ("0 unlink d/x before 1 rmdir d", "1 rmdir d before 0 rmdir d"),
        removed_by_one,
    ),
    "hidden by what comes after it": Race(
        Program(
            ((Do("unlink", "d/x"), Do("rmdir", "d"), Do("mkdir", "d")), (Do("read", "d/x"),)), ("d",), (("d/x", ""),)
        ),
        ("0 unlink d/x", "1 open d/x"),
        (),
        ("0 unlink d/x before 1 open d/x",),
    ),
}


@pytest.fixture(params=RACES)
def race(request: pytest.FixtureRequest) -> Race:
    return RACES[request.param]


def minimal(race: Race) -> tuple[Outcome, Failure]:
    found, fails = failing(race.program, race.invariant)
    return shrink(found, attempts(race.program), fails).outcome, fails


def passing(least: Outcome, program: Program, fails: Failure) -> list[Outcome]:
    pair = critical_pair(least, attempts(program), fails).pair
    return [pair.neighbour] if pair is not None else []


def test_the_critical_pair(race: Race) -> None:
    least, fails = minimal(race)
    made: list[Outcome] = []

    def attempt(world: World, strategy: Strategy) -> Outcome:
        made.append(attempts(race.program)(world, strategy))
        return made[-1]

    critical = critical_pair(least, attempt, fails)
    assert (critical.runs, critical.cut) == (len(made), False)
    pair = critical.pair
    if pair is None:
        assert (race.pair, critical.others) == ((), race.others)
        return
    assert (pair.first.label, pair.second.label) == race.pair
    assert [*least.trace, *least.pending][pair.events[0]] == pair.first
    assert [*least.trace, *least.pending][pair.events[1]] == pair.second
    labels = [each.label for each in pair.neighbour.ops]
    assert labels.index(pair.second.label) < labels.index(pair.first.label)
    assert not [*race.invariant(pair.neighbour)]
    assert all(isinstance(each, Returned) for each in pair.neighbour.results)
    assert pair.neighbour == made[-1], "one that passes is enough"


def test_the_fewest_orderings(race: Race) -> None:
    least, fails = minimal(race)
    passed = passing(least, race.program, fails)
    orderings = fewest_orderings(least, attempts(race.program), fails, passed=passed)
    assert (orderings.failed, orderings.completions, orderings.why) == (50, 50, "")
    assert sorted(map(str, orderings.constraints)) == sorted(race.orderings)


def test_every_ordering_is_needed(race: Race) -> None:
    """Other seeds than those with which they were found."""
    least, fails = minimal(race)
    kept = fewest_orderings(least, attempts(race.program), fails).constraints
    assert all(fails(run(race.program, Constrained(kept), f"fresh{seed}")) for seed in range(50))
    for left_out in kept:
        fewer = [each for each in kept if each != left_out]
        assert not all(fails(run(race.program, Constrained(fewer), f"fresh{seed}")) for seed in range(50))


def test_orderings_are_few_among_many_actors_with_much_else_to_do() -> None:
    program = Program(((*noise("x", 4), ENSURE, *noise("y", 4)),) * 2 + (noise("d", 4),) * 2)
    found, fails = failing(program, no_errors)
    orderings = fewest_orderings(found, attempts(program), fails)
    assert orderings.why == ""
    assert len(orderings.constraints) == 2
    assert orderings.runs < 120


def test_what_fails_in_every_order_has_no_pair_and_needs_no_orderings() -> None:
    program = Program(((Do("unlink", "b"), Do("mkdir", "x")), (Do("stat", "x"),)))
    found, fails = failing(program, no_errors)
    critical = critical_pair(found, attempts(program), fails)
    assert (critical.pair, critical.runs) == (None, 0), "nothing leads from the other race to the failure"
    orderings = fewest_orderings(found, attempts(program), fails)
    assert (orderings.constraints, orderings.failed, orderings.why) == ((), 50, "")


def test_what_a_barrier_orders_is_no_pair() -> None:
    """Nor is what lies behind it."""
    files = (("d/x", ""),)
    makes = (Do("unlink", "d/x"), Do("barrier"), Do("rmdir", "d"), Do("mkdir", "d"))
    program = Program((makes, (Do("barrier"), Do("read", "d/x"))), ("d",), files)
    found = run(program, Tape([]))
    assert [each.label for each in found.ops] == ["0 unlink d/x", "0 rmdir d", "0 mkdir d", "1 open d/x"]
    fails = same_failure(found, next(no_errors(found)), [no_errors])
    critical = critical_pair(found, attempts(program), fails)
    assert (critical.pair, critical.runs) == (None, 3)
    late = Program(((PUBLISH, Do("barrier")), (Do("barrier"), Do("mkdir", "shard1"))), files=(("tmp", ""),))
    found, fails = failing(late, published_complete)
    critical = critical_pair(found, attempts(late), fails)
    assert (critical.pair, critical.runs) == (None, 0)


def test_races_before_the_failure_come_first() -> None:
    publish = (PUBLISH, Do("mkdir", "z"))
    program = Program((publish, (Do("read", "tmp"), Do("stat", "z"))), files=(("tmp", "1"),))
    found, fails = failing(program, no_errors)
    found = shrink(found, attempts(program), fails).outcome
    assert [each.label for each in found.ops][-1] == "1 stat z"
    assert critical_pair(found, attempts(program), fails).runs == 1


def test_of_orderings_that_would_do_the_one_that_says_least_is_taken() -> None:
    """The reader may come when the directory is there again, but need not."""
    race = RACES["hidden by what comes after it"]
    found, fails = failing(race.program, no_errors)
    (constraint,) = fewest_orderings(found, attempts(race.program), fails).constraints
    assert str(constraint) == "0 unlink d/x before 1 open d/x"


def test_an_ordering_that_cannot_always_be_kept_needs_another_one() -> None:
    """Rank 0 removes the file only if it has found no flag."""
    program = Program(
        ((Do("stat", "flag", otherwise=(Do("unlink", "f"),)),), (Do("mkdir", "flag"), Do("read", "f"))),
        files=(("f", ""),),
    )
    found, fails = failing(program, no_errors)
    orderings = fewest_orderings(found, attempts(program), fails)
    assert orderings.why == ""
    assert {*map(str, orderings.constraints)} == {"0 stat flag before 1 mkdir flag", "0 unlink f before 1 open f"}


def test_what_is_needed_is_not_always_among_the_races() -> None:
    """A coin that no schedule knows decides which rank fails."""
    program = Program(((Do("mkdir", "x"),), (Do("stat", "x"),)))
    found = run(program, RandomWalk())
    coin = Random(0)

    def fails(other: Outcome) -> Violation | None:
        return Violation("coin", "tails") if other is found or coin.random() < 0.5 else None

    orderings = fewest_orderings(found, attempts(program), fails)
    assert orderings.why == "more than 6 orderings are needed, or orderings outside the run's races"
    assert orderings.failed == orderings.completions - 1


def test_an_order_in_which_something_else_fails_is_no_pair() -> None:
    """In the other order no file is missing, but a rank finds an empty one."""
    program = Program(((Do("open", "latest"),), (Do("read", "latest"),)))

    def nothing_is_empty(outcome: Outcome) -> Iterator[Violation]:
        if any(each.call == "read" and each.result is not None and not each.result.size for each in outcome.ops):
            yield Violation("nothing-is-empty", "an empty file was read", (1,))

    found = run(program, Tape([1]))
    fails = same_failure(found, next(no_errors(found)), [no_errors, nothing_is_empty])
    critical = critical_pair(found, attempts(program), fails)
    assert (critical.pair, {*critical.others}) == (None, {"another failure"})
    alone = same_failure(found, next(no_errors(found)), [no_errors])
    assert critical_pair(found, attempts(program), alone).pair is not None


def test_the_launcher_s_signal_after_a_failure_is_no_fault() -> None:
    race = RACES["exists, mkdir"]
    least, fails = minimal(race)
    signalled = replace(signal_op(1, "1", "SIGTERM"), clock={"1": 99})
    ended = replace(least, trace=(*least.trace, signalled))
    assert critical_pair(ended, attempts(race.program), fails).pair is not None


WINDOW = Program(
    (
        (*noise("x", 8), Do("mkdir", "w"), Do("rmdir", "w"), *noise("y", 8)),
        *((Do("stat", "w"),) for _ in range(3)),
    )
)


def all_look_in_the_window(outcome: Outcome) -> Iterator[Violation]:
    """It holds in 1 of 27 interleavings, which random schedules rarely meet."""
    looks = [each for each in outcome.ops if (each.call, each.path) == ("stat", "w")]
    if any(each.result is None or each.result.errno for each in looks):
        yield Violation("all-look-in-the-window", "one came too early or too late")


def test_dpor_sees_what_random_schedules_miss() -> None:
    found, fails = failing(WINDOW, all_look_in_the_window)
    sampled = fewest_orderings(found, attempts(WINDOW), fails)
    assert (sampled.constraints, sampled.failed, sampled.proof) == ((), 50, "")
    proven = fewest_orderings(found, attempts(WINDOW), fails, every=100)
    assert len(proven.constraints) == 1
    assert proven.proof == "9 of all 27 interleavings keep them, and each of these fails"
    cut = fewest_orderings(found, attempts(WINDOW), fails, every=3)
    assert (cut.constraints, cut.proof) == ((), ""), "so few runs are no proof"


def test_orderings_do_not_contradict_a_run_that_is_known_to_pass() -> None:
    found, fails = failing(WINDOW, all_look_in_the_window)
    window = [("0", number) for number in range(1, 10)]
    looks = [(str(rank), 1) for rank in (1, 2, 3)]
    passes = run(WINDOW, Guided([*window, *looks]))
    assert not [*all_look_in_the_window(passes)]
    assert fewest_orderings(found, attempts(WINDOW), fails, passed=[passes]).constraints


def test_an_explanation_does_not_contradict_a_run_that_the_search_saw_pass() -> None:
    """Of 729 interleavings one passes, and DPOR may not run them all."""
    program = Program((*WINDOW.actors, *WINDOW.actors[1:]))

    def all_six_look(outcome: Outcome) -> Iterator[Violation]:
        return all_look_in_the_window(outcome) if outcome.world.ranks == 7 else iter(())

    window, looks = [("0", number) for number in range(1, 10)], [(str(rank), 1) for rank in range(1, 7)]
    passes = run(program, Guided([*window, *looks]))
    found, _ = failing(program, all_six_look)
    (violation,) = all_six_look(found)
    wanted = {"attempt": attempts(program), "seconds": 100.0, "seed": "0", "most": 25}
    alone = explain(found, violation, [all_six_look], **wanted).orderings
    assert (alone and alone.constraints, alone and alone.why) == ((), ""), "all 20 random runs failed"
    knowing = explain(found, violation, [all_six_look], **wanted, passed=[passes]).orderings
    assert knowing is not None
    assert len(knowing.constraints) == 1


def test_orderings_of_ops_that_do_not_depend_are_not_proven() -> None:
    race = RACES["no barrier before publishing"]
    least, fails = minimal(race)
    found = fewest_orderings(least, attempts(race.program), fails, every=100)
    assert (len(found.constraints), found.proof) == (1, "")


@pytest.mark.parametrize("seed", range(20))
def test_hitting_sets_are_as_small_as_brute_force_finds(seed: int) -> None:
    rng = Random(seed)
    items = "abcdefgh"
    sets = [frozenset(rng.sample(items, rng.randint(1, 4))) for _ in range(rng.randint(0, 8))]
    sizes = range(len(items) + 1)
    fewest = next(size for size in sizes for some in combinations(items, size) if all(each & {*some} for each in sets))
    found = smallest_hitting_set(sets, items, len(items))
    assert found is not None
    assert len(found) == fewest
    assert all(each & found for each in sets)
    assert smallest_hitting_set(sets, items, fewest - 1) is None


def test_what_no_item_hits_has_no_hitting_set() -> None:
    assert smallest_hitting_set([frozenset(), frozenset("a")], "a", 3) is None


def test_budgets_are_kept() -> None:
    race = RACES["list, unlink"]
    least, fails = minimal(race)
    none = critical_pair(least, attempts(race.program), fails, budget=0)
    assert (none.pair, none.runs, none.cut) == (None, 0, True)
    cut = fewest_orderings(least, attempts(race.program), fails, budget=20)
    assert (cut.runs, cut.why) == (20, "the budget ended after 20 runs")
    assert 0 < cut.failed <= cut.completions < 50
    assert len(cut.constraints) == 2


def test_the_run_that_passed_already_saves_runs() -> None:
    race = RACES["list, unlink"]
    least, fails = minimal(race)
    passed = passing(least, race.program, fails)
    helped = fewest_orderings(least, attempts(race.program), fails, passed=passed)
    alone = fewest_orderings(least, attempts(race.program), fails)
    assert {*helped.constraints} == {*alone.constraints}
    assert helped.runs < alone.runs


def test_a_larger_budget_gives_nothing_worse() -> None:
    race = RACES["list, unlink"]
    least, fails = minimal(race)
    failed = [fewest_orderings(least, attempts(race.program), fails, budget=budget).failed for budget in range(70)]
    assert failed == sorted(failed)
    assert failed[-1] == 50


def test_the_same_from_the_same_seed() -> None:
    race = RACES["list, unlink"]
    least, fails = minimal(race)
    one, other = (fewest_orderings(least, attempts(race.program), fails, seed="7") for _ in range(2))
    assert one == other


# The strategy.


def name(text: str, number: int = 1) -> OpName:
    thread, call, path = text.split(" ", 2)
    return OpName(thread, call, path, number)


def before(one: str, other: str, *, first: int = 1, second: int = 1) -> Constraint:
    return Constraint(name(one, first), name(other, second))


TWO = Program(((Do("mkdir", "a0"), Do("stat", "x"), Do("mkdir", "a1")), (Do("mkdir", "b"), Do("stat", "y"))))


def orders(program: Program, *constraints: Constraint) -> set[tuple[str, ...]]:
    strategy = Constrained(constraints)
    return {tuple(each.label for each in run(program, strategy, seed).ops) for seed in range(60)}


def test_all_that_the_constraints_leave_open_is_random() -> None:
    assert len(orders(TWO)) == 10
    kept = orders(TWO, before("1 stat y", "0 mkdir a#"))
    assert kept == {("1 mkdir b", "1 stat y", "0 mkdir a0", "0 stat x", "0 mkdir a1")}


def test_a_name_says_which_of_several() -> None:
    kept = orders(TWO, before("1 stat y", "0 mkdir a#", second=2), before("0 stat x", "1 mkdir b"))
    assert kept == {("0 mkdir a0", "0 stat x", "1 mkdir b", "1 stat y", "0 mkdir a1")}


def test_it_is_a_strategy() -> None:
    options = tuple(op(f"{rank} stat a") for rank in range(3))
    check_strategy(lambda: Constrained([before("0 stat a", "1 stat a")]), [Point("next", options)] * 5)


def test_kept_constraints_are_not_unmet() -> None:
    strategy = Constrained([before("1 stat y", "0 mkdir a#", second=2)])
    run(TWO, strategy)
    assert strategy.unmet == {}


def test_an_op_that_never_happens_is_reported() -> None:
    gone, other = before("1 rename y -> z", "0 stat x"), before("0 stat x", "1 unlink y")
    strategy = Constrained([gone, other, before("0 mkdir a#", "1 mkdir b")])
    run(TWO, strategy)
    assert strategy.unmet == {gone: "1 rename y -> z never happens", other: "1 unlink y never happens"}


def test_a_constraint_that_cannot_be_met_is_dropped_and_reported() -> None:
    """Each has to wait for the other."""
    circle = [before("0 mkdir a#", "1 mkdir b"), before("1 mkdir b", "0 mkdir a#")]
    strategy = Constrained(circle)
    for seed in range(20):
        run(TWO, strategy, seed)
        (why,) = strategy.unmet.values()
        assert why in {
            "1 mkdir b could not be delayed until 0 mkdir a#",
            "0 mkdir a# could not be delayed until 1 mkdir b",
        }


def test_an_op_that_waits_for_its_lock_at_the_end_has_kept_the_order() -> None:
    program, invariant = RACES["locks in other orders"].program, no_deadlock
    found, fails = failing(program, invariant)
    strategy = Constrained(fewest_orderings(found, attempts(program), fails).constraints)
    run(program, strategy)
    assert strategy.unmet == {}


def test_a_polling_thread_does_not_wait_forever_for_one_that_is_held_back() -> None:
    def polls() -> Generator[Do, Seen, None]:
        while (yield Do("stat", "flag")).errno:
            yield Do("sleep")
        yield Do("mkdir", "late")

    program = Program((polls, (Do("mkdir", "flag"),)), max_ops=1000)
    strategy = Constrained([before("0 mkdir late", "1 mkdir flag")])
    found = run(program, strategy)
    assert [each.label for each in found.ops[-2:]] == ["0 stat flag", "0 mkdir late"]
    assert strategy.unmet == {
        before("0 mkdir late", "1 mkdir flag"): "1 mkdir flag could not be delayed until 0 mkdir late"
    }


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_what_comes_behind_a_reversed_pair_keeps_its_order(first: int, second: int) -> None:
    """The rank that makes the step has one op less, the other one more; the same rank is the first to take the file."""
    program = Program(tuple((*MAKE_STEP, Do("rename", "f", f"taken by {rank}")) for rank in (0, 1)), files=(("f", ""),))
    order = [first, second, second, first, second]
    outcome = run(program, Indices(order))
    labels = [op.label for op in outcome.ops]
    assert labels == [
        f"{first} mkdir step", f"{second} mkdir step", f"{second} stat step", f"{first} rename f -> taken by {first}",
        f"{second} rename f -> taken by {second}",
    ]  # fmt: skip
    forcing = Forcing(file_times.relation_of(outcome), outcome.trace, 0, 1, outcome.schedule)
    neighbour = run(program, forcing)
    assert forcing.problem == ""
    assert [op.label for op in neighbour.ops] == [
        f"{second} mkdir step", f"{first} mkdir step", f"{first} stat step", f"{first} rename f -> taken by {first}",
        f"{second} rename f -> taken by {second}",
    ]  # fmt: skip


class Indices(RandomWalk):
    """Has the actors go in this order."""

    def __init__(self, actors: list[int]) -> None:
        super().__init__()
        self._actors = iter(actors)

    def choose(self, point: Point) -> int:
        actor = next(self._actors)
        return next(index for index, op in enumerate(point.options) if op.rank == actor)
