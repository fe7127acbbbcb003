"""A resumed job against the uninterrupted one: canned runs, each flaw with a twin that has none."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest

from racecheck.explore.observed_saves import fitting
from racecheck.faults import parse
from racecheck.invariants import judge, name_of, resume_equals
from racecheck.invariants.resuming import Uninterrupted, cause, continues, varying
from racecheck.model.nouns import Outcome, TrainingStep, Verdict, Weights, World
from tests.support.builders import died, outcome, returned

RANKS = 2
ROWS = ":2:aaaaaabbbbbb"


def saved(rank: int, number: int, path: str = "job.pt", **entries: str) -> Weights:
    return Weights(rank, "saved", number, path, entries or {"w": f"w{number}{ROWS}"}, 1, re.sub(r"\d+", "#", path))


def loaded(rank: int, path: str = "job.pt", **entries: str) -> Weights:
    return Weights(rank, "loaded", -1, path, entries, 1, re.sub(r"\d+", "#", path))


def step(rank: int, number: int, saves: int, **parts: str) -> TrainingStep:
    named = {each.replace("_", " ", 1): text for each, text in parts.items()}
    usual = {
        "batch": f"b{rank}{number}",
        "parameters": f"p{number}",
        "setting lr": "0.1",
        "state exp_avg": f"m{number}",
    }
    return TrainingStep(rank, saves, {**usual, "random torch": f"r{number}", **named})


def whole(saves: int = 3) -> Outcome:
    """Two steps, then a save by rank 0, and so on."""
    steps = [step(rank, number, (number - 1) // 2 if not rank else 0) for rank in range(RANKS)
             for number in range(1, 2 * saves + 1)]  # fmt: skip
    made = outcome(returned(), returned())
    weights = tuple(saved(0, number) for number in range(1, saves + 1))
    return replace(made, world=World(ranks=RANKS), weights=weights, steps=tuple(steps))


def killed(*steps: TrainingStep, saves: tuple[Weights, ...] = (), loads: str = f"w1{ROWS}") -> Outcome:
    """A run that was killed after its first save; a recovery loads that on both ranks, and takes these steps."""
    full = whole()
    before = tuple(each for each in full.steps if int(each.parts["parameters"][1:]) <= 3)
    run = replace(outcome(died(signal="SIGKILL"), died(signal="SIGKILL")), world=World(ranks=RANKS), steps=before)
    again = replace(outcome(returned(), returned()), world=World(ranks=RANKS), steps=steps)
    read = tuple(loaded(rank, w=loads) for rank in range(RANKS)) if loads else ()
    return replace(run, weights=full.weights[:1], recovery=replace(again, weights=(*read, *saves)))


def found(made: Outcome, reference: Uninterrupted | None = None) -> list[str]:
    judgement = judge(made, [partial(resume_equals, reference=reference or Uninterrupted(whole()))])
    assert not any("could not judge" in each for each in judgement.reasons), judgement.reasons
    return [each.message for each in judgement.violations]


def resumed(**parts: str) -> tuple[TrainingStep, ...]:
    """Steps 3 to 6 of rank 0, in a process that has saved nothing before; the second one has these parts."""
    return tuple(step(0, number, (number - 3) // 2, **(parts if number == 4 else {})) for number in range(3, 7))


GOOD = (saved(0, 1, w=f"w2{ROWS}"), saved(0, 2, w=f"w3{ROWS}"))


def test_a_job_that_continues_alike_passes() -> None:
    assert found(killed(*resumed(), saves=GOOD)) == []
    assert continues(killed(*resumed(), saves=GOOD), Uninterrupted(whole()))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"batch": "b01"}, "takes training step 4 on the batch of step 1"),
        ({"batch": "b15"}, "takes training step 4 on the batch of rank 1 of step 5"),
        ({"batch": "new"}, "takes training step 4 on a batch that no step has had"),
        ({"setting_lr": "0.2"}, "takes training step 4 with lr 0.2 instead of 0.1"),
        ({"parameters": "p9"}, "takes training step 4 with other parameters"),
        ({"state_exp_avg": "m9"}, "takes training step 4 with another exp_avg of the optimizer"),
        (
            {"parameters": "p9", "random_torch": "r9"},
            "takes training step 4 with other parameters; other random numbers: torch (from step 4 on)",
        ),
    ],
)
def test_the_first_step_that_differs_is_named(parts: dict[str, str], said: str) -> None:
    assert found(killed(*resumed(**parts))) == [f"resumed from save 1 of job.pt, rank 0 {said}"]


def test_other_random_numbers_alone_are_no_flaw() -> None:
    assert found(killed(*resumed(random_torch="r9"), saves=GOOD)) == []


def test_a_batch_that_could_not_be_digested_is_not_compared() -> None:
    steps = [replace(each, parts={name: text for name, text in each.parts.items() if name != "batch"})
             for each in resumed()]  # fmt: skip
    assert found(killed(*steps)) == []


def test_tensors_that_were_not_looked_at_are_not_compared() -> None:
    """Those of a large model are told after a save alone."""
    first, *rest = resumed(parameters="p9", state_exp_avg="m9")
    bare = [replace(each, parts={name: text for name, text in each.parts.items() if name[:5] not in {"param", "state"}})
            for each in rest]  # fmt: skip
    assert found(killed(first, *bare, saves=GOOD)) == []
    assert found(killed(first, *bare, saves=(saved(0, 1, w=f"w9{ROWS}"),))) != []


def test_a_state_that_is_missing_is_named() -> None:
    first, *rest = resumed()
    lost = replace(first, parts={name: text for name, text in first.parts.items() if name != "state exp_avg"})
    assert found(killed(lost, *rest)) == [
        "resumed from save 1 of job.pt, rank 0 takes training step 3 without the optimizer's exp_avg"
    ]


def test_the_save_after_the_steps_is_compared_but_for_what_varies() -> None:
    other = saved(0, 1, w=f"other{ROWS}", time="1", lr="w1lr")
    full = whole()
    scalars = replace(
        full, weights=tuple(replace(each, tensors={**each.tensors, "time": "0", "lr": f"w{each.step}lr"})
                            for each in full.weights)
    )  # fmt: skip
    made = killed(*resumed(), saves=(other,))
    made = replace(made, weights=scalars.weights[:1])
    (said,) = found(made, Uninterrupted(scalars, frozenset({("job.pt", "time")})))
    assert said == (
        "resumed from save 1 of job.pt, rank 0 writes save 2 of job.pt with other contents: "
        "lr is that of save 1; w differs"
    )


def test_a_job_that_loads_nothing_begins_again() -> None:
    steps = tuple(step(0, number, 0) for number in range(1, 3))
    assert found(killed(*steps, loads="")) == []
    assert found(killed(*resumed(), loads="")) == [], "its parameters say where it goes on"
    wrong = (step(0, 1, 0, batch="b02"),)
    assert found(killed(*wrong, loads="")) == ["begun again, rank 0 takes training step 1 on the batch of step 2"]


def test_without_steps_saves_are_counted() -> None:
    full = replace(whole(), steps=())
    for good, saves in ((True, GOOD), (False, (saved(0, 1, w=f"w3{ROWS}"),))):
        made = replace(killed(saves=saves), steps=())
        said = "resumed from save 1 of job.pt, rank 0 writes save 2 of job.pt with other contents: w differs"
        assert found(made, Uninterrupted(full)) == ([] if good else [said])


@pytest.mark.parametrize(
    "change",
    [
        lambda made: replace(made, recovery=None),
        lambda made: replace(made, recovery=replace(made.recovery, world=World(ranks=1))),
        lambda made: replace(made, steps=(step(0, 1, 0, batch="b09"), *made.steps[1:])),
    ],
    ids=["no recovery", "another size", "another job before the kill"],
)
def test_what_is_not_the_same_job_is_not_compared(change: object) -> None:
    made = change(killed(*resumed(batch="b01")))  # type: ignore[operator]  # one of the functions above
    assert found(made) == []
    assert not continues(made, Uninterrupted(whole()))


def test_a_save_that_may_be_two_is_no_place_to_compare_from() -> None:
    """Unless the parameters say where the job goes on."""
    full = whole()
    made = killed(*resumed(batch="b01"))
    made = replace(made, weights=(*made.weights, replace(saved(0, 2, w=f"w1{ROWS}"), event=1)))
    assert found(made, Uninterrupted(full)) == [
        "resumed from job.pt, rank 0 takes training step 4 on the batch of step 1"
    ]
    for first in resumed(batch="b01")[:1]:
        unknown = replace(first, parts={**first.parts, "parameters": "new"})
        assert found(replace(made, recovery=replace(made.recovery, steps=(unknown,))), Uninterrupted(full)) == []
    bare = replace(
        made, steps=(), recovery=replace(made.recovery, steps=(), weights=(*made.recovery.weights, *GOOD[1:]))
    )
    assert found(bare, Uninterrupted(replace(full, steps=(), weights=bare.weights))) == []


def test_two_undisturbed_runs_say_what_varies() -> None:
    one = replace(whole(), weights=(saved(0, 1, w=f"a{ROWS}", time="1"),))
    other = replace(one, weights=(saved(0, 1, w=f"a{ROWS}", time="2"),))
    assert varying(one, other) == (frozenset({("job.pt", "time")}), "")
    steps = (step(0, 1, 0, parameters="p9"), *one.steps[1:])
    assert varying(one, replace(one, steps=steps))[1] == "parameters of rank 0 at training step 1"
    assert varying(one, replace(one, steps=one.steps[1:]))[1] != ""
    assert varying(one, replace(one, weights=()))[1] == "the saves of rank 0"
    bare, rows = replace(one, steps=()), replace(one, steps=(), weights=(saved(0, 1, w=f"b{ROWS}", time="1"),))
    assert varying(bare, rows)[1] == "w of save 1 of job.pt"


def test_only_a_program_with_a_recovery_can_be_compared() -> None:
    judgement = judge(killed(*resumed()), [resume_equals])
    assert judgement.verdict is Verdict.UNKNOWN
    assert any("only a recovery is compared with an undisturbed run" in each for each in judgement.reasons)


def test_it_is_asked_with_faults_and_a_recovery_of_as_many_ranks() -> None:
    undisturbed = replace(whole(), recovery=replace(outcome(returned(), returned()), world=World(ranks=RANKS)))
    asked: list[tuple[World, str]] = []

    def again(world: World, seed: str) -> Outcome:
        asked.append((world, seed))
        return undisturbed

    kill = [parse("kill-job nth=each")]
    assert "resume-equals" in map(name_of, fitting(undisturbed, again, kill)[0])
    assert [(world.skew, seed) for world, seed in asked] == [((1.0, 1.0), "another")]
    assert "resume-equals" not in map(name_of, fitting(undisturbed, again)[0])
    smaller = replace(undisturbed, recovery=replace(outcome(returned()), world=World(ranks=1)))
    invariants, conditions = fitting(smaller, again, kill)
    assert "resume-equals" not in map(name_of, invariants)
    assert any("another number of ranks" in each for each in conditions)
    assert len(asked) == 1


def test_a_saved_state_of_a_generator_is_no_flaw_alone() -> None:
    full = whole()
    states = replace(full, weights=tuple(replace(each, tensors={**each.tensors, "rng_state": f"g{each.step}"})
                                         for each in full.weights))  # fmt: skip
    for w, flaws in ((f"w2{ROWS}", 0), (f"w9{ROWS}", 1)):
        made = killed(*resumed(), saves=(saved(0, 1, w=w, rng_state="other"),))
        made = replace(made, weights=states.weights[:1])
        assert len(found(made, Uninterrupted(states))) == flaws


def test_the_cause_has_no_numbers() -> None:
    (early,) = found(killed(*resumed(batch="b01")))
    late = (*resumed()[:3], step(0, 6, 1, batch="b02"))
    assert [cause(each) for each in (early, *found(killed(*late)))] == [
        "takes training step # on the batch of step #"
    ] * 2
    lr = found(killed(*resumed(setting_lr="1e-05")))
    assert [cause(each) for each in lr] == ["takes training step # with lr # instead of #"]
