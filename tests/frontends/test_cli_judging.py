"""The invariants of launch commands by default; a claim names the failures that they excuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import LAUNCHED, TORCHRUN, Racecheck

WRITES = ["--fault", "EIO on open|write|rename rank=0 nth=each"]


@pytest.fixture
def judged(programs: Path, racecheck: Racecheck) -> Any:
    """Return a function that runs a script with options of racecheck and returns the report."""

    def run(script: str, *options: str) -> dict[str, Any]:
        name, *arguments = script.split()
        (programs / name).write_text((LAUNCHED / "judged" / name).read_text())
        words = ["run", "--watch", "out", "--explain", "0", "--json", *options, "--", *TORCHRUN, name, *arguments]
        _, text = racecheck(*words)
        data: dict[str, Any] = json.loads(text)
        return data

    return run


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("own_clock.py", ()),
        ("live_tensors.py", ()),
        ("failing.py dropped", WRITES),
        ("restoring.py lenient", ("--fault", "kill-job on rename nth=each")),
    ],
)
def test_what_is_found_is_found_again_by_a_replay(
    judged: Any, racecheck: Racecheck, script: str, options: tuple[str, ...]
) -> None:
    (violation, *_) = judged(script, *options)["violations"]
    status, text = racecheck("replay", violation["finding"], "--times", 3, "--json")
    assert (status, json.loads(text)["reproduced"]) == (1, 3), text


def first(report: dict[str, Any]) -> str:
    return str(report["violations"][0]["message"]) if report["violations"] else report["verdict"]


def test_shards_of_ranks_with_clocks_of_their_own(judged: Any) -> None:
    report = judged("own_clock.py")
    assert first(report) == (
        "save 1 of run-#/shard_#.pt was saved to different directories: rank 0 run-20330518-235959; "
        "rank 1 run-20330519-000000"
    )
    assert report["schedules"] == 2


def test_a_state_that_changes_while_it_is_saved(judged: Any) -> None:
    assert first(judged("live_tensors.py")) == "rank 0's w changed during save 1 of s#.pt"
    assert first(judged("live_tensors.py copy")) == "PASS"


@pytest.mark.parametrize(
    ("how", "ends"),
    [
        ("dropped", "in save 1 of r#.pt, which was never saved again, but every rank ended with status 0"),
        ("swallowed", "in save 1 of r#.pt.tmp, which was never renamed, but every rank ended with status 0"),
    ],
)
def test_a_program_that_does_not_say_that_its_save_failed(judged: Any, how: str, ends: str) -> None:
    report = judged(f"failing.py {how}", *WRITES)
    assert report["violations"][0]["invariant"] == "error-honesty"
    assert first(report).endswith(ends)


@pytest.mark.parametrize("how", ["retried", "raised"])
def test_a_program_that_tries_again_or_says_it(judged: Any, how: str) -> None:
    report = judged(f"failing.py {how}", *WRITES, "--schedules", "14")
    assert report["verdict"] == "PASS"
    assert "excused" not in report["claim"]


def test_a_failure_for_another_reason_is_named_and_need_not_be_excused(judged: Any) -> None:
    report = judged("failing.py checked", "--fault", "EIO on write rank=1 nth=each", "--schedules", "5")
    assert report["verdict"] == "PASS"
    assert "excused after a fault: rank 0 raised AssertionError at failing.py:49 (4 of 4 runs)" in report["claim"]
    report = judged("failing.py checked", "--fault", "EIO on write rank=1 nth=each survive", "--schedules", "5")
    assert first(report) == "AssertionError on rank 0: too short"


def test_a_restart_that_restores_a_part(judged: Any) -> None:
    kills = ["--fault", "kill-job on rename nth=each"]
    assert first(judged("restoring.py lenient", *kills)) == (
        "rank 1 loaded nothing of step#/tmp#, but rank 0 did (in the recovery)"
    )
    assert first(judged("restoring.py", *kills, "--schedules", "15")) == "PASS"


def test_an_unhandled_exception_that_ends_a_thread(judged: Any) -> None:
    report = judged("background.py")
    assert first(report).startswith("FileNotFoundError in a thread of rank ")
    finding = json.loads(Path(report["violations"][0]["finding"]).read_text())
    (lost,) = [each for each in finding["outcome"]["results"] if each.get("thread")]
    assert lost["thread"].startswith("Thread-")
    assert first(judged("background.py waits", "--schedules", "30")) == "PASS"


def test_a_fault_in_a_thread_is_no_excuse(judged: Any) -> None:
    """The program ends with status 0, whatever its threads did."""
    report = judged("background.py waits", "--fault", "EIO on write rank=0 nth=each")
    assert report["violations"][0]["invariant"] == "error-honesty"


def test_a_claim_says_which_ranks_load_something_else_in_other_orders(judged: Any) -> None:
    report = judged("deciding.py")
    assert report["verdict"] == "PASS"
    assert "2 outcomes: other loads on rank 1" in report["claim"]
    assert "outcomes" not in judged("deciding.py together")["claim"]
