"""Recoveries from damaged files: canned outcomes, each flaw with a twin that has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from racecheck.invariants import damage_refused, judge
from racecheck.model.nouns import Crash, DiskEntry, Outcome, Place, RankResult, TrainingStep, Verdict, Weights
from tests.support.builders import died, op, outcome, raised, returned, stopped

SAVES = tuple(
    Weights(
        rank, "saved", step, f"step{step}/r{rank}.pt", {"w": f"w{rank}{step}", "b": f"b{step}"}, 1, f"step#/r{rank}.pt"
    )
    for step in (1, 2)
    for rank in (0, 1)
)


def loaded(rank: int, **tensors: str) -> Weights:
    return Weights(rank, "loaded", -1, "", tensors)


def of(step: int, rank: int) -> Weights:
    return loaded(rank, w=f"w{rank}{step}", b=f"b{step}")


def own() -> Weights:
    """A save of the recovery itself."""
    return Weights(0, "saved", 1, "step3/r0.pt", {"w": "new"}, 2, "step#/r#.pt")


def before(rank: int) -> Weights:
    """A load of a file of which nothing is known: it was there before the run."""
    return Weights(rank, "loaded", -1, "step0/r0.pt", {"w": "unknown"}, 1, "step#/r#.pt")


def steps(*parts: str) -> tuple[TrainingStep, ...]:
    return tuple(TrainingStep(0, 0, {"batch": each, "random torch": each * 2}) for each in parts)


def recovery(*loads: Weights, results: Sequence[RankResult] = (), steps: tuple[TrainingStep, ...] = ()) -> Outcome:
    return replace(outcome(*(results or (returned(), returned()))), weights=loads, steps=steps)


WHOLE = recovery(of(2, 0), of(2, 1), steps=steps("x", "y"))


def damaged(again: Outcome | None, whole: Outcome | None = WHOLE, kind: str = "flip") -> Outcome:
    disk = {"step1/r0.pt": DiskEntry("file", 3, "d")}
    made = replace(outcome(returned(), returned()), weights=SAVES, recovery=again, undamaged=whole, disk=disk)
    return replace(made, crash=Crash(kind, (), damage="something", file="step2/r1.pt"))


def said(made: Outcome) -> list[tuple[str, tuple[int, ...]]]:
    judgement = judge(made, [damage_refused])
    assert not judgement.reasons, judgement.reasons
    return [(each.message.partition("the resumed job ")[2], each.ranks) for each in judgement.violations]


@pytest.mark.parametrize(
    "again",
    [
        WHOLE,
        recovery(results=(raised("RuntimeError"), returned())),
        recovery(results=(raised("RuntimeError"), stopped("asleep"))),
        recovery(loaded(0, w="bad"), results=(died(status=1), died(signal="SIGTERM"))),
        recovery(of(1, 0), of(1, 1), steps=steps("v", "w", "x", "y")),
        recovery(of(2, 0), of(2, 1)),
        recovery(of(2, 0), of(2, 1), own(), replace(own(), kind="loaded", event=9), steps=steps("x", "y")),
        recovery(before(0), before(1), steps=steps("q")),
        recovery(of(2, 0), of(2, 1), steps=(TrainingStep(0, 0, {"batch": "x", "random torch": "other"}), *steps("y"))),
    ],
    ids=[
        "alike",
        "refused",
        "the other waits",
        "refused later",
        "older",
        "steps not seen",
        "of its own save",
        "from before the run",
        "random numbers",
    ],
)
def test_what_is_right(again: Outcome) -> None:
    assert said(damaged(again)) == []


@pytest.mark.parametrize(
    ("again", "flaw", "ranks"),
    [
        (recovery(of(2, 0), loaded(1, w="bad", b="b2")), "loads what nobody saved, without an error", (1,)),
        (recovery(loaded(0, w="w01", b="b2"), of(2, 1)), "loads a mix of saves, without an error", (0,)),
        (recovery(of(1, 0), of(2, 1)), "loads a mix of saves, without an error", (1,)),
        (recovery(of(2, 0), before(1)), "loads a mix of saves, without an error", (0,)),
        (
            recovery(of(2, 0), replace(before(1), checkpoint="step2/r1.pt")),
            "loads what nobody saved, without an error",
            (1,),
        ),
        (recovery(), "begins again beside other files of its saves, without an error", (0, 1)),
        (recovery(results=(stopped("asleep"), returned())), "waits forever", (0,)),
        (recovery(of(2, 0), of(2, 1), steps=steps("x", "z")), "takes other training steps, without an error", (0,)),
        (recovery(of(2, 0), of(2, 1), steps=steps("x")), "takes other training steps, without an error", (0,)),
    ],
)
def test_what_is_wrong(again: Outcome, flaw: str, ranks: tuple[int, ...]) -> None:
    assert said(damaged(again)) == [(flaw, ranks)]


def test_a_job_without_any_file_of_a_save_may_begin_again() -> None:
    assert said(replace(damaged(recovery()), disk={})) == []


@pytest.mark.parametrize(
    ("again", "whole", "why"),
    [
        (None, None, "there is no recovery to load a damaged checkpoint"),
        (recovery(), recovery(), "no load and no training step was observed in the undamaged recovery"),
    ],
)
def test_what_cannot_be_judged(again: Outcome | None, whole: Outcome | None, why: str) -> None:
    judgement = judge(damaged(again, whole), [damage_refused])
    assert judgement.verdict is Verdict.UNKNOWN
    assert why in judgement.reasons[-1]


def test_a_job_whose_loads_are_not_observed_may_begin_again_if_nothing_is_left() -> None:
    opened = replace(op("0 open m.npz"), places=(Place("m.npz", 1, "m.npz", 2, "file"),))
    whole = replace(recovery(steps=steps("y")), trace=(opened,))
    again = replace(damaged(recovery(steps=steps("x", "y")), whole, "missing"), weights=())
    assert said(again) == []
    left = replace(again, disk={"m.npz": DiskEntry("file", 3, "d")})
    assert said(left) == [("takes other training steps, without an error", (0,))]


def test_a_file_that_the_run_has_made_is_known() -> None:
    made = replace(op("0 open step0/r0.pt"), places=(Place("step0/r0.pt", 1, "r0.pt", 0, ""),))
    again = replace(damaged(recovery(of(2, 0), before(1))), trace=(made,))
    assert said(again) == [("loads what nobody saved, without an error", (1,))]


def test_a_recovery_that_has_not_ended_is_open() -> None:
    judgement = judge(damaged(recovery(results=(stopped("running"), stopped("asleep")))), [damage_refused])
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.reasons == ("in the recovery: rank 0 did not end: waits",)


def test_it_judges_damage_alone() -> None:
    whole = replace(damaged(WHOLE), crash=None)
    assert judge(whole, [damage_refused]).verdict is Verdict.PASS
    crashed = judge(replace(whole, crash=Crash("kill", ())), [damage_refused])
    assert crashed.reasons == ("nothing was judged: none of the invariants judges crashes",)
