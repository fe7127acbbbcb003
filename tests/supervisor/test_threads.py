"""Threads and child processes of ranks: each is scheduled on its own, and named so that every run names it alike."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from statistics import median

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest, Search
from racecheck.explore.search import explore
from racecheck.kernel import proc
from racecheck.model.compare import first_difference
from racecheck.model.nouns import Outcome, Returned, Stopped, Verdict
from racecheck.scheduling import claims
from racecheck.scheduling.strategies import RandomWalk, Replay
from racecheck.sessions.session import Session
from racecheck.supervisor import quiescence
from racecheck.supervisor.state import hypercall_ops
from racecheck.supervisor.state.tasks import Rank
from racecheck.supervisor.wait import gil
from racecheck.supervisor.wait.gil import Gil
from tests.support.controlled_runs import run
from tests.support.targets import target

NOTE = hypercall_ops.CONDITION


def names(outcome: Outcome, call: str = "write") -> set[str]:
    return {op.thread for op in outcome.ops if op.call == call}


@pytest.mark.parametrize(
    "name",
    [
        "two_writers",
        "pool",
        "nested",
        "children",
        "async_save",
        "random_in_threads",
        "same_group_in_two_threads",
        "uploads",
    ],
)
def test_a_schedule_repeats(session: Session, name: str) -> None:
    scenario = target("threads", name)
    runner.warm_up(session, RunRequest.of(scenario, scenario.world, Replay(()), seed="0"))
    traces = set()
    for seed in range(3):
        walk = RandomWalk()
        walk.begin(Random(seed))
        first = runner.run(session, RunRequest.of(scenario, scenario.world, walk, seed="0"))
        again = Replay(first.schedule)
        again.begin(Random(0))
        second = runner.run(session, RunRequest.of(scenario, scenario.world, again, seed="0", stacks=False))
        assert again.divergence == ""
        assert first_difference(first, second) == ""
        assert not first.coverage.holes
        traces.add(tuple(op.label for op in first.ops))
    assert len(traces) > 1, "the order of threads is chosen"


def test_threads_are_named_by_their_parent(session: Session) -> None:
    assert names(run(session, "two_writers", file="threads")) == {"0.1", "0.2", "1.1", "1.2"}
    touched = names(run(session, "nested", file="threads"), "open")
    assert touched == {f"{rank}{end}" for rank in "01" for end in (".1", ".2", ".1.1", ".1.2", ".2.1", ".2.2", "")}


def test_work_of_a_pool_is_named_by_the_work(session: Session) -> None:
    """There are fewer workers than items; which worker takes which is not to be seen."""
    outcome = run(session, "pool", file="threads")
    assert names(outcome) == {f"{rank}.{item}" for rank in "01" for item in range(1, 6)}
    assert outcome.results[0] == Returned(["0a", "0b", "0c", "0d", "0e"])
    assert set(outcome.coverage.notes) == {NOTE}


def test_a_thread_begins_after_what_its_parent_did(session: Session) -> None:
    outcome = run(session, "nested", file="threads")
    first = next(op for op in outcome.ops if op.label == "0.1.1 open 0xx")
    assert first.clock["0.1"] >= 1
    assert first.clock["0"] >= 1


def test_programs_belong_to_their_rank(session: Session) -> None:
    outcome = run(session, "children", file="threads")
    assert outcome.results == (Returned(["a", "b", "forked", "python"]),) * 2
    made = {op.path: op.thread for op in outcome.ops if op.call == "mkdir"}
    assert made["to0"] == "0.1"
    removed = {op.thread for op in outcome.ops if op.call in {"unlink", "rmdir"} and op.rank == 0}
    assert removed == {"0.2"}


def test_an_async_save_is_under_control(session: Session) -> None:
    outcome = run(session, "async_save", file="threads")
    assert outcome.results == (Returned([".metadata", "__0_0.distcp", "__1_0.distcp"]),) * 2
    assert names(outcome, "fsync") >= {"0.1", "1.1"}, "by the thread that saves"
    assert not outcome.coverage.holes


def test_the_first_thread_at_a_collective_is_chosen(session: Session) -> None:
    """Two threads use one group: ranks that are not alike come to a barrier and an all_reduce in different order."""
    scenario = target("threads", "same_group_in_two_threads")
    outcomes = [run(session, scenario.name, file="threads", seed=seed) for seed in range(8)]
    assert {outcome.mismatch is not None for outcome in outcomes} == {True, False}
    assert any(op.call == "issue" for op in outcomes[0].ops)


def test_threads_that_wait_for_each_other(session: Session) -> None:
    outcome = run(session, "deadlock_in_threads", file="threads")
    (result,) = outcome.results
    assert isinstance(result, Stopped)
    assert result.kind == "asleep"
    assert result.stack[-1].function == "deadlock_in_threads"


def test_ops_of_threads_carry_their_stacks(session: Session) -> None:
    outcome = run(session, "two_writers", file="threads")
    writes = [op for op in outcome.ops if op.call == "write"]
    assert writes
    assert all(op.stack and op.stack[0].function == "fill" for op in writes)


@pytest.mark.parametrize(
    ("name", "value"),
    [("destroyed_groups", None), ("polled_child", 0), ("queue_of_processes", 7), ("unseen_grandchild", 0)],
)
def test_nothing_is_found_where_nothing_is_wrong(session: Session, name: str, value: object) -> None:
    scenario = target("threads", name)
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=5))
    assert report.verdict is Verdict.PASS, [*report.reasons, *report.violations]
    assert report.outcome is not None
    assert {str(each) for each in report.outcome.results} == {str(Returned(value))}


def test_a_thread_without_python_has_no_stack_and_delays_no_other(session: Session) -> None:
    found = {op.call: op.stack for op in run(session, "thread_of_c", file="threads").ops}
    assert found["mkdir"]
    assert found["rmdir"] == ()


def test_what_waits_for_a_time_ends_with_its_process(session: Session) -> None:
    outcome = run(session, "waits_beyond_the_end", file="threads")
    assert outcome.results == (Returned(None), Returned(None))
    assert sorted(outcome.disk) == ["f0", "f1"]
    assert not outcome.coverage.holes


def test_a_process_that_starts_during_a_look_is_not_missed(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started behind the list of processes, and who has started it sleeps by the time at which that is asked."""
    shown: set[int] = set()

    def late(pid: int, now: Callable[[int], list[int]] = proc.descendants) -> list[int]:
        found = now(pid)
        fresh = {*found} - shown
        if proc.stopped_call(pid, pid) is not None:
            shown.update(fresh)
        return [each for each in found if each not in fresh]

    monkeypatch.setattr(proc, "descendants", late)
    outcome = run(session, "busy_child", file="threads")
    assert outcome.schedule[0].count == 2, "what the rank does next, and what the process does"


