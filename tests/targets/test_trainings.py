"""Trainings under the gate: each part that a job does not restore is named, and a sound job passes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from racecheck.explore.reports import Report
from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.gate import subjects
from racecheck.gate.effort import EFFORTS
from racecheck.model.errors import UsageError
from racecheck.model.nouns import Verdict
from racecheck.sessions.session import Session
from racecheck.targets import resolve, suite
from racecheck.targets.scenarios import make_world
from racecheck.targets.suite import protocol
from tests.programs import trainings
from tests.support.targets import TARGETS

LOST = [
    ("WithoutModel", r"resumed from step \d, rank 0 has another model\.\S+.* from the start"),
    ("WithoutOptimizer", r"resumed from step \d, rank 0 lacks optimizer\.state\S+.* from the start"),
    ("WithoutScheduler", r"resumed from step \d, rank 0 has another scheduler\.\S+.* from the start"),
    ("WithoutGenerator", r"resumed from step \d, rank 0 has another generator from the start"),
    ("WithoutPlace", r"resumed from step \d, rank 0 has another place from the start"),
    ("ArraysWithoutPlace", r"resumed from step \d, rank 0 has another array, bytes, number, place from the start"),
    ("Hidden", r"resumed from step \d, rank 0 has another model\.\S+.* after step \d"),
]


def judged(session: Session, target: str) -> Report:
    scenario = resolve.load(target)
    search = replace(EFFORTS["quick"].search(scenario, scenario.world), swept=4)
    return explore(session, search)


def in_gate(kind: str, check: str = "resume") -> str:
    return f"{TARGETS / 'trainings.py'}::{kind}[{check}]"


@pytest.mark.parametrize(("kind", "said"), LOST)
def test_a_part_that_is_not_restored_is_named(session: Session, kind: str, said: str) -> None:
    report = judged(session, in_gate(kind))
    assert report.verdict is Verdict.FAIL
    (found,) = {each.violation.invariant for each in report.violations}
    assert found == "resume-equals"
    assert all(re.fullmatch(said, each.violation.message) for each in report.violations)


def test_a_job_that_resumes_from_an_older_save_loses_work(session: Session) -> None:
    report = judged(session, in_gate("Older"))
    assert "durable-after-ack" in {each.violation.invariant for each in report.violations}


@pytest.mark.parametrize("check", ["resume", "resume-rank", pytest.param("resume-power-loss", marks=pytest.mark.slow)])
def test_a_sound_job_passes(session: Session, check: str) -> None:
    scenario = resolve.load(in_gate("Sound", check))
    search = replace(EFFORTS["quick"].search(scenario, scenario.world), states=15)
    report = explore(session, search)
    assert (report.verdict, report.reasons) == (Verdict.PASS, ())
    assert not [each for each in report.claim.conditions if "compared" in each]


@pytest.mark.parametrize(("kind", "name"), [("Lucky", "luck"), ("Timed", "at")])
def test_a_state_that_two_undisturbed_runs_do_not_share_is_unknown(session: Session, kind: str, name: str) -> None:
    report = judged(session, in_gate(kind))
    assert report.verdict is Verdict.UNKNOWN
    assert f"a second run that nobody interrupted differs: rank 0 has another {name} after step 1" in report.reasons[0]


def test_a_state_with_something_that_cannot_be_compared_is_unknown(session: Session) -> None:
    assert judged(session, in_gate("Arrays")).verdict is Verdict.PASS
    report = judged(session, in_gate("Opaque"))
    assert report.verdict is Verdict.UNKNOWN
    assert "a state has own (set), which cannot be compared: give tensors, arrays" in report.reasons[0]


@pytest.mark.parametrize("fault", ["crash", "kill-job on any nth=each"])
def test_a_scenario_that_declares_its_steps_is_judged_also_after_a_crash(session: Session, fault: str) -> None:
    def found(name: str) -> Report:
        scenario = resolve.load(f"{TARGETS / 'training_scenarios.py'}::{name}")
        world = make_world(scenario.world, faults=fault)
        return explore(session, Search(scenario, world, scenario.invariants, "round-robin"))

    assert found("whole").verdict is Verdict.PASS
    lossy = found("lossy")
    assert {each.violation.message for each in lossy.violations} == {
        "after the restart, rank 0 has another momentum after step 3"
    }


def test_only_trainings_are_asked_for_their_checks() -> None:
    training = subjects.named(f"{TARGETS / 'trainings.py'}::Sound")
    assert [*suite.applicable(training.kind)] == ["resume", "resume-rank", "resume-power-loss"]
    assert subjects.left_out(training) == []
    assert subjects.lacking(training, ["kill"]) == "check kill is for checkpointers"
    control = subjects.named("control")
    assert not {"resume", "resume-rank", "resume-power-loss"} & {*suite.applicable(control.kind)}
    assert subjects.lacking(control, ["resume"]) == "check resume is for trainings"
    assert not any("resume" in each for each in subjects.left_out(control))
    with pytest.raises(UsageError, match="check kill is for a checkpointer"):
        suite.scenario(training.kind, "kill")


def test_a_class_that_lacks_a_method_of_a_training_is_refused() -> None:
    class Stateless:
        def step(self) -> None: ...
        def save(self, root: object, step: int) -> None: ...
        def load(self, root: object) -> int: ...

    with pytest.raises(UsageError, match=re.escape("has no method state: a training has step(), save(root, step)")):
        protocol.check(Stateless, "Stateless")

    class Wrong(trainings.Sound):
        def save(self, root: object) -> None: ...  # type: ignore[override]  # the mistake under test

    with pytest.raises(UsageError, match=re.escape("Wrong.save cannot be called as save(root, step)")):
        protocol.check(Wrong, "Wrong")
