"""A signal with a handler, or a profiler, interrupts the supervisor in any of its calls: no run differs for that."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from racecheck.model.nouns import Outcome, Returned
from racecheck.sessions.session import Session
from tests.support.controlled_runs import run

EVERY = 0.001
"""Seconds between two interruptions."""


@contextmanager
def interrupted() -> Iterator[list[int]]:
    """Interrupt this process all the time; yields the signals."""
    met: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: met.append(number))
    signal.setitimer(signal.ITIMER_REAL, EVERY, EVERY)
    try:
        yield met
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def shown(outcome: Outcome) -> list[str]:
    assert all(isinstance(each, Returned) for each in outcome.results), outcome.results
    return [*map(str, outcome.ops), *map(str, outcome.results), *map(str, outcome.schedule)]


def check(session: Session, seeds: range) -> None:
    calm = [shown(run(session, "files", file="using_files", seed=seed)) for seed in seeds]
    with interrupted() as met:
        for seed, expected in zip(seeds, calm, strict=True):
            assert shown(run(session, "files", file="using_files", seed=seed)) == expected, seed
    assert len(met) > 10 * len(seeds)


def test_interruptions_change_no_run(session: Session) -> None:
    check(session, range(20))


@pytest.mark.slow
def test_interruptions_change_none_of_many_runs(session: Session) -> None:
    check(session, range(100, 300))
