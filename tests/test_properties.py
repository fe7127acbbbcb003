"""Property tests with hypothesis: what is drawn, what is found, and how small it gets."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

import racecheck
from racecheck import Scenario, Switches, World
from racecheck.model import Returned
from tests.conftest import target

QUICK = settings(deadline=None, max_examples=60, database=None, derandomize=True)


def phase(name: str) -> Scenario:
    return target("phases", name)


def fails(schedule: Switches) -> bool:
    try:
        racecheck.check(phase("overwrite"), schedule=schedule)
    except AssertionError:
        return True
    return False


def test_a_race_is_found_and_shrunk_to_one_switch() -> None:
    least = find(racecheck.schedules(), fails, settings=QUICK)
    assert fails(least)
    assert len(least.taken) == 1
    assert re.fullmatch(r"Switches\(\[\(\d, 1\)\]\) \(to 1 (stat|rmdir) ckpt\)", repr(least))


def test_what_fails_shows_the_interleaving() -> None:
    with pytest.raises(AssertionError) as failed:
        racecheck.check(phase("overwrite"), schedule=Switches([(1, 1)]))
    text = str(failed.value)
    assert text.startswith("no-file-errors: FileNotFoundError on rank ")
    assert re.search(r"rmdir ckpt +ENOENT .*<---", text)


def test_what_is_right_passes_every_example() -> None:
    tried = []

    @QUICK
    @given(schedule=racecheck.schedules(), world=racecheck.worlds(ranks=(2, 3)))
    def holds(schedule: Switches, world: World) -> None:
        tried.append(world.ranks)
        outcome = racecheck.check(phase("guarded"), schedule=schedule, world=world)
        assert [*outcome.results] == [Returned()] * world.ranks

    holds()
    assert len(tried) >= 30
    assert {*tried} == {2, 3}


@settings(max_examples=50, database=None, deadline=None)
@given(world=racecheck.worlds(ranks=(1, 5), skew=2.0, timeout=7.0))
def test_worlds_are_as_asked(world: World) -> None:
    assert 1 <= world.ranks <= 5
    assert world.timeout == 7.0
    assert len(world.skew) == world.ranks
    assert all(0 <= each <= 2 for each in world.skew)


def test_the_same_draw_is_the_same_run() -> None:
    schedule = Switches([(0, 1), (2, 1)])
    first, second = (racecheck.run(phase("overwrite"), schedule=schedule).trace for _ in range(2))
    assert [str(event) for event in first] == [str(event) for event in second]


class Saver(racecheck.Phases):
    """Its rules are what is done with checkpoints, in any order."""

    @rule(schedule=racecheck.schedules(most=1))
    def save(self, schedule: Switches) -> None:
        self.check(phase("save"), schedule=schedule)

    @rule()
    def rotate(self) -> None:
        self.check(phase("rotate"))

    @rule()
    def resume(self) -> None:
        self.check(phase("resume"))


def test_the_shortest_sequence_of_phases_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    quick = settings(QUICK, stateful_step_count=6, suppress_health_check=[*HealthCheck])
    with pytest.raises(AssertionError, match="FileNotFoundError") as failed:
        run_state_machine_as_test(Saver, settings=quick)
    said = "\n".join([*getattr(failed.value, "__notes__", []), capsys.readouterr().out])
    assert re.findall(r"state\.(\w+)\(", said) == ["save", "rotate", "resume", "teardown"]


def test_a_phase_finds_what_the_last_one_left() -> None:
    machine = Saver()
    machine.save(Switches(()))
    outcome = machine.check(phase("save"))
    assert [*outcome.disk] == ["latest", "step0", "step1"]


def test_nobody_imports_hypothesis_who_does_not_ask() -> None:
    code = "import racecheck, sys; assert not {'hypothesis', 'torch'} & {*sys.modules}; racecheck.schedules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("ranks", [(0, 2), (3, 2)])
def test_impossible_worlds(ranks: tuple[int, int]) -> None:
    with pytest.raises(Exception, match=r"rank|max_value"):
        find(racecheck.worlds(ranks=ranks), lambda _: True, settings=QUICK)


def test_drawn_with_others() -> None:
    assert isinstance(find(st.tuples(racecheck.schedules(), st.integers()), lambda _: True)[0], Switches)
