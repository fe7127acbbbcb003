"""Calls that go in two parts: found by a search where another thread could meet them halfway, and alike otherwise."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from racecheck.explore import replaying, resume, runner
from racecheck.explore.findings import decode, encode, load
from racecheck.explore.reports import Report
from racecheck.explore.requests import RunRequest, Search
from racecheck.explore.search import explore
from racecheck.invariants import no_deadlock
from racecheck.model.compare import effect
from racecheck.model.nouns import Outcome, Point, Verdict
from racecheck.model.ops.unstable_names import Names
from racecheck.scheduling import parts
from racecheck.scheduling.strategies import Replay, Strategy
from racecheck.sessions.session import Session
from racecheck.supervisor.calls import perform
from racecheck.supervisor.files.open_files import OpenFile
from racecheck.targets.scenarios import make_world
from tests.programs.parts import PAGE
from tests.support.controlled_runs import values
from tests.support.targets import target


def searched(session: Session, name: str, **changes: object) -> Report:
    scenario = target("parts", name)
    world = make_world(scenario.world, **changes)
    return explore(session, Search(scenario, world, scenario.invariants, strategy="dpor", schedules=300))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("removes_the_old_step", "latest/model"),
        ("removes_the_old_file", "nothing is published"),
        ("exchanges_directories", "ckpt/model"),
        ("creates_in_a_published_directory", "nobody has counted"),
        ("reads_while_another_writes", "mixed"),
        ("copies_while_another_writes", "mixed"),
        ("copies_much_while_another_writes", "mixed"),
        ("reads_what_is_not_empty", "short"),
        ("lists_while_another_removes", "was removed first"),
    ],
)
def test_what_happens_within_a_call_is_found(session: Session, name: str, says: str) -> None:
    report = searched(session, name)
    assert report.verdict is Verdict.FAIL
    assert any(says in each.violation.message for each in report.violations), report.violations


@pytest.mark.parametrize(
    ("name", "in_parts"),
    [
        ("keeps_the_old_step", ["1 walk latest"]),
        ("accepts_a_mixture", ["0 write model", "1 read model"]),
        ("writes_beside_a_write", ["0 write model", "1 write model"]),
        ("writes_beside_a_copy", ["0 copy model", "1 read model", "1 write model"]),
        ("writes_to_files_of_its_own", []),
    ],
)
def test_programs_that_this_does_not_hurt_pass(session: Session, name: str, in_parts: list[str]) -> None:
    report = searched(session, name)
    assert report.verdict is Verdict.PASS
    assert report.exhaustive
    assert [*report.claim.conditions] == [parts.HALVES] * any(" walk " not in each for each in in_parts)
    assert [*report.world.parts] == in_parts


def test_what_the_kernel_does_is_one_step_and_the_claim_says_so(session: Session) -> None:
    report = searched(session, "enters_the_old_step")
    assert report.verdict is Verdict.PASS
    assert parts.CONDITION in report.claim.conditions
    assert not report.world.parts


@pytest.mark.parametrize("storage", ["node-local", "shared"])
def test_parts_are_of_one_node_where_disks_are(session: Session, storage: str) -> None:
    report = searched(session, "keeps_the_old_step", storage=storage, nodes=1)
    assert [*report.world.parts] == ["1 walk latest"]


def test_with_faults_a_call_is_one_step_and_the_claim_says_so(session: Session) -> None:
    report = searched(session, "keeps_the_old_step", faults=("full bytes=1000000",))
    assert not report.world.parts
    assert parts.CONDITION in report.claim.conditions


def test_a_search_that_ends_before_it_has_begun_again_says_so(session: Session) -> None:
    scenario = target("parts", "keeps_the_old_step")
    search = Search(scenario, scenario.world, scenario.invariants, strategy="dpor", schedules=1)
    report = explore(session, search)
    assert report.claim.conditions == (parts.CONDITION,)


@pytest.mark.parametrize("name", ["removes_the_old_step", "reads_while_another_writes", "copies_while_another_writes"])
def test_a_finding_repeats_and_holds_its_parts(session: Session, tmp_path: Path, name: str) -> None:
    scenario = target("parts", name)
    search = Search(scenario, scenario.world, scenario.invariants, schedules=300, findings=tmp_path)
    report = explore(session, search)
    path = report.violations[0].finding
    assert path is not None
    finding = load(path)
    assert finding.outcome.world.parts
    assert decode(encode(finding)) == finding
    assert replaying.replay(session, scenario, finding, times=20).reproduced == 20


def test_a_failure_that_needs_no_parts_is_shown_without(session: Session) -> None:
    scenario = target("parts", "reads_while_another_writes")
    world = replace(scenario.world, parts=("0 write model", "1 read model"))
    report = explore(session, Search(scenario, world, scenario.invariants, schedules=300, explain=120))
    assert report.outcome is not None
    assert len(report.outcome.world.parts) == 1, "one call in parts is enough"


def test_parts_that_name_nothing_change_nothing(session: Session) -> None:
    """A finding comes from strangers."""
    whole = _run(session, "uses_links")
    odd = _run(session, "uses_links", "", "0", "0 walk", "0 walk ", "walk", "0 walk ../..", "0 read", "1 walk first")
    assert values(odd) == values(whole)
    assert len(odd.ops) == len(whole.ops)


def test_a_search_in_parts_can_be_continued(session: Session, tmp_path: Path) -> None:
    scenario = target("parts", "accepts_a_mixture")
    search = Search(scenario, scenario.world, scenario.invariants, strategy="dpor", schedules=4)
    first = explore(session, search)
    assert first.cut is not None
    path = resume.save(first.cut, tmp_path)
    earlier = resume.load(path, first.cut.scenario, scenario.world, search.seed)
    second = explore(session, replace(search, earlier=earlier, schedules=300))
    assert second.exhaustive
    assert [*second.world.parts] == ["0 write model", "1 read model"]
    assert second.claim.conditions == (parts.HALVES,)


class _Every(Strategy):
    """Tries every schedule, one after the other, whatever depends on what."""

    def __init__(self) -> None:
        self._due: list[int] = []
        self._begun = False

    def begin(self, rng: Random) -> bool:
        del rng
        self._counts: list[int] = []
        return not self._begun or bool(self._due)

    def choose(self, point: Point) -> int:
        at = len(self._counts)
        self._counts.append(len(point.options))
        return self._due[at] if at < len(self._due) else 0

    def end(self, outcome: Outcome) -> None:
        self._begun = True
        chosen = [choice.index for choice in outcome.schedule]
        while chosen and chosen[-1] + 1 == self._counts[len(chosen) - 1]:
            chosen.pop()
        self._due = [*chosen[:-1], chosen[-1] + 1] if chosen else []


@pytest.mark.parametrize(
    ("name", "in_parts", "most"),
    [
        ("reads_while_another_writes", ("0 write model", "1 read model"), 2),
        pytest.param(
            "two_write_and_one_reads", ("0 write model", "1 write model", "2 read model"), 16, marks=pytest.mark.slow
        ),
        pytest.param(
            "two_rename_and_one_follows", ("2 walk latest", "2 walk old", "2 walk step_2"), 3, marks=pytest.mark.slow
        ),
    ],
)
def test_the_search_finds_all_outcomes_that_all_schedules_have(
    session: Session, name: str, in_parts: tuple[str, ...], most: int
) -> None:
    scenario = target("parts", name)
    world, every = replace(scenario.world, parts=in_parts), _Every()
    found = set()
    while every.begin(Random(0)):
        found.add(effect(runner.run(session, RunRequest.of(scenario, world, every, seed="0"))))
    report = explore(session, Search(scenario, scenario.world, (no_deadlock,), strategy="dpor", schedules=2000))
    assert report.exhaustive
    assert {*report.world.parts} == {*in_parts}
    assert {effect(each.outcome) for each in report.endings} == found
    assert len(found) == most


def _run(session: Session, name: str, *in_parts: str) -> Outcome:
    scenario = target("parts", name)
    default = Replay(())
    return runner.run(session, RunRequest.of(scenario, replace(scenario.world, parts=in_parts), default, seed="0"))


def test_calls_over_links_come_out_alike_in_parts(session: Session) -> None:
    names = ["first", "second", "absolute", "loop", "broken", "a/up", "a", "a/b"]
    whole = _run(session, "uses_links")
    for each in names:
        split = _run(session, "uses_links", f"0 walk {each}")
        assert values(split) == values(whole), each
        assert split.disk == whole.disk
        assert any(op.call == parts.WALK and op.path == each for op in split.ops), each
    every = _run(session, "uses_links", *(f"0 walk {each}" for each in names))
    assert values(every) == values(whole)
    assert every.disk == whole.disk
    assert not every.coverage.holes


def test_calls_that_move_bytes_come_out_alike_in_parts(session: Session) -> None:
    names = ["0 read file", "0 write file", "0 copy target", "0 read target"]
    whole, split = _run(session, "moves_bytes"), _run(session, "moves_bytes", *names)
    assert values(split) == values(whole)
    assert split.disk == whole.disk
    assert len(split.ops) > len(whole.ops) + 40


class _Alike(Names):
    """Shows all names as one."""

    def show(self, path: str) -> str:
        del path
        return "alike"


def test_names_that_are_shown_alike_are_all_listed(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / name).touch()
    names = _Alike()
    file = OpenFile(1, os.open(tmp_path, os.O_RDONLY))
    try:
        first = [*perform._entries(file, names)]
        assert len(first) == 5, "the dots, too"
        rest = [*perform._entries(file, names, first[:4])]
        assert [perform._name(each) for each in rest] == [perform._name(first[4])]
    finally:
        os.close(file.descriptor)


def test_a_plain_process_reads_a_mixture(tmp_path: Path) -> None:
    """The model is checked against the kernel: one read of 8 MB beside one write of 8 MB."""
    path, size = tmp_path / "model", 2048 * PAGE
    path.write_bytes(b"1" * size)
    file, done = os.open(path, os.O_RDWR), threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            os.pwrite(file, str(number % 10).encode() * size, 0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        mixed = (len({*os.pread(file, size, 0)}) > 1 for _ in range(2000))
        assert any(mixed)
    finally:
        done.set()
        writer.join()
        os.close(file)
