"""Virtual time: clocks, sleeps, the times of files, and code that polls."""

from __future__ import annotations

import time
from typing import Any

import pytest

from racecheck.kernel import vdso
from racecheck.model.compare import first_difference
from racecheck.model.epoch import APART, EPOCH
from racecheck.sessions.session import Session
from racecheck.supervisor.calls.sleeps import round_up
from tests.support.controlled_runs import run, values


def test_every_clock_is_virtual_and_skewed(session: Session) -> None:
    first, second = (run(session, "clocks", file="times") for _ in range(2))
    assert first_difference(first, second) == "", "the exact times are the same in every run"
    found: list[Any] = values(first)
    for rank, each in enumerate(found):
        assert each["C"] == 0, "time(2) and Python agree"
        assert each["passed"] == [3600.0] * 4
        assert each["today"] == "2033-05-19", "an hour later"
        assert each["rises"]
        assert each["monotonic"] == 1000
        assert each["stamp"] == ("20330519-000000" if rank else "20330518-235959"), "rank 1 is 1.5 seconds ahead"
    assert 1.4e9 < found[1]["exact"] - found[0]["exact"] < 1.6e9


def test_the_time_of_day_does_not_depend_on_how_often_the_other_clock_was_asked(session: Session) -> None:
    """An event loop asks as often as it is woken, and the time of day goes into files."""
    first, second = values(run(session, "asks_often", file="times"))
    assert second - first == APART


def test_the_frequency_of_the_time_stamp_counter_is_answered(session: Session) -> None:
    """Else Abseil would measure it with sleeps, which take no time."""
    outcome = run(session, "frequency", file="times")
    (found,) = values(outcome)
    assert 100_000 < found < 100_000_000
    assert not outcome.ops


def test_times_of_files_are_virtual(session: Session) -> None:
    first, second = (run(session, "file_times", file="times") for _ in range(2))
    (found,) = values(first)
    assert found == {
        "made": 0, "filled": 10, "file": [10, 10, 20], "touched": 30, "old": [5.0, 6.0, 30], "grown": 30,
        "given": EPOCH - 3600 * 10**9, "order": ["b", "c", "a"],
    }  # fmt: skip
    assert first_difference(first, second) == ""


def test_the_clock_of_a_setup_says_the_same_each_time(session: Session) -> None:
    """It is an hour before the run; zipfile, for example, writes it into its files."""
    (found,) = values(run(session, "after_a_setup", file="times"))
    seconds, since, *date = found
    assert int(seconds) == EPOCH // 10**9 - 3600
    assert round(since) == 3600
    assert date == [*time.localtime(seconds)[:5], time.localtime(seconds).tm_sec // 2 * 2]


def test_polling_takes_no_real_time(session: Session) -> None:
    started = time.perf_counter()
    assert values(run(session, "polls", file="times")) == [True, True]
    assert time.perf_counter() - started < 30, "a minute is waited for"


@pytest.mark.parametrize("seed", range(5))
def test_a_file_lock_excludes_whatever_the_order(session: Session, seed: int) -> None:
    outcome = run(session, "filelock_excludes", file="times", seed=seed)
    assert values(outcome) == [1] * 8
    assert not outcome.coverage.holes


@pytest.mark.parametrize("seconds", [0.01, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 30, 60, 600])
def test_a_sleep_to_a_real_deadline_is_as_long_as_it_was_written(seconds: float) -> None:
    """Whoever comes to it late has a little less before it."""
    wanted = round(seconds * 1e9)
    assert {round_up(round(wanted * late)) for late in (1, 0.999, 0.95)} == {wanted}
    assert round_up(round(wanted * 1.01)) <= 1.34 * wanted


def test_the_code_that_replaces_a_vdso_entry() -> None:
    assert vdso.code(228, "x86_64") == bytes.fromhex("b8e40000000f05c3")
    assert vdso.code(113, "aarch64") == bytes.fromhex("280e80d2010000d4c0035fd6")
