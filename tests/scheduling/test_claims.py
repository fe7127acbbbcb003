"""What a search shows beyond its runs, and that nothing raises it again."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from racecheck.model.nouns import Choice, Coverage, Outcome, Returned, Stopped, World
from racecheck.scheduling.claims import NOTHING_AGAINST, Claim, lowered, merged, of_run, pending
from racecheck.supervisor.state import hypercall_ops

PROOF = Claim(True, 3, 1)
RUN = Outcome(World(ranks=1), (), (), (Returned(None),))
RANK = {"": 0, "INCOMPLETE": 1, "EXHAUSTED": 2}
SAMPLES = [Claim(), PROOF, lowered(["why"]), pending(["more"]), Claim(True, conditions=("for gloo",)), NOTHING_AGAINST]


def seen(**coverage: dict[str, int]) -> Outcome:
    return replace(RUN, coverage=Coverage(ops=1, **coverage))


@pytest.mark.parametrize(("one", "other"), [*itertools.product(SAMPLES, repeat=2)])
def test_to_join_claims_raises_none_of_them(one: Claim, other: Claim) -> None:
    both = one.join(other)
    assert RANK[both.kind] <= min(RANK[one.kind], RANK[other.kind])
    for each in (one, other):
        assert {*each.conditions} <= {*both.conditions}
        assert {*each.doubts} <= {*both.doubts}


def test_what_there_is_nothing_against_stays_as_it_is() -> None:
    assert [each.join(NOTHING_AGAINST) for each in SAMPLES] == SAMPLES


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (PROOF, "EXHAUSTED: 3 traces, 1 redundant"),
        (Claim(True, 1, 0, conditions=("for gloo",)), "EXHAUSTED: 1 trace, 0 redundant; for gloo"),
        (PROOF.join(lowered(["why"])), "INCOMPLETE: why; 3 traces, 1 redundant"),
        (
            Claim(True, 3, 1, "1 branch left", ("4 more",), ("for gloo",), ("why",)),
            "INCOMPLETE: 1 branch left; why; 3 traces, 1 redundant; 4 more; for gloo",
        ),
        (Claim(), ""),
        (Claim(remarks=("by chance",), conditions=("for gloo",)), "by chance; for gloo"),
    ],
)
def test_a_claim_is_one_line(claim: Claim, text: str) -> None:
    assert str(claim) == text
    assert claim.exhaustive is text.startswith("EXHAUSTED")


@pytest.mark.parametrize(
    ("run", "doubt"),
    [
        (seen(untried={"a poll of a process": 1}), "not tried: a poll of a process"),
        (seen(holes={"splice on a watched file": 2}), "not controlled: splice on a watched file (2 times)"),
        (replace(RUN, results=(Stopped("running", "it polls"),)), "rank 0 did not end: it polls"),
        (replace(RUN, recovery=seen(untried={"a poll": 1})), "in the recovery: not tried: a poll"),
    ],
)
def test_what_a_run_did_not_control_lowers_the_claim_by_its_name(run: Outcome, doubt: str) -> None:
    assert PROOF.join(of_run(run)).doubts == (doubt,)
    assert PROOF.join(of_run(run)).join(of_run(RUN)).kind == "INCOMPLETE", "later runs do not raise it"


def test_what_a_run_notes_is_a_condition_of_the_claim() -> None:
    noted = seen(notes={hypercall_ops.CONDITION: 1})
    assert PROOF.join(of_run(noted)).join(of_run(RUN)).conditions == (
        "threads and processes of a rank are switched only at their ops",
    )


def test_a_recovery_that_had_choices_is_a_condition() -> None:
    resumed = replace(RUN, schedule=(Choice("next", 2, 0, "0 stat a"),))
    assert PROOF.join(of_run(replace(RUN, recovery=RUN))) == PROOF
    assert of_run(replace(RUN, recovery=resumed)).conditions == ("one order of the recovery's ops",)


def test_the_coverage_of_runs_has_the_larger_count_of_each() -> None:
    one = Coverage(3, 1, {"a": 2}, {"b": 1}, {"c": 1})
    other = Coverage(2, 4, {"a": 1, "d": 1}, {}, {"c": 3})
    assert merged(one, other) == Coverage(3, 4, {"a": 2, "d": 1}, {"b": 1}, {"c": 3})