@pytest.mark.parametrize("seed", range(4))
def test_a_long_sleep_uses_up_no_time_limit(session: Session, seed: int) -> None:
    assert run(session, "lock_beside_a_sleeper", file="threads", seed=seed).results == (
        Returned(1), Returned(1), Returned(0),
    )  # fmt: skip


def test_a_thread_that_waits_for_the_gil_stops_and_gets_it_when_nothing_runs(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The world is quiet while the holder is stopped in an op, although other threads want the GIL."""
    passed = []

    def pass_on(self: Gil, rank: Rank, original: Callable[[Gil, Rank], bool] = Gil.pass_on) -> bool:
        passed.append(original(self, rank))
        return passed[-1]

    monkeypatch.setattr(Gil, "pass_on", pass_on)
    outcomes = [run(session, "uploads", file="threads", seed=seed) for seed in range(6)]
    assert any(passed)
    assert all(isinstance(each, Returned) for outcome in outcomes for each in outcome.results)
    assert not any(outcome.coverage.holes for outcome in outcomes)
    assert median(outcome.seconds for outcome in outcomes) < 1, "where waiters wake all the time it takes ten"


@pytest.mark.parametrize("seed", range(3))
def test_a_thread_that_is_woken_continues_when_the_other_has_stopped(session: Session, seed: int) -> None:
    outcome = run(session, "changes_after_waking", file="threads", seed=seed)
    assert {"0-1", "1-1"} <= {*outcome.disk}


def test_several_threads_may_want_the_gil(session: Session) -> None:
    outcome = run(session, "three_savers", file="threads")
    assert outcome.results == (Returned(None), Returned(None))
    assert len(outcome.disk) == 6


def test_a_thread_that_computes_lets_others_in_after_a_while(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiescence, "_COMPUTES", 0.2)
    outcome = run(session, "computes", file="threads", seed=1)
    assert outcome.results == (Returned(None),)
    assert gil.COMPUTES in outcome.coverage.notes
    assert any("one that computes" in each for each in claims.of_run(outcome).conditions)


def test_a_program_does_not_see_how_its_threads_are_run(session: Session) -> None:
    assert run(session, "interval", file="threads").results == (Returned([True, len(os.sched_getaffinity(0))]),)


@pytest.mark.parametrize("seed", range(4))
def test_a_program_that_a_thread_executes_ends_the_others_wherever_they_are(session: Session, seed: int) -> None:
    outcome = run(session, "executed_by_a_thread", file="threads", seed=seed)
    assert [type(each).__name__ for each in outcome.results] == ["Died"]
    assert "after" in outcome.disk
    paths = [op.path for op in outcome.ops]
    assert not [path for path in paths[paths.index("after") :] if path.startswith("main")]
