"""Steps that ranks declare, by hand-made runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from racecheck.invariants import resume_equals
from racecheck.invariants.declared_steps import continues, why_not
from racecheck.invariants.resuming import Uninterrupted
from racecheck.invariants.resuming import continues as is_compared
from racecheck.model.nouns import Crash, Outcome, Weights
from tests.support.builders import outcome, returned

STATES = {1: {"weight": "a", "place": "1"}, 2: {"weight": "b", "place": "2"}, 3: {"weight": "c", "place": "3"}}


def declared(*steps: int, rank: int = 0, **other: str) -> tuple[Weights, ...]:
    """Return declarations of these steps, with ``other`` digests in all of them."""
    return tuple(Weights(rank, "trained", step, "", {**STATES[step], **other}) for step in steps)


def run(*weights: Weights, recovery: tuple[Weights, ...] | None = None, ranks: int = 1) -> Outcome:
    found = replace(outcome(*[returned()] * ranks), weights=weights)
    return found if recovery is None else replace(found, recovery=run(*recovery, ranks=ranks))


WHOLE = run(*declared(1, 2, 3), recovery=declared(3))
REFERENCE = Uninterrupted(WHOLE)


def said(found: Outcome) -> list[str]:
    return [each.message for each in resume_equals(found, REFERENCE)]


def test_a_recovery_that_comes_to_the_same_states_passes() -> None:
    resumed = run(*declared(1, 2), recovery=declared(2, 3))
    assert said(resumed) == []
    assert continues(resumed, WHOLE)
    assert is_compared(resumed, REFERENCE)


def test_the_first_state_that_differs_is_named() -> None:
    loaded = Weights(0, "loaded", 2, "", {})
    assert said(run(*declared(1, 2), recovery=(loaded, *declared(2), *declared(3, weight="x")))) == [
        "resumed from step 2, rank 0 has another weight after step 3"
    ]
    assert said(run(*declared(1, 2), recovery=(loaded, *declared(2, 3, place="x")))) == [
        "resumed from step 2, rank 0 has another place from the start"
    ]
    lacking = Weights(0, "trained", 1, "", {"weight": "x"})
    assert said(run(*declared(1), recovery=(lacking,))) == [
        "after the restart, rank 0 lacks place and has another weight after step 1"
    ]


def test_each_rank_is_compared_with_itself() -> None:
    whole = run(*declared(1, rank=0), *declared(1, rank=1, weight="y"), recovery=declared(1), ranks=2)
    alike = run(recovery=(*declared(1, rank=0), *declared(1, rank=1, weight="y")), ranks=2)
    assert not [*resume_equals(alike, Uninterrupted(whole))]
    swapped = run(recovery=(*declared(1, rank=0, weight="y"), *declared(1, rank=1)), ranks=2)
    (found,) = resume_equals(swapped, Uninterrupted(whole))
    assert found.ranks == (0, 1)


@pytest.mark.parametrize(
    "other",
    [
        run(*declared(1, 2, weight="x"), recovery=declared(3, weight="y")),
        run(*declared(1, 2)),
        run(*declared(1, 2), recovery=()),
        replace(run(*declared(1, 2)), recovery=run(*declared(3, weight="y"), ranks=2)),
    ],
    ids=["another run", "no recovery", "nothing declared", "another number of ranks"],
)
def test_what_is_not_the_same_job_is_not_compared(other: Outcome) -> None:
    assert said(other) == []
    assert not continues(other, WHOLE)


def test_a_step_beyond_the_end_is_not_compared() -> None:
    further = Weights(0, "trained", 4, "", {"weight": "x"})
    assert said(run(*declared(1, 2), recovery=(*declared(3), further))) == []


def test_it_is_asked_of_what_a_crash_leaves() -> None:
    crashed = replace(run(*declared(1), recovery=declared(1, weight="x")), crash=Crash("kill", 1))
    assert said(crashed) == ["after the restart, rank 0 has another weight after step 1"]


def test_why_nothing_can_be_compared() -> None:
    assert why_not(WHOLE, WHOLE) == ""
    assert why_not(run(*declared(1)), WHOLE).startswith("the recovery declares no state with `trained`")
    assert why_not(run(*declared(1), recovery=()), WHOLE).startswith("the recovery declares no state with `trained`")
    smaller = replace(WHOLE, recovery=run(*declared(3), ranks=2))
    assert why_not(smaller, WHOLE).startswith("the recovery has another number of ranks")
    lucky = why_not(WHOLE, run(*declared(1), *declared(2, place="x"), recovery=declared(3)))
    assert lucky.startswith("a second run that nobody interrupted differs: rank 0 has another place after step 2")
    assert why_not(run(Weights(0, "trained", 1, "", {}), recovery=declared(1)), WHOLE).startswith(
        "a state has no entry"
    )
    opaque = run(*declared(1, own="not compared: set"), recovery=declared(1))
    assert why_not(opaque, WHOLE).startswith("a state has own (set), which cannot be compared")
    with pytest.raises(LookupError, match="luck"):
        [*resume_equals(WHOLE, Uninterrupted(WHOLE, why="luck"))]
