"""The strategies that sample: what they promise, and what they are good at."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import cache
from itertools import combinations, permutations, product
from random import Random

import pytest

from racecheck.model.errors import UsageError
from racecheck.model.nouns import Outcome, Point, Returned, World
from racecheck.scheduling.relation import Relation
from racecheck.scheduling.strategies import Auto, RandomWalk, Strategy, check_strategy
from racecheck.scheduling.strategies.sampling.pct import PCT
from racecheck.scheduling.strategies.sampling.portfolio import Portfolio
from racecheck.scheduling.strategies.sampling.pos import POS
from racecheck.scheduling.strategies.sampling.rounds import ROUND
from racecheck.scheduling.strategies.sampling.urw import URW
from racecheck.storage.footprints import footprint
from tests.support import toy_bugs
from tests.support.toy_bugs import Bug
from tests.support.toys import Do, Key, Program, Seen, attempt, every_run, random_program, run

SAMPLERS: dict[str, Callable[[], Strategy]] = {
    "random": RandomWalk,
    "pct": lambda: PCT(3),
    "pos": lambda: POS(footprint),
    "urw": URW,
    "portfolio": lambda: Portfolio(footprint),
}
LATE = Program((
    (Do("mkdir", "a"), Do("start", then=(Do("stat", "a"), Do("mkdir", "b"))), Do("rmdir", "a")),
    (Do("stat", "b"), Do("sleep"), Do("stat", "b")),
    (Do("lock", "l"), Do("start", then=(Do("stat", "b"),)), Do("mkdir", "b"), Do("unlock", "l")),
))  # fmt: skip
"""Threads that start late, a lock and a sleep."""


def makes(name: str, path: str = "") -> tuple[Do, ...]:
    """So many ops, all different: ``makes("xyz")``."""
    return tuple(Do("mkdir", path + each) for each in name)


def attempts(program: Program, strategy: Strategy, count: int) -> list[Outcome]:
    return [attempt(program, strategy, f"0:{number}") for number in range(count)]


def hits(bug: Bug, strategy: Strategy, count: int) -> int:
    return sum(map(bug.shows, attempts(bug.program, strategy, count)))


def least(count: int, probability: float) -> int:
    """So many hits or more there are in all but a millionth of all cases (Chernoff's bound)."""
    mean = count * probability
    return math.floor(mean - math.sqrt(2 * mean * math.log(1e6)))


@pytest.mark.parametrize("name", SAMPLERS)
def test_one_seed_gives_one_run(name: str) -> None:
    points: list[Point] = []

    def choose(point: Point) -> int:
        points.append(Point(point.kind, point.options, tuple(point.trace)))
        return len(points) % len(point.options)

    run(LATE, choose)
    check_strategy(SAMPLERS[name], points)
    first, second = (attempts(LATE, SAMPLERS[name](), 30) for _ in range(2))
    assert first == second
    assert len({outcome.schedule for outcome in first}) > 15


@pytest.mark.parametrize("name", SAMPLERS)
def test_only_what_there_is_gets_chosen_and_all_of_it_in_time(name: str) -> None:
    """In programs with locks, branches, collectives and threads that start late."""
    strategy = SAMPLERS[name]()

    def choose(point: Point) -> int:
        chosen = strategy.choose(point)
        assert 0 <= chosen < len(point.options)
        return chosen

    for seed in range(20):
        program = random_program(Random(seed), 100) if seed else LATE
        strategy = SAMPLERS[name]()
        starts = set()
        for number in range(60):
            assert strategy.begin(Random(f"{seed}:{number}"))
            outcome = run(program, choose)
            strategy.end(outcome)
            starts.add(outcome.schedule[0].index)
        assert starts == set(range(outcome.schedule[0].count)), f"seed {seed}"


@pytest.mark.parametrize("name", [*SAMPLERS, "auto"])
def test_runs_drawn_ahead_are_those_that_come(name: str) -> None:
    """In another process, too: so a strategy that is drawn ahead can be pickled."""
    for seed in range(5):
        program = random_program(Random(seed), 40) if seed else LATE
        strategy: Strategy = Auto(Relation(World(ranks=3))) if name == "auto" else SAMPLERS[name]()
        drawn: dict[int, bytes] = {}
        furthest = most = 0
        for number in range(70):
            for runs in range(40):
                found = strategy.ahead(runs, Random(f"{seed}:{number + runs}"))
                if found is not None:
                    drawn.setdefault(number + runs, pickle.dumps(found))
                    furthest = max(furthest, runs)
            if not strategy.begin(Random(f"{seed}:{number}")):
                break
            outcome = run(program, strategy.choose)
            if number in drawn:
                most += 1
                assert run(program, pickle.loads(drawn[number]).choose) == outcome, (seed, number)
            strategy.end(outcome)
        assert most >= (30 if name == "auto" else 69) or number < 69
        assert furthest >= ROUND or number < 69


# PCT


class Scripted(Random):
    """Draws what it is given: the numbers of places, and then priorities."""

    def __init__(self, places: tuple[int, ...], priorities: tuple[int, ...]) -> None:
        super().__init__(0)
        self._places, self._priorities = iter(places), iter(priorities)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return next(self._places)

    def random(self) -> float:
        return next(self._priorities) / 10


def order(outcome: Outcome) -> dict[Key, int]:
    """At what step each op was done, that is the n-th of its thread."""
    counts: Counter[str] = Counter()
    steps = {}
    for step, op in enumerate(outcome.ops):
        counts[op.thread] += 1
        steps[op.thread, counts[op.thread]] = step
    return steps


def every_draw(depth: int, runs: list[Outcome], program: Program) -> Iterator[Outcome]:
    """All runs of PCT, each as probable as any other, once it knows how many places there are."""
    threads, places = len({op.thread for op in runs[0].ops}), most_places(runs)
    for drawn in product(range(places), repeat=depth - 1):
        for priorities in permutations(range(threads)):
            strategy = PCT(depth)
            for outcome in sorted(
                runs, key=lambda each: -len(each.schedule)
            ):  # what the first one shows counts at once
                strategy.end(outcome)
            strategy.begin(Scripted(drawn, priorities))
            yield run(program, strategy.choose)


def most_places(runs: list[Outcome]) -> int:
    threads = len({op.thread for op in runs[0].ops})
    return threads + max(len(outcome.schedule) for outcome in runs)


def holding(runs: list[Outcome]) -> dict[tuple[Key, Key], int]:
    """For each ordering of two ops of different threads a mask of the runs in which it holds."""
    steps = [order(outcome) for outcome in runs]
    return {
        (one, other): sum(1 << bit for bit, each in enumerate(steps) if each[one] < each[other])
        for one, other in permutations(steps[0], 2)
        if one[0] != other[0]
    }


STRAIGHT = {
    "two threads": Program((makes("abc"), makes("xyz"))),
    "one is long": Program((makes("abcdef"), makes("x"))),
    "three threads": Program((makes("ab"), makes("mn"), makes("xy"))),
    "a barrier": Program((
        (*makes("ab"), Do("barrier"), *makes("c")), (*makes("m"), Do("barrier"), *makes("no")),
        (Do("barrier"), *makes("x")),
    )),
    "one is alone for a while": Program((
        (*makes("abcd"), Do("barrier"), *makes("e")), (Do("barrier"), *makes("xy")),
    )),
    "one way only": Program((
        (*makes("a"), Do("broadcast"), *makes("b"), Do("gather"), *makes("c")),
        (*makes("m"), Do("broadcast"), *makes("n"), Do("gather"), *makes("o")),
    )),
    "a thread starts late": Program((
        (*makes("a"), Do("start", then=makes("bc")), *makes("d")), makes("xy"),
    )),
}  # fmt: skip


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("name", STRAIGHT)
def test_whatever_few_orderings_bring_about_pct_hits_as_often_as_it_claims(name: str, depth: int) -> None:
    """Exactly: over all that it can draw, for all orderings that are possible at all."""
    program = STRAIGHT[name]
    every = list(every_run(program))
    draws = list(every_draw(depth, every, program))
    threads, places = len({op.thread for op in every[0].ops}), most_places(every)
    possible, hit = holding(every), holding(draws)
    wanted = 0
    for orderings in combinations(possible, depth):
        can, does = -1, -1
        for each in orderings:
            can, does = can & possible[each], does & hit[each]
        if can:
            wanted += 1
            assert does.bit_count() * threads * places ** (depth - 1) >= len(draws), orderings
    assert wanted >= depth


@pytest.mark.parametrize(
    ("depth", "bug"),
    [(1, toy_bugs.missing_at_first()), (2, toy_bugs.there_for_a_moment()), (3, toy_bugs.there_and_gone())],
)
def test_pct_hits_bugs_of_its_depth_and_none_that_are_deeper(depth: int, bug: Bug) -> None:
    bound = 1 / (2 * most_places(list(every_run(bug.program))) ** (depth - 1))
    assert hits(bug, PCT(depth), 1500) >= least(1500, bound) > 0
    if depth > 1:
        assert hits(bug, PCT(depth - 1), 300) == 0


def test_pct_says_what_it_promises_with_numbers() -> None:
    strategy = PCT(3)
    assert str(strategy.claim()) == ""
    attempts(Program((makes("abc"), makes("xyz"))), strategy, 100)
    most = 2 + 5  # who is last has nobody to be chosen from when only its own ops are left
    hit = 1 / (2 * most**2)
    assert str(strategy.claim()).startswith(
        f"a bug of depth 3 is hit with probability at least 1/(n*k^2) = 1/(2*{most}^2) = {hit:.2g} in each run, and "
    )
    runs = int(str(strategy.claim()).split()[-2])
    assert 50 <= runs < 100, "runs count from when the number of places was known"
    assert f"and {1 - (1 - hit) ** runs:.2g} in {runs} runs" in str(strategy.claim())
    attempt(Program((makes("abcdefgh"), makes("stuvwxyz"))), strategy, "0:0")
    assert str(strategy.claim()) == "", "there are more places than any run has known of"


def test_what_the_bound_does_not_speak_of_is_said() -> None:
    strategy = PCT(2)
    attempts(LATE, strategy, 30)
    assert str(strategy.claim()).startswith(
        "a bug of depth 2 (except for locks and polls) is hit with probability at least 1/(n*k)"
    )


def test_a_program_without_ops_has_no_probability() -> None:
    strategy = PCT(3)
    attempts(Program(((), ())), strategy, 3)
    assert str(strategy.claim()) == ""


def test_there_is_no_bug_of_depth_0() -> None:
    with pytest.raises(UsageError, match="depth must be at least 1"):
        PCT(0)


def test_a_polling_thread_lets_others_continue() -> None:
    def poll() -> Generator[Do, Seen, None]:
        while (yield Do("stat", "ready")).errno:
            yield Do("sleep")

    program = Program((poll, poll, (*makes("a"), Do("sleep"), *makes("b"), Do("mkdir", "ready"))), max_ops=60)
    for outcome in attempts(program, PCT(3), 100):
        assert all(isinstance(each, Returned) for each in outcome.results)


# URW


def shares(program: Program, strategy: Strategy, count: int) -> Counter[str]:
    """How often each interleaving came, as the threads in their order."""
    return Counter("".join(op.thread for op in outcome.ops) for outcome in attempts(program, strategy, count))


@pytest.mark.parametrize(
    ("program", "interleavings"),
    [
        (Program((makes("ab"), makes("uvwxyz"))), math.comb(8, 2)),
        (Program((
            (*makes("a"), Do("barrier"), *makes("bcde")), (*makes("vwxy"), Do("barrier"), *makes("z")),
        )), math.comb(5, 1) ** 2),
    ],
)  # fmt: skip
def test_urw_takes_every_interleaving_as_often_as_any_other(program: Program, interleavings: int) -> None:
    """All within 5 standard deviations of the mean; a random walk is far from it."""
    count = 60 * interleavings
    uniform, walked = shares(program, URW(), count), shares(program, RandomWalk(), count)
    assert len(uniform) == interleavings
    assert max(abs(each - 60) for each in uniform.values()) < 40
    assert max(walked.values()) > 180


# POS


def test_pos_draws_again_only_for_ops_that_raced() -> None:
    race = Program(((*makes("a"), Do("rmdir", "a")), (Do("stat", "a"),)))
    apart = Program((makes("ab"), (Do("stat", "c"),)))
    raced, stayed = shares(race, POS(footprint), 3000), shares(apart, POS(footprint), 3000)
    for found, expected in ((raced, (1 / 4, 1 / 4)), (stayed, (1 / 6, 1 / 3))):
        for interleaving, share in zip(("010", "001"), expected, strict=True):
            assert abs(found[interleaving] / 3000 - share) < 0.04


def test_pos_does_not_let_the_number_of_ops_decide_a_race() -> None:
    program = Program(((*makes("uvwxyz"), Do("mkdir", "a")), (Do("mkdir", "a"),)))
    runs = [attempts(program, make(), 1600) for make in (SAMPLERS["pos"], RandomWalk)]
    sampled, walked = (sum(each.results[1] == Returned(["EEXIST"]) for each in outcomes) for outcomes in runs)
    assert abs(sampled - 1600 / 8) < 70
    assert walked < 1600 / 128 + 20


# What each is good at.

BUGS = {
    "lock step": toy_bugs.lock_step(),
    "starved": toy_bugs.starved(),
    "one temporary name": toy_bugs.one_temporary_name(),
    "pruned": toy_bugs.pruned(),
}


@cache
def rate(bug: str, strategy: str) -> float:
    """The share of runs that show the bug."""
    return hits(BUGS[bug], SAMPLERS[strategy](), 400) / 400


def test_threads_in_lock_step_are_for_urw_and_starved_ones_for_pct_and_pos() -> None:
    assert min(rate("lock step", "urw"), rate("lock step", "random")) > 5 * rate("lock step", "pct")
    assert rate("one temporary name", "urw") > rate("one temporary name", "random")
    assert min(rate("starved", "pct"), rate("starved", "pos")) > 2 * rate("starved", "random")


@pytest.mark.parametrize("bug", BUGS)
def test_the_portfolio_is_good_at_all_of_them(bug: str) -> None:
    """At least a quarter as good as the best of its members."""
    assert rate(bug, "portfolio") > max(rate(bug, each) for each in SAMPLERS) / 4


def test_the_portfolio_claims_what_its_members_do() -> None:
    strategy = Portfolio(footprint)
    attempts(Program((makes("abc"), makes("xyz"))), strategy, 400)
    two, three = strategy.claim().remarks
    assert two.startswith("a bug of depth 2 ")
    assert three.startswith("a bug of depth 3 ")
    for claim in (two, three):
        assert 20 <= int(claim.split()[-2]) <= 60, "each has about a tenth of the runs"
