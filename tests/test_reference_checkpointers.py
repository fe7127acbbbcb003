"""The checkpointers of torch itself: they repeat, what they save they load, and what is wrong with each is found."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from racecheck import checkpointers, runner, targets
from racecheck.checkpointers import protocol
from racecheck.compare import first_difference
from racecheck.model import Op, Outcome, Point, Verdict, Weights, World
from racecheck.scenarios import Scenario, make_world
from racecheck.search import Report, Search, explore
from racecheck.strategies import RandomWalk, Replay
from racecheck.strategies.switches import Switches
from racecheck.world.session import Session
from racecheck.world.supervisor import Supervisor

REPLAYS = 20
PLAIN = ("torch-in-place", "torch-barrier", "torch-filelock", "torch-rename")
DCP = (
    "dcp",
    "dcp-reused",
    "dcp-threads",
    "dcp-async",
    "dcp-to-torch",
    "dcp-fsdp2",
    "dcp-full-state",
    "dcp-safetensors",
)
BY_PROCESS = pytest.param("dcp-async-process", marks=pytest.mark.slow)
"""Each rank starts a Python process that imports torch: many seconds a run."""
EVERY = (*PLAIN, *DCP, BY_PROCESS)
TELLING = ("dcp", "dcp-fsdp2", "dcp-safetensors")
"""One of each kind: the others are ``slow``."""
RESHARDED = [name if name in TELLING else pytest.param(name, marks=pytest.mark.slow) for name in (*PLAIN, *DCP)]
PATIENT = 120.0
"""Seconds that a daemon may take to come up."""


def explored(session: Session, target: str, *faults: str, schedules: int = 1) -> Report:
    """A search of a check, with these faults instead of its own."""
    scenario = targets.load(target)
    world = make_world(scenario.world, faults=faults or None, timeout=PATIENT)
    return explore(session, Search(scenario, world, scenario.invariants, schedules=schedules))


def broken(report: Report) -> set[str]:
    return {each.violation.invariant for ending in report.endings for each in ending.violations}


def loaded(outcome: Outcome | None, step: int) -> list[Weights]:
    assert outcome is not None
    found = [each for each in outcome.weights if each.kind == "loaded" and each.step == step]
    return sorted(found, key=lambda each: each.rank)


@pytest.mark.parametrize("name", EVERY)
def test_a_save_repeats_and_loads_what_was_saved(session: Session, name: str) -> None:
    """The first run of a search happens twice, and is compared op by op."""
    report = explored(session, f"{name}[save]")
    assert report.verdict is Verdict.PASS, report.reasons or report.violations
    assert report.outcome is not None
    assert [each.rank for each in loaded(report.outcome.recovery, step=1)] == [0, 1]


@pytest.mark.parametrize("name", [*RESHARDED, BY_PROCESS])
def test_all_load_the_same_weights_resharded_from_4_ranks_to_2_and_to_4(session: Session, name: str) -> None:
    """Bit for bit what any other one loads, on every rank."""
    two, four = resharded(session, name)
    wanted_two, wanted_four = reference(session)
    parts = tuple(f"{part}." for part in protocol.parts_of(targets.checkpointer(name)))
    for found, wanted in ((two, wanted_two), (four, wanted_four)):
        due = {key: digest for key, digest in wanted.items() if key.startswith(parts)}
        assert len(due) >= 4
        assert [dict(each.tensors) for each in found] == [due] * len(found)
    assert (len(two), len(four)) == (2, 4)


def resharded(session: Session, name: str) -> tuple[list[Weights], list[Weights]]:
    """Four ranks save step 2, two load it and save the next one, which four load: what the two and the four loaded."""
    scenario = targets.load(f"{name}[kill]")
    scenario.recovering = {"ranks": 2, "nodes": 1}
    world = make_world(scenario.world, ranks=4, faults=(), timeout=PATIENT)
    saved = runner.run_once(session, scenario, world, tamest(world.ranks), seed="0", stacks=False)
    again = Supervisor(session, scenario.reference, world, first, seed="0", stacks=False, recovering=True).run()
    return loaded(saved.recovery, step=2), loaded(again, step=LATER)


LATER = 100
"""The step that the recovery of the check "kill" saves."""


@cache
def reference(session: Session) -> tuple[dict[str, str], dict[str, str]]:
    """What is to be loaded of both steps, as the plainest saver that waits does."""
    two, four = resharded(session, "torch-rename")
    return dict(two[0].tensors), dict(four[0].tensors)


def tamest(ranks: int) -> Switches:
    strategy = Switches().within(ranks)
    strategy.begin(Random(0))
    return strategy


def first(_: Point) -> int:
    return 0


@pytest.mark.parametrize(
    ("target", "fault", "invariant"),
    [
        ("torch-in-place[load]", "", "no-torn-files"),
        ("torch-barrier[kill]", "kill-job on write nth=4", "old-survives"),
        ("torch-filelock[kill]", "kill-job on write nth=4", "old-survives"),
        ("torch-rename[power-loss]", "crash", "durable-after-ack"),
        ("dcp-reused[kill]", "kill-job on rename nth=2", "old-survives"),
        ("dcp-reused[kill-overwrite]", "kill-job on open **/__0_0.distcp nth=2 when=after", "recovers"),
        ("dcp-threads[error]", "EIO on open step-2/__1_1.distcp", "error-honesty"),
        ("dcp-to-torch[kill]", "kill-job on write step-2.pt nth=each", "old-survives"),
        ("dcp[load@nfs]", "", "no-unexpected-errors"),
        ("dcp[saves@node-local]", "", "recovers"),
    ],
)
def test_what_is_wrong_is_found(session: Session, target: str, fault: str, invariant: str) -> None:
    report = explored(session, target, *filter(None, [fault]), schedules=20)
    assert report.verdict is Verdict.FAIL, report.reasons
    assert invariant in broken(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dcp", "dcp-fsdp2", "dcp-safetensors"])
def test_a_power_loss_takes_what_dcp_had_saved(session: Session, name: str) -> None:
    report = explored(session, f"{name}[power-loss]")
    assert report.verdict is Verdict.FAIL, report.reasons
    assert "durable-after-ack" in broken(report)


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("torch-barrier[load]", ""),
        ("torch-rename[kill]", "kill-job on write|rename nth=each"),
        ("dcp[kill]", "kill-job on rename nth=each"),
        pytest.param("dcp-threads[error]", "EIO on open step-2/__1_0.distcp", marks=pytest.mark.slow),
        ("dcp-safetensors[kill]", "kill-job on open **/model.safetensors* nth=each"),
        ("dcp-async[async]", ""),
        pytest.param("dcp-async[async-overlap]", "", marks=pytest.mark.slow),
    ],
)
def test_what_holds_is_clean(session: Session, target: str, fault: str) -> None:
    """The twins of what is found: the same check of a saver that stands it, or of the same saver elsewhere."""
    report = explored(session, target, *filter(None, [fault]), schedules=3)
    assert not report.violations
    assert report.verdict is Verdict.PASS, report.reasons


def test_an_asynchronous_save_is_by_a_thread_of_its_own(session: Session) -> None:
    report = explored(session, "dcp-async[async]")
    assert report.outcome is not None
    writers = {each.thread for each in report.outcome.trace if isinstance(each, Op) and each.call == "write"}
    assert not writers & {"0", "1"}


def test_who_starts_processes_may_take_its_time() -> None:
    assert targets.load("dcp-async-process[save]").world.timeout == PATIENT
    assert targets.load("dcp[save]").world.timeout == World().timeout


def test_what_their_documentation_rules_out_is_not_held_against_them() -> None:
    reasons = checkpointers.reason_against
    dcp, reused = targets.checkpointer("dcp"), targets.checkpointer("dcp-reused")
    assert "empty or non-existing" in reasons(dcp, checkpointers.CHECKS["kill-overwrite"])
    assert not reasons(dcp, checkpointers.CHECKS["kill"])
    assert "empty or non-existing" in reasons(reused, checkpointers.CHECKS["kill"])
    assert not reasons(reused, checkpointers.CHECKS["save"])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PLAIN, *DCP])
def test_schedules_replay(session: Session, name: str) -> None:
    scenario = targets.load(f"{name}[saves]")
    runner.warm_up(session, scenario, scenario.world, seed="0")
    recorded = [once(session, scenario, seed) for seed in range(5)]
    for number in range(REPLAYS):
        before = recorded[number % len(recorded)]
        strategy = Replay(before.schedule)
        strategy.begin(Random(0))
        now = runner.run_once(session, scenario, scenario.world, strategy, seed="0")
        difference = strategy.divergence or first_difference(before, now)
        assert not difference


def once(session: Session, scenario: Scenario, seed: int) -> Outcome:
    strategy = RandomWalk()
    strategy.begin(Random(seed))
    return runner.run_once(session, scenario, scenario.world, strategy, seed="0")
