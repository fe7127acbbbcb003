"""Property tests with hypothesis: what is drawn, what is found, how small it gets, and what a user sees of it."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import Phase, example, find, given, seed, settings
from hypothesis.stateful import rule, run_state_machine_as_test

import racecheck
from racecheck import CannotRun, Scenario, Switches, UsageError, World, faults
from racecheck.explore.current_session import HERE
from racecheck.model.nouns import Outcome, Returned, Size
from racecheck.supervisor.one_run import Supervisor
from tests.support import toys
from tests.support.inner_pytest import PLUGIN
from tests.support.pages import block
from tests.support.targets import target
from tests.support.toys import Do, Program

SEED = 1
"""With which hypothesis comes soon to what is wrong; with one in eight it does not in 100 examples."""
QUICK = settings(deadline=None, max_examples=60, database=None, derandomize=True)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows with every run of a world."""
    found: list[object] = []
    run = Supervisor.run

    def counted(self: Supervisor) -> Outcome:
        found.append(self)
        return run(self)

    monkeypatch.setattr(Supervisor, "run", counted)
    return found


def phase(name: str) -> Scenario:
    return target("phases", name)


def switched(outcome: Outcome) -> int:
    """How many choices were not the default."""
    return sum(each.index > 0 for each in outcome.schedule)


def taking(program: Program, switches: Switches) -> Outcome:
    return toys.attempt(program, switches, "0")


# Schedules.

WORK = tuple(Do("stat", "a") for _ in range(3))


def order(outcome: Outcome) -> str:
    return "".join(op.thread for op in outcome.ops)


@pytest.mark.parametrize(
    ("switches", "expected"),
    [
        ([], "000111222"),
        ([(0, 0)], "111222000"),
        ([(0, 2)], "001112220"),
        ([(0, 1), (1, 2), (2, 0)], "011001222"),
        ([(0, 1), (0, 1), (1, 0), (2, 3)], "022211100"),
        ([(0, 7), (5, 0)], "000111222"),
    ],
)
def test_a_rank_gives_way_where_a_switch_says_so(switches: list[tuple[int, int]], expected: str) -> None:
    assert order(taking(Program((WORK,) * 3), Switches(switches))) == expected


def test_a_thread_that_continues_has_its_turn_again() -> None:
    """Rank 0 has given way to rank 2 alone; when it wakes rank 1 up it does not do so again."""
    told = Do("broadcast")
    program = Program(((WORK[0], told, *WORK[:2]), (told, WORK[0]), WORK[:1]))
    assert order(taking(program, Switches([(0, 0)]))) == "20001"


def test_every_schedule_can_be_written_with_switches() -> None:
    program = Program((WORK[:2], WORK[:1], WORK[:1]))
    places = [(0, 0), (0, 1), (1, 0), (2, 0)] * 2
    some = (each for count in range(6) for each in combinations(places, count))
    assert {order(taking(program, Switches(each))) for each in some} == {*map(order, toys.every_run(program))}


@settings(QUICK, max_examples=300)
@given(one=racecheck.schedules(ops=4), other=racecheck.schedules(ops=4))
def test_schedules_that_come_to_the_same_run_are_known(one: Switches, other: Switches) -> None:
    program = Program((WORK, WORK, WORK))
    one, other = one.within(3), other.within(3)
    first, second = (order(taking(program, each)) for each in (one, other))
    assert first == second or not one.is_same_run(other)
    assert one.is_same_run(one)


def test_the_ranks_that_there_are_stand_for_all() -> None:
    assert (
        repr(Switches([(4, 1), (1, 2), (2, 1), (0, 3), (0, 3)]).within(2))
        == "Switches([(0, 1), (0, 3), (0, 3), (1, 2)])"
    )


# What is found.


def fails(schedule: Switches) -> bool:
    try:
        racecheck.check(phase("overwrite"), schedule=schedule)
    except AssertionError:
        return True
    return False


def test_a_race_is_found_and_shrunk_to_one_switch() -> None:
    least = find(racecheck.schedules(), fails, settings=QUICK)
    assert len(least.switches) == 1
    assert switched(racecheck.run(phase("overwrite"), schedule=least)) == 1


