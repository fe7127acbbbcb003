"""Loops without an end are found in seconds; those that end late are left to themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from racecheck.agent import loop_state
from racecheck.invariants import no_deadlock
from racecheck.model.nouns import Returned, Stopped
from racecheck.sessions.session import Session
from tests.support.controlled_runs import run


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("for_each_other", "rank 0 repeats stat file1 (ENOENT), and nothing can change that"),
        ("beside_a_barrier", "rank 1 repeats stat file (ENOENT), and nothing can change that"),
        ("left_lock", "repeats open lock (EEXIST), and nothing can change that"),
        ("alone", "rank 0 repeats stat b (ENOENT), and nothing can change that"),
    ],
)
def test_a_loop_without_an_end(session: Session, name: str, says: str) -> None:
    outcome = run(session, name, file="endless")
    assert len(outcome.ops) < 500
    assert any(isinstance(each, Stopped) and each.kind == "asleep" for each in outcome.results)
    (found,) = no_deadlock(outcome)
    assert says in found.message


@pytest.mark.parametrize(
    "name", ["counted", "counted_elsewhere", "iterated", "timed", "slow_peer", "alarmed", "watched"]
)
def test_a_loop_that_ends_late(session: Session, name: str) -> None:
    outcome = run(session, name, file="endless")
    assert all(isinstance(each, Returned) for each in outcome.results), outcome.results


def state(kept: object, turns: object) -> str:
    """The digest of a function that holds these two."""

    def holds(kept: object, turns: object) -> Iterator[object]:
        yield kept, turns

    waiting = holds(kept, turns)
    next(waiting)
    return loop_state.digest(waiting.gi_frame)  # type: ignore[attr-defined]


def test_a_state_comes_back_unless_it_counts_or_is_too_large_to_tell() -> None:
    assert state([0], 1) == state([0], 1)
    assert state([0], 1) != state([0], 2)
    assert state([0], [{"left": 1}]) != state([0], [{"left": 2}])
    large = [[0] * 50] * 50
    assert state(large, 1) != state(large, 1)
