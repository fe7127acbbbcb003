"""The checkpointers of torch itself: they repeat, what they save they load, and what is wrong with each is found."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from racecheck.explore import runner
from racecheck.explore.reports import Report
from racecheck.explore.requests import RunRequest
from racecheck.model.compare import first_difference
from racecheck.model.nouns import Op, Outcome, Verdict, World
from racecheck.scheduling.strategies import RandomWalk, Replay
from racecheck.sessions.session import Session
from racecheck.targets import resolve, suite
from racecheck.targets.scenarios import Scenario
from tests.support import soak
from tests.support.resharding import PATIENT, assert_resharded, explored, loaded

REPLAYS = 3
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


def broken(report: Report) -> set[str]:
    return {each.violation.invariant for ending in report.endings for each in ending.violations}


@pytest.mark.parametrize("name", EVERY)
def test_a_save_repeats_and_loads_what_was_saved(session: Session, name: str) -> None:
    """The first run of a search happens twice, and is compared op by op."""
    report = explored(session, f"{name}[save]")
    assert report.verdict is Verdict.PASS, report.reasons or report.violations
    assert report.outcome is not None
    assert [each.rank for each in loaded(report.outcome.recovery, step=1)] == [0, 1]


@pytest.mark.parametrize("name", RESHARDED)
def test_all_load_the_same_weights_resharded_from_4_ranks_to_2_and_to_4(session: Session, name: str) -> None:
    """Bit for bit what any other one loads, on every rank."""
    assert_resharded(session, name)


@pytest.mark.parametrize(
    ("target", "fault", "invariant"),
    [
        ("torch-in-place[load]", "", "no-torn-files"),
        ("torch-barrier[kill]", "kill-job on write nth=4", "old-survives"),
        ("torch-filelock[kill]", "kill-job on write nth=4", "old-survives"),
        ("torch-rename[power-loss]", "crash", "durable-after-ack"),
        ("dcp-reused[kill]", "kill-job on rename nth=2", "old-survives"),
        ("dcp-reused[kill-overwrite]", "kill-job on open **/__0_0.distcp nth=2 when=after", "recovers"),
        pytest.param("dcp-threads[error]", "EIO on open step-2/__1_1.distcp", "error-honesty", marks=pytest.mark.slow),
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
def test_a_power_loss_takes_what_dcp_had_saved(session: Session) -> None:
    report = explored(session, "dcp-safetensors[power-loss]")
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
    """The twins of what is found: the same check of a checkpointer that passes it, or of the same one elsewhere."""
    report = explored(session, target, *filter(None, [fault]), schedules=3)
    assert not report.violations
    assert report.verdict is Verdict.PASS, report.reasons


def test_an_asynchronous_save_is_by_a_thread_of_its_own(session: Session) -> None:
    report = explored(session, "dcp-async[async]")
    assert report.outcome is not None
    writers = {each.thread for each in report.outcome.trace if isinstance(each, Op) and each.call == "write"}
    assert not writers & {"0", "1"}


def test_a_rank_that_starts_processes_may_be_slow() -> None:
    assert resolve.load("dcp-async-process[save]").world.timeout == PATIENT
    assert resolve.load("dcp[save]").world.timeout == World().timeout


def test_what_their_documentation_rules_out_is_not_held_against_them() -> None:
    reasons = suite.reason_against
    dcp, reused = resolve.checkpointer("dcp"), resolve.checkpointer("dcp-reused")
    assert "empty or non-existing" in reasons(dcp, suite.CHECKS["kill-overwrite"])
    assert not reasons(dcp, suite.CHECKS["kill"])
    assert "empty or non-existing" in reasons(reused, suite.CHECKS["kill"])
    assert not reasons(reused, suite.CHECKS["save"])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PLAIN, *DCP])
def test_schedules_replay(session: Session, name: str) -> None:
    replays(session, name, range(REPLAYS))


@pytest.mark.soak
@pytest.mark.parametrize("name", EVERY)
def test_fresh_schedules_replay(session: Session, name: str) -> None:
    replays(session, name, soak.seeds())


def replays(session: Session, name: str, seeds: Iterable[int]) -> None:
    """A random schedule of each seed, and that once more."""
    scenario = resolve.load(f"{name}[saves]")
    runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    for seed in seeds:
        before = once(session, scenario, seed)
        strategy = Replay(before.schedule)
        strategy.begin(Random(0))
        now = runner.run(session, RunRequest.of(scenario, scenario.world, strategy, seed="0"))
        difference = strategy.divergence or first_difference(before, now)
        assert not difference, f"seed {seed}"


def once(session: Session, scenario: Scenario, seed: int) -> Outcome:
    strategy = RandomWalk()
    strategy.begin(Random(seed))
    return runner.run(session, RunRequest.of(scenario, scenario.world, strategy, seed="0"))