def test_what_fails_shows_the_interleaving_and_is_drawn_if_asked_to(tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as failed:
        racecheck.check(phase("overwrite"), schedule=Switches([(0, 1)]), html=tmp_path / "race.html")
    text = str(failed.value)
    assert "</html>" in (tmp_path / "race.html").read_text("utf-8")
    assert text.startswith("FAIL  no-file-errors: FileNotFoundError on rank ")
    assert re.search(r"rmdir ckpt +ENOENT .*<---", text)
    assert "Replay:  racecheck replay " in text


def test_what_is_right_passes_every_example(runs: list[object]) -> None:
    tried = []

    @settings(QUICK, max_examples=50)
    @given(schedule=racecheck.schedules(), world=racecheck.worlds(ranks=(2, 3)))
    def holds(schedule: Switches, world: World) -> None:
        tried.append(world.ranks)
        report = racecheck.check(phase("guarded"), schedule=schedule, world=world)
        assert report.outcome is not None
        assert [*report.outcome.results] == [Returned()] * world.ranks

    holds()
    assert len(tried) == 50
    assert {*tried} == {2, 3}
    assert len(runs) < 30, "two ranks have two schedules, three six"


def test_what_is_asked_for_again_is_answered_from_memory(runs: list[object]) -> None:
    first = racecheck.run(phase("overwrite"), schedule=Switches([(1, 9), (0, 1)]))
    done = len(runs)
    assert racecheck.run(phase("overwrite"), schedule=Switches([(0, 1)])) is first, "rank 1 does not come so far"
    assert len(runs) == done
    for _ in range(3):
        assert racecheck.run(phase("overwrite"), schedule=Switches([(0, 1), (1, 9)])) is first
    assert len(runs) <= done + 1, "once more, to see whether it is the same again"


# UNKNOWN.


def property_of(scenario: Scenario, holds: Callable[[Outcome], bool]) -> Callable[[], None]:
    @settings(QUICK, max_examples=100)
    @example(schedule=Switches())
    @given(schedule=racecheck.schedules())
    def test(schedule: Switches) -> None:
        assert holds(racecheck.run(scenario, schedule=schedule))

    return test


def test_a_run_that_differs_is_unknown_and_not_flaky() -> None:
    """Only what fails is asked for again."""
    with pytest.raises(CannotRun, match=r"^UNKNOWN  two runs of the same schedule differ: .*log"):
        property_of(phase("rarely_alike"), lambda outcome: "log" not in outcome.disk)()
    with pytest.raises(CannotRun, match=r"^UNKNOWN  two runs of the same schedule differ: .*different bytes"):
        property_of(target("savers", "differing"), lambda _: True)()


def test_names_that_differ_are_learnt() -> None:
    outcome = racecheck.run(phase("named_by_chance"), schedule=Switches([(0, 0)]))
    assert [*outcome.disk] == ["<0:1>.tmp", "<1:1>.tmp"]


def test_what_cannot_be_judged_is_unknown() -> None:
    with pytest.raises(CannotRun, match=r"UNKNOWN .*\n.*no invariant was given"):
        racecheck.check(phase("guarded"), invariants=())


@settings(QUICK, deadline=200)
@given(schedule=racecheck.schedules())
def test_a_deadline_is_not_for_runs(schedule: Switches) -> None:
    with pytest.raises(UsageError, match=r"^racecheck: .* deadline of 200 ms: add @settings\(deadline=None\)$"):
        racecheck.run(phase("guarded"), schedule=schedule)


# Worlds.


@settings(QUICK, deadline=None)
@given(world=racecheck.worlds(World(timeout=7.0, storage="node-local"), ranks=(2, 3, 4), nodes=(1, 2), skew=2.0))
def test_worlds_are_as_asked(world: World) -> None:
    assert (world.ranks, world.nodes) in {(2, 1), (3, 1), (4, 1), (2, 2), (4, 2)}
    assert (world.timeout, world.storage) == (7.0, "node-local")
    assert len(world.skew) in {0, world.ranks}
    assert all(0 <= each <= 2 for each in world.skew)


def test_the_simplest_world_is_the_first_one() -> None:
    assert find(racecheck.worlds(ranks=(2, 4), skew=1.0), lambda _: True) == World(ranks=2)
    assert find(racecheck.worlds(phase("save"), ranks=(3, 1)), lambda _: True) == World(ranks=3)
    late = find(racecheck.worlds(ranks=(2,), skew=1.0), lambda it: bool(it.skew) and it.skew[1] >= 0.25)
    assert late.skew == (0.0, 0.25)


@given(racecheck.worlds(target("savers", "sized"), ranks=(2, 3), sizes={"shards": 2}))
def test_sizes_are_as_asked(world: World) -> None:
    assert world.sizes in {(Size("steps", 4), Size("shards", value)) for value in (1, 2)}


def test_sizes_shrink_to_one_and_reach_what_was_given() -> None:
    drawn = racecheck.worlds(target("savers", "sized"), sizes={"shards": 2})
    assert find(drawn, lambda _: True).sizes[1].value == 1
    assert find(drawn, lambda world: world.sizes[1].value > 1).sizes[1].value == 2


def test_what_differs_from_run_to_run_with_larger_sizes_alone_is_learnt_then() -> None:
    scenario, small = target("savers", "named_by_pid"), World(ranks=1, sizes=(Size("steps", 1),))
    assert racecheck.run(scenario, world=small).results == (Returned(),)
    large = [racecheck.run(scenario, world=World(ranks=1), schedule=each) for each in (None, Switches([(0, 9)]), None)]
    assert [each.results for each in large] == [(Returned(),)] * 3


def test_a_world_that_was_made_for_another_scenario_has_the_sizes_of_this_one() -> None:
    sized = target("savers", "sized")
    assert sized.fitted(World(ranks=4)).sizes == (Size("steps", 4), Size("shards", 3))
    assert sized.fitted(World(sizes=(Size("steps", 2), Size("files", 9)))).sizes == (
        Size("steps", 2),
        Size("shards", 3),
    )
    assert racecheck.run(sized, world=World(ranks=1)).results == (Returned(),)


@given(racecheck.worlds(faults=("EIO on write nth=each times=all", "kill on rename")))
def test_one_thing_goes_wrong_or_nothing(world: World) -> None:
    written = [faults.text(each) for each in world.faults]
    assert written in ([], ["kill on rename"]) or re.fullmatch(r"EIO on write( nth=\d+)? times=all", written[0])
    assert len(written) < 2


def test_a_fault_is_found_and_shrunk_to_the_first_op_that_it_takes() -> None:
    """Before the second op nothing has happened yet."""
    in_place = target("faulty", "in_place")

    @settings(deadline=None, database=None, max_examples=60, phases=[Phase.generate, Phase.shrink])
    @given(world=racecheck.worlds(in_place, faults=("kill on any rank=0 nth=each",)))
    def property_(world: World) -> None:
        racecheck.check(in_place, world=world)

    with pytest.raises(AssertionError, match="recovers") as caught:
        property_()
    assert "what='kill',rank=0,nth=2" in re.sub(r"#.*|\s", "", str(caught.value))


ANYTHING: dict[str, Any] = {"len": len, "list": [(0, 1)], "int": 2}
"""What people without a type checker may pass."""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: racecheck.worlds(ranks=(0,)), r"ranks must be from 1 to 1024, not 0"),
        (
            lambda: racecheck.worlds(ranks=(3,), nodes=(2, 4)),
            r"no number of ranks in .3. divides evenly among .2, 4. nodes",
        ),
        (lambda: racecheck.worlds(skew=float("inf")), r"a skew must be at most"),
        (lambda: racecheck.schedules(ops=0), r"schedules\(ops=0\): ops must be at least 1"),
        (lambda: racecheck.check(ANYTHING["len"]), r"^racecheck: <built-in .* is not a scenario: decorate "),
        (
            lambda: racecheck.run(phase("save"), schedule=ANYTHING["list"]),
            r"^racecheck: \[\(0, 1\)\] is not a schedule: draw one",
        ),
        (lambda: racecheck.run(phase("save"), world=ANYTHING["int"]), r"^racecheck: 2 is not a world: draw one"),
        (lambda: Saver().on_another_storage(), r"^racecheck: phases on one disk need one storage model"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(wrong: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError, match=said) as told:
        wrong()
    assert "\n" not in str(told.value)


# Phases.


class Saver(racecheck.Phases):
    """Its rules are what is done with checkpoints, in any order."""

    @rule(schedule=racecheck.schedules())
    def save(self, schedule: Switches) -> None:
        self.check(phase("save"), schedule=schedule)

    @rule()
    def rotate(self) -> None:
        self.check(phase("rotate"))

    @rule()
    def resume(self) -> None:
        self.check(phase("resume"))

    def on_another_storage(self) -> None:
        self.check(phase("save"))
        self.check(phase("save"), world=World(storage="node-local"))


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The example of the guide, as a user copies it."""
    place = tmp_path_factory.mktemp("example")
    (place / "example_of_properties.py").write_text(block("properties", "python"))
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(place)
        yield importlib.import_module("example_of_properties")


def test_the_example_of_the_guide_holds(copied: ModuleType) -> None:
    copied.test_save(racecheck=racecheck)


@pytest.mark.slow
def test_the_example_of_the_guide_finds_the_shortest_sequence(copied: ModuleType) -> None:
    """A job that removes the newest checkpoint cannot resume."""
    saver = copied.Saver
    with pytest.raises(AssertionError, match="FileNotFoundError") as failed:
        run_state_machine_as_test(seed(SEED)(saver), settings=settings(saver.TestCase.settings, database=None))
    steps = re.findall(r"state\.(\w+)\((.*)\)", str(failed.value))
    assert steps == [("save", "schedule=Switches([])"), ("rotate", ""), ("resume", ""), ("teardown", "")]


def test_a_phase_finds_what_the_last_one_left(runs: list[object]) -> None:
    machine = Saver()
    machine.save(Switches())
    machine.save(Switches())
    outcome = machine.run(phase("save"))
    assert [*outcome.disk] == ["latest", "step0", "step1", "step2"]
    again, done = Saver(), len(runs)
    for _ in range(2):
        again.save(Switches())
    assert len(runs) <= done + 3, "these are known, and at most seen to again"
    other = again.run(phase("rotate"))
    assert [*other.disk] == ["latest", "step0"], "the disk is made what it was"


def test_the_disk_is_restored_whatever_used_or_ended_the_session() -> None:
    racecheck.run(phase("save"))
    machine = Saver()
    machine.save(Switches())
    with HERE.use() as session:
        session.slot.reset(World())
    assert [*machine.run(phase("save")).disk] == ["latest", "step0", "step1"]
    HERE.close()
    assert [*machine.run(phase("save")).disk] == ["latest", "step0", "step1", "step2"]


def test_time_passes_between_phases() -> None:
    """What was there before was made an hour ago, and two."""
    machine = Saver()
    ages = [machine.run(phase("dated")).results[0] for _ in range(3)]
    assert ages == [Returned([0]), Returned([0, 1]), Returned([0, 1, 2])]


def test_what_is_loaded_is_what_an_earlier_phase_saved() -> None:
    machine = Saver()
    with pytest.raises(CannotRun, match="no rank declared what it saved"):
        machine.check(phase("loads_weights"))
    machine.run(phase("saves_weights"))
    machine.check(phase("loads_weights"))
    with pytest.raises(AssertionError, match="consistent-weights"):
        machine.check(phase("loads_others"))


# What a user sees.


def test_hypothesis_is_imported_only_on_request() -> None:
    code = "import racecheck, sys; assert not {'hypothesis', 'torch'} & {*sys.modules}; racecheck.schedules"
    subprocess.run([sys.executable, "-c", code], check=True)


TESTS = """
import racecheck
from hypothesis import given, settings
from racecheck import World, scenario

@scenario(ranks=2, nodes=1)
def racing(rank):
    if not (rank.path / "ckpt").exists():
        (rank.path / "ckpt").mkdir()

@settings(deadline=None)
@given(schedule=racecheck.schedules(), world=racecheck.worlds(ranks=(2, 3)))
def test_check(racecheck, schedule, world):
    racecheck.check(racing, schedule=schedule, world=world)

@settings(deadline=None)
@given(schedule=racecheck.schedules())
def test_own(racecheck, schedule):
    assert "Raised" not in repr(racecheck.run(racing, schedule=schedule).results)

@given(schedule=racecheck.schedules())
def test_deadline(racecheck, schedule):
    racecheck.check(racing, schedule=schedule)

def test_wrong(racecheck):
    racecheck.check(racing, schedule=package.Switches(), schedules=5)

def test_wrong_too(racecheck):
    racecheck.run(racing, world=World(), ranks=3)

package = racecheck
"""


PROFILES = """
from hypothesis import Phase, settings

settings.load_profile("default")  # where CI is set, hypothesis takes another: no database, no deadline
settings.register_profile("reuse", phases=[Phase.reuse])
"""


def test_with_the_fixture_the_database_and_xdist(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RACECHECK_FINDINGS", raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    pytester.makeini("[pytest]\naddopts = --strict-markers --strict-config\nfilterwarnings = error\n")
    pytester.makeconftest(PROFILES)
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_subprocess(*PLUGIN, "-n2", timeout=180)
    done.assert_outcomes(failed=5)
    done.stdout.fnmatch_lines(
        [
            "FAIL  no-file-errors: FileExistsError on rank *",
            "*mkdir ckpt*EEXIST*<---*racing",
            "Replay:  racecheck replay .racecheck/racing-*/*.json",
            "    schedule=Switches([[](0, 1)[]]),",
            "    world=World(),*",
            "racing: 1 of 3 choices are not the default: 2 is 1 stat ckpt",
        ]
    )
    text = done.stdout.str()
    for line in (
        r"E +schedule=Switches\(\[\(0, 1\)\]\),",
        "racecheck: a run may exceed this test's deadline of 200 ms: ",
        "racecheck: a schedule means one run: leave out schedules= and strategy=",
        "racecheck: a world sets its own ranks: leave out ranks= or world=",
    ):
        assert re.search(line, text), line
    assert "During handling" not in text
    (found,) = set(re.findall(r"racecheck replay (\S+)", text))
    again = pytester.runpytest_subprocess(*PLUGIN, "-k", "check or own", "--hypothesis-profile=reuse", timeout=180)
    again.assert_outcomes(failed=2)
    assert f"racecheck replay {found}" in again.stdout.str()
