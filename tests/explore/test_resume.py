"""A search that is cut short goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from racecheck import UsageError, World, storage
from racecheck.explore import resume
from racecheck.explore.findings import Reference
from racecheck.explore.recovery.judge import Count
from racecheck.explore.recovery.runs import Done
from racecheck.model.nouns import Coverage, Verdict, Violation
from racecheck.scheduling.claims import Claim
from racecheck.scheduling.strategies import DPOR
from tests.support import toys
from tests.support.toy_searches import runs

SCENARIO, WORLD = Reference("a/test_it.py::it", "5" * 64), World(ranks=3)
PROGRAM = toys.random_program(Random(1006), 800)
SEEDS = (
    1001, 1002, 1003, 1004, 1006, 1009, 1011, 1012, 1013, 1014, 1016, 1017, 1020, 1021, 1022, 1023, 1024, 1025, 1026,
    1028,
)  # fmt: skip
"""Of programs with several traces: of others nothing is left to go on with."""


def kept(strategy: DPOR, directory: Path) -> Path:
    return resume.save(resume.cut(SCENARIO, WORLD, "0", (), strategy.progress), directory)


@pytest.mark.parametrize("seed", SEEDS)
def test_in_two_parts_it_finds_what_it_finds_in_one(tmp_path: Path, seed: int) -> None:
    program = toys.random_program(Random(seed), 800)
    whole = DPOR(storage.make(WORLD))
    every = [toys.trace_of(each) for each in runs(program, whole)]
    first = DPOR(storage.make(WORLD))
    found = [toys.trace_of(each) for each in islice(runs(program, first), max(1, len(every) // 2))]
    again = DPOR(storage.make(WORLD), resume.load(kept(first, tmp_path), SCENARIO, WORLD, "0").progress)
    found += [toys.trace_of(each) for each in runs(program, again)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, every)), "none is missed, and none is there twice"
    assert again.claim() == whole.claim()


def test_another_search_is_refused(tmp_path: Path) -> None:
    strategy = DPOR(storage.make(WORLD))
    next(runs(PROGRAM, strategy))
    path = kept(strategy, tmp_path)
    for scenario, world, seed, what in (
        (replace(SCENARIO, target="a/test_it.py::other"), WORLD, "0", "of another scenario"),
        (replace(SCENARIO, source="6" * 64), WORLD, "0", "of another version of the scenario's file"),
        (SCENARIO, World(ranks=2), "0", "in another world"),
        (SCENARIO, WORLD, "1", "with another seed"),
    ):
        with pytest.raises(
            UsageError, match=f"is a search {what}: drop --resume, or use the same scenario, world and seed"
        ):
            resume.load(path, scenario, world, seed)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda _: "", "not a search: not JSON"),
        (lambda _: "{}", 'not a search: "format" is not "racecheck-search"'),
        (lambda text: text.replace('"version": 4', '"version": 5'), "is newer than this racecheck reads"),
        (lambda text: text.replace('"version": 4', '"version": 2'), "version 2 is older than this racecheck reads (4)"),
        (lambda text: text.replace('"version": 4', '"version": 0'), "unknown version 0 of "),
        (lambda text: text.replace('"WRITE"', '"SCRIBBLE"'), "expected one of 'READ', 'ADD', 'WRITE'"),
        (lambda text: text.replace('\\"entry\\"', "entry"), "its footprints cannot be read"),
        (lambda text: text.replace('"chosen"', '"taken"'), "chosen: missing"),
        (lambda text: json.dumps({**json.loads(text), "nodes": []}), "damaged search: nothing is left to try in it"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, change: Callable[[str], str], says: str) -> None:
    strategy = DPOR(storage.make(WORLD))
    next(runs(PROGRAM, strategy))
    path = kept(strategy, tmp_path)
    path.write_text(change(path.read_text()))
    with pytest.raises(UsageError) as refused:
        _ = resume.load(path, SCENARIO, WORLD, "0").progress
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_a_run_that_is_interrupted_is_run_again(tmp_path: Path, seed: int) -> None:
    """Its races have not been looked at: to count it would leave out what they lead to."""
    program = toys.random_program(Random(seed), 800)
    whole = [toys.trace_of(each) for each in runs(program, DPOR(storage.make(WORLD)))]
    first = DPOR(storage.make(WORLD))
    found = [toys.trace_of(each) for each in islice(runs(program, first), len(whole) // 2)]
    assert first.begin(Random(0))
    toys.run(program, first.choose)  # Ctrl-C comes at its end
    first.abandon()
    again = DPOR(storage.make(WORLD), resume.load(kept(first, tmp_path), SCENARIO, WORLD, "0").progress)
    found += [toys.trace_of(each) for each in runs(program, again)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, whole))


def test_what_runs_came_to_is_kept(tmp_path: Path) -> None:
    strategy = DPOR(storage.make(WORLD))
    next(runs(PROGRAM, strategy))
    past = resume.Past(
        Verdict.FAIL, (resume.Known(Violation("no-file-errors", "x", (1,), (2,)), "f.json"),), ("why",),
        Claim(True, conditions=("for gloo",), doubts=("not tried: a poll",)), Coverage(3, 1, {"a": 1}, {"b": 2}),
        5, 4, ("0a", "1b"), (2, 0), Done({"kill": Count(4, 3, 1, 2, "out of time")}, ("c",)),
    )  # fmt: skip
    path = resume.save(resume.cut(SCENARIO, WORLD, "0", (), strategy.progress, past), tmp_path)
    assert resume.load(path, SCENARIO, WORLD, "0").past == past
