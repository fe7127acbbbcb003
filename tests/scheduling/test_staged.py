"""Proofs in stages: first what threads of a rank share under control, and then all that they may share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from racecheck.explore import resume
from racecheck.explore.findings import Reference
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model.errors import InternalError
from racecheck.model.nouns import Op, Outcome, Returned, Verdict, Violation, World
from racecheck.model.ops.footprint import depends
from racecheck.scheduling.claims import Claim
from racecheck.scheduling.relation import Relation
from racecheck.scheduling.strategies import DPOR, Staged, Strategy
from racecheck.scheduling.strategies.staged import CONDITION
from racecheck.sessions.session import Session
from tests.generated.programs import Program
from tests.generated.toy import Toy, world_of
from tests.support.builders import op, use
from tests.support.targets import target


def searched(program: Program, strategy: Strategy, most: int) -> int:
    """The runs that were made."""
    runs = 0
    while runs < most and strategy.begin(Random(0)):
        runs += 1
        outcome, _ = Toy(program, strategy.choose).run()
        strategy.end(outcome)
    return runs


def thread(*steps: tuple[object, ...]) -> tuple[object, ...]:
    return ("daemon", steps)


THREADS = Program(((thread(("mkdir", "a")), ("mkdir", "b")),))
"""Two threads of one rank that have nothing in common."""
RANKS = Program(((("mkdir", "a"), ("mkdir", "b")), (("mkdir", "c"), ("mkdir", "a"))))


def made(program: Program) -> Staged:
    return Staged(Relation(world_of(program)))


def test_without_threads_there_is_one_stage() -> None:
    strategy, alone = made(RANKS), DPOR(Relation(world_of(RANKS)))
    assert searched(RANKS, strategy, 100) == searched(RANKS, alone, 100)
    assert str(strategy.claim()) == str(alone.claim())
    assert strategy.claim().exhaustive


@pytest.mark.parametrize(
    ("one", "other", "is_dependent"),
    [
        (op("0 chdir d"), op("0.1 mkdir x"), True),
        (use("0 close a", 1, inode=7), use("0.1 write a", 1, inode=7), True),
        (use("0 dup b", 2, inode=8), use("0.1 write a", 1, inode=7), True),
        (op("0 finalise"), op("0.1 mkdir x"), True),
        (op("0 poll"), op("0.1 end"), True),
        (op("0 mkdir y"), op("0.1 mkdir x"), False),
        (use("0 close b", 2, inode=8), use("0.1 write a", 1, inode=7), False),
        (op("0 sleep"), op("0.1 mkdir x"), False),
    ],
)
def test_which_ops_of_two_threads_depend_in_the_first_stage(one: Op, other: Op, is_dependent: bool) -> None:
    controlled = Relation(World(), memory=False)
    shared = [replace(each, alone=False) for each in (one, other)]
    assert depends(*map(controlled.footprint, shared)) is is_dependent
    assert depends(*map(Relation(World()).footprint, shared)), "in the second stage all do"


def broken(self: DPOR, outcome: Outcome) -> None:
    raise InternalError("an op that can never come first")


def test_a_broken_assumption_ends_the_first_stage_only_where_there_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = DPOR.end
    for program in (RANKS, THREADS):
        strategy = made(program)
        assert strategy.begin(Random(0))
        outcome, _ = Toy(program, strategy.choose).run()
        monkeypatch.setattr(DPOR, "end", broken)
        if program is RANKS:
            with pytest.raises(InternalError):
                strategy.end(outcome)
        else:
            strategy.end(outcome)
        monkeypatch.setattr(DPOR, "end", whole)
    searched(THREADS, strategy, 1000)
    assert strategy.claim().exhaustive
    assert CONDITION not in strategy.claim().conditions


def test_the_line_says_which_stage_was_reached() -> None:
    first = made(THREADS)
    assert searched(THREADS, first, 2) == 2
    assert not first.claim().exhaustive
    whole = made(THREADS)
    every = searched(THREADS, whole, 1000)
    assert whole.claim().exhaustive
    assert CONDITION not in whole.claim().conditions, "it was dropped"
    cheap = next(runs for runs in range(1, every) if _claim(runs).exhaustive)
    for runs in range(cheap, every):
        claim = _claim(runs)
        assert claim.exhaustive
        assert CONDITION in claim.conditions
    assert "without the condition on threads: " in str(_claim(every - 1))
    assert cheap < every - 1


def _claim(runs: int) -> Claim:
    strategy = made(THREADS)
    searched(THREADS, strategy, runs)
    return strategy.claim()


def test_a_search_continues_in_its_stage(tmp_path: Path) -> None:
    every = searched(THREADS, made(THREADS), 1000)
    scenario, world = Reference("file.py::name", "0" * 64), World()
    for runs in range(1, every):
        strategy = made(THREADS)
        searched(THREADS, strategy, runs)
        if not strategy.progress.left:
            continue
        path = resume.save(resume.cut(scenario, world, "0", (), strategy.progress), tmp_path)
        again = Staged(Relation(world_of(THREADS)), resume.load(path, scenario, world, "0").progress)
        assert str(again.claim()) == str(strategy.claim())
        assert runs + searched(THREADS, again, 1000) == every
        assert again.claim().exhaustive


def explored(session: Session, name: str, file: str = "sharing") -> list[tuple[set[str], str]]:
    """For each run, the results found up to then and the claim of the search."""
    found: set[str] = set()
    told: list[tuple[set[str], str]] = []

    def collect(outcome: Outcome) -> list[Violation]:
        found.add(str([each.value if isinstance(each, Returned) else each for each in outcome.results]))
        return []

    scenario = target(file, name)
    asked = Search(scenario, scenario.world, (collect,), strategy="dpor", schedules=2000, keep_going=True)
    report = explore(session, asked, lambda *heard: told.append(({*found}, heard[3])))
    assert report.verdict is Verdict.PASS
    assert report.exhaustive
    assert CONDITION not in report.claim.conditions
    return told


@pytest.mark.parametrize(("name", "is_in_memory"), [("changed_beside_a_sleep", True), ("two_threads", False)])
def test_what_threads_share_in_memory_takes_the_second_stage(session: Session, name: str, is_in_memory: bool) -> None:
    """The claim of the first says that it takes that for granted."""
    told = explored(session, name)
    few, early = next(each for each in told if each[1].startswith("EXHAUSTED"))
    every, late = told[-1]
    assert (few < every) is is_in_memory
    assert f"; {CONDITION}" in early
    assert CONDITION not in late


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("closed", {"1", "closed"}),
        ("number_used_again", {"[1, 0]", "[0, 1]", "[0, 0]"}),
        ("number_taken_over", {"[1, 0]", "[0, 1]"}),
        ("shared_offset", {"12", "21"}),
        ("working_directory", {"True", "False"}),
    ],
)
def test_what_the_kernel_keeps_for_a_process_is_controlled(session: Session, name: str, results: set[str]) -> None:
    """Already the first stage finds all of it."""
    found, early = next(each for each in explored(session, name, "descriptors") if each[1].startswith("EXHAUSTED"))
    assert found == {str([each]) for each in results}
    assert f"; {CONDITION}" in early
