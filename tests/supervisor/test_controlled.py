"""Controlled worlds, on real processes and a real gloo group: what is seen of collectives, deadlocks and deaths."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from racecheck.explore import runner
from racecheck.explore.requests import RunRequest, Search
from racecheck.explore.search import explore
from racecheck.invariants import judge
from racecheck.kernel import proc
from racecheck.model.compare import first_difference
from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.nouns import Died, Raised, Returned, Stopped, Verdict
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.session import Session
from racecheck.supervisor.quiescence import Quiescence
from racecheck.supervisor.state.rank_parts import Phase
from tests.support.controlled_runs import collectives, run
from tests.support.targets import target


def test_every_kind_of_collective_is_seen(session: Session) -> None:
    outcome = run(session, "every_collective")
    assert outcome.results == (Returned(18), Returned(18))
    # all_gather_object is two all_gathers, broadcast_object_list two broadcasts, gather_object an all_gather and a
    # gather, scatter_object_list a broadcast and two scatters.
    assert Counter(each.kind for each in collectives(outcome)) == {
        "barrier": 1, "all_reduce": 2, "broadcast": 4, "reduce": 1, "all_gather": 5, "gather": 2, "scatter": 3,
        "all_to_all": 2, "reduce_scatter": 2, "monitored_barrier": 1,
    }  # fmt: skip
    assert [each.number for each in collectives(outcome)] == list(range(23))
    assert all(each.ranks == (0, 1) for each in collectives(outcome))
    assert not outcome.coverage.holes


def test_sends_and_receives_are_paired_by_tag(session: Session) -> None:
    outcome = run(session, "point_to_point")
    assert outcome.results == (Returned(4.0), Returned(0.0))
    assert [(each.kind, each.ranks) for each in collectives(outcome)] == [
        ("send/recv", (0, 1)), ("send/recv", (0, 1)), ("send/recv", (1, 0)),
    ]  # fmt: skip


def test_groups_made_on_the_way(session: Session) -> None:
    outcome = run(session, "sub_groups")
    assert outcome.results == tuple(Returned([value, 4.0]) for value in (1.0, 1.0, 5.0, 5.0))
    assert Counter(each.ranks for each in collectives(outcome)) == {(0, 1): 2, (2, 3): 2, (0, 1, 2, 3): 1}
    assert not outcome.coverage.holes


def test_functional_collectives_are_seen(session: Session) -> None:
    outcome = run(session, "functional")
    assert outcome.results == (Returned(6.0), Returned(6.0))
    assert [each.kind for each in collectives(outcome)] == ["scatter", "all_gather"]


def test_happens_before_follows_collectives(session: Session) -> None:
    """What a rank does after the barrier is after everything that the others did before it."""
    outcome = run(session, "sub_groups")
    ops = outcome.ops
    writes = [op for op in ops if op.call == "write"]
    listings = [op for op in ops if op.call == "list"]
    assert len(writes) == 4
    for listing in listings:
        assert all(listing.clock.get(op.thread, 0) >= op.clock[op.thread] for op in writes)
    first, second = (next(op for op in writes if op.rank == rank) for rank in (0, 2))
    assert first.clock.get(second.thread, 0) < second.clock[second.thread]
    assert second.clock.get(first.thread, 0) < first.clock[first.thread]


def test_a_forgotten_barrier_fails_at_once(session: Session) -> None:
    outcome = run(session, "one_returns")
    raised = outcome.results[1]
    assert isinstance(raised, Raised)
    assert (raised.type, raised.echo) == ("RuntimeError", False)
    assert raised.lacks == "barrier #0 of group 0 lacks rank 0, which has returned"
    assert any(frame.function == "one_returns" for frame in raised.stack)
    assert outcome.seconds < 10, "a verdict, not a timeout (gloo's is 30 minutes)"
    (violation,) = judge(outcome, target("worlds", "one_returns").invariants).violations
    assert violation.invariant == "no-deadlock"
    assert violation.message == f"RuntimeError on rank 1: {raised.lacks}"


def test_survivors_of_an_early_end_are_explored(session: Session) -> None:
    scenario = target("worlds", "survivors_go_on")
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=20))
    assert {found.violation.invariant for found in report.violations} == {"no-file-errors"}


def test_an_error_of_the_code_that_handles_an_early_end_is_its_own(session: Session) -> None:
    judgement = judge(run(session, "handler_fails"), target("worlds", "handler_fails").invariants)
    (violation,) = judgement.violations
    assert (violation.invariant, violation.message) == ("no-unexpected-errors", "ValueError on rank 0: no fallback")


def test_a_collective_that_has_failed_is_completed(session: Session) -> None:
    assert run(session, "polls_what_has_failed").results == (Returned("alone"), Returned("early"))


def test_crossed_receives_are_a_deadlock(session: Session) -> None:
    outcome = run(session, "crossed")
    judgement = judge(outcome, target("worlds", "crossed").invariants)
    assert judgement.verdict is Verdict.FAIL
    assert [violation.invariant for violation in judgement.violations] == ["no-deadlock"]
    assert judgement.violations[0].ranks == (0, 1)


def test_an_echo_in_ddps_backward_is_one_too(session: Session) -> None:
    echo, cause = run(session, "fails_before_backward").results
    assert isinstance(cause, Raised)
    assert not cause.echo
    assert isinstance(echo, Raised)
    assert (echo.type, echo.echo) == ("RuntimeError", True)


def test_the_cause_of_a_failure_is_distinguished_from_its_echo(session: Session) -> None:
    outcome = run(session, "one_raises")
    echo, cause = outcome.results
    assert isinstance(echo, Raised)
    assert isinstance(cause, Raised)
    assert (cause.type, cause.message, cause.echo) == ("ValueError", "no such thing", False)
    assert echo.echo
    assert "peer" in echo.message or "reset" in echo.message
    judgement = judge(outcome, target("worlds", "one_raises").invariants)
    assert [violation.ranks for violation in judgement.violations] == [(1,)]


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("mismatched", {0: "barrier()", 1: "all_reduce(1 x float32)"}),
        ("other_root", {0: "broadcast(root 0, 1 x float32)", 1: "broadcast(root 1, 1 x float32)"}),
    ],
)
def test_unequal_collectives(session: Session, name: str, calls: dict[int, str]) -> None:
    outcome = run(session, name)
    assert outcome.mismatch is not None
    assert outcome.mismatch.calls == calls
    assert {rank: stack[-1].function for rank, stack in outcome.mismatch.stacks.items()} == dict.fromkeys((0, 1), name)


def test_a_segfault_and_an_exit_are_distinguished(session: Session) -> None:
    crashed, left = run(session, "crashes").results[1], run(session, "leaves").results[1]
    assert isinstance(crashed, Died)
    assert crashed.signal == "SIGSEGV"
    assert "Segmentation fault" in crashed.output
    assert "zygote" not in crashed.output, "frames of racecheck are left out"
    assert isinstance(left, Died)
    assert (left.signal, left.status) == ("", 3)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_that_the_kernel_kills_for_memory_is_no_failure(
    session: Session, monkeypatch: pytest.MonkeyPatch, killed: int
) -> None:
    """The kernel counts what it kills; other deaths by SIGKILL are the program's."""
    numbers = count(step=killed)
    monkeypatch.setattr(proc, "killed_for_memory", lambda: next(numbers))
    if killed:
        with pytest.raises(CannotRun, match="the kernel killed rank 1, or another process, for want of memory"):
            run(session, "one_is_killed")
    else:
        assert [type(each) for each in run(session, "one_is_killed").results] == [Returned, Died]


@pytest.mark.parametrize(("name", "why"), [("spins", "no progress for 1 s"), ("polls", "reached the limit of 200 ops")])
def test_a_rank_that_does_not_end_is_unknown(session: Session, name: str, why: str) -> None:
    outcome = run(session, name)
    stopped = outcome.results[1]
    assert isinstance(stopped, Stopped)
    assert stopped.kind == "running"
    assert why in stopped.why
    assert stopped.stack[-1].function == name
    assert judge(outcome, target("worlds", name).invariants).verdict is Verdict.UNKNOWN
    assert outcome.results[0] == Returned()


def test_what_is_written_outside_is_reported(session: Session) -> None:
    outcome = run(session, "writes_outside", ranks=1)
    assert len(outcome.outside) == 1
    (path,) = outcome.outside
    assert Path(path).name == "outside"
    assert outcome.outside[path] == "rank 0 open, rank 0 unlink"


def test_sleeping_costs_no_time_and_moves_the_clock(session: Session) -> None:
    outcome = run(session, "sleeps")
    assert outcome.seconds < 60
    assert 3600 * 10**9 <= max(op.time for op in outcome.ops) < 3601 * 10**9, "ranks sleep side by side"


def test_an_unclosed_file_gets_its_bytes_at_the_end_of_the_process(session: Session) -> None:
    outcome = run(session, "unclosed")
    assert {path: entry.size for path, entry in outcome.disk.items()} == {"latest0": 6, "latest1": 6}


def test_a_rank_that_restores_all_signal_handlers_survives(session: Session) -> None:
    """The one that writes stacks is none of Python's."""
    outcome = run(session, "puts_back_handlers")
    assert all(isinstance(each, Returned) for each in outcome.results)
    assert all(op.stack for op in outcome.ops)


def test_a_thread_that_dies_while_its_stack_is_written_is_dead(session: Session) -> None:
    assert [type(each) for each in run(session, "dies_of_a_stack").results] == [Died, Died]


def test_what_is_not_data_cannot_be_returned(session: Session) -> None:
    with pytest.raises(UsageError, match="return JSON data"):
        run(session, "returns_nonsense")


def test_flock_excludes(session: Session) -> None:
    """If both ranks were inside, one mkdir would fail; 20 random schedules, of which about half would hit that."""
    for seed in range(20):
        assert run(session, "locks", seed=seed).results == (Returned(), Returned())


def test_randomness_comes_from_the_seed(session: Session) -> None:
    first, again = run(session, "random_names"), run(session, "random_names", seed=1)
    assert first.results == again.results
    mine, others = (result.value for result in first.results if isinstance(result, Returned))
    assert all(one != other for one, other in zip(mine, others, strict=True))


def test_a_broadcast_that_fills_the_socket_waits_for_its_receivers(session: Session) -> None:
    outcome = run(session, "large_broadcast")
    assert outcome.results == (Returned(4e6), Returned(4e6))
    assert "sent" in outcome.disk


def test_subprocesses_belong_to_their_rank(session: Session) -> None:
    outcome = run(session, "subprocesses")
    assert outcome.results == (Returned(["a"]), Returned(["a"]))
    assert {op.thread for op in outcome.ops} >= {"0", "1", "0.1", "1.1"}
    assert not outcome.coverage.holes


@pytest.mark.parametrize(
    "name", ["every_collective", "sub_groups", "one_raises", "random_names", "large_broadcast", "locks"]
)
def test_one_schedule_gives_one_trace(session: Session, name: str) -> None:
    scenario = target("worlds", name)
    first = run(session, name, seed=5)
    for _ in range(5):
        again = Replay(first.schedule)
        again.begin(Random(0))
        second = runner.run(session, RunRequest.of(scenario, first.world, again, seed="0"))
        assert not again.divergence
        assert first_difference(first, second) == ""


def test_replay_names_the_step_at_which_it_diverged(session: Session) -> None:
    scenario = target("worlds", "locks")
    first = run(session, "locks", seed=3)
    wrong = (*first.schedule[:4], replace(first.schedule[4], label="0 rmdir never"), *first.schedule[5:])
    strategy = Replay(wrong)
    strategy.begin(Random(0))
    runner.run(session, RunRequest.of(scenario, first.world, strategy, seed="0"))
    assert "at choice 4 the schedule takes '0 rmdir never'" in strategy.divergence


def test_a_setup_that_fails_is_wrong_usage(session: Session) -> None:
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        run(session, "bad_setup")


def test_unseeded_randomness_comes_from_the_runs_seed(session: Session, tmp_path: Path) -> None:
    """In another session, too; and it differs between ranks, as it does between processes."""
    first = run(session, "unseeded")
    with Session(tmp_path) as other:
        assert run(other, "unseeded").results == first.results
    assert first.results[0] != first.results[1]


def test_collectives_that_are_made_in_cpp_are_seen(session: Session) -> None:
    outcome = run(session, "ddp")
    assert outcome.results[0] == outcome.results[1]
    assert Counter(each.kind for each in collectives(outcome))["all_reduce"] == 2


def test_a_root_whose_peers_never_come_hears_of_it(session: Session) -> None:
    """gloo tells it that a connection was closed, other backends let it wait."""
    result = run(session, "broadcast_to_nobody").results[0]
    assert isinstance(result, Raised)
    assert result.lacks == "broadcast #0 of group 0 lacks rank 1, which has returned"


def test_the_name_that_is_taken_is_the_errors_path(session: Session) -> None:
    failed = [each for each in run(session, "link_twice").results if isinstance(each, Raised)]
    assert [(each.path, each.message) for each in failed] == [("link", "[Errno 17] File exists: 'target' -> 'link'")]


def test_an_errors_path_is_as_places_show_it(session: Session) -> None:
    failed = run(session, "fails_at_the_top").results
    assert [each.path for each in failed if isinstance(each, Raised)] == [".", "TMPDIR/0/none"]


@pytest.mark.parametrize(("asleep", "news"), [(True, True), (False, False)])
def test_a_rank_that_sleeps_is_looked_at_until_gloos_loop_has_looked_around(
    monkeypatch: pytest.MonkeyPatch, asleep: bool, news: bool
) -> None:
    """On a busy machine that takes longer than the look that finds all asleep."""
    later = iter([False, False, True])
    monkeypatch.setattr(Quiescence, "_pass_on", lambda *_: next(later))
    monkeypatch.setattr(Quiescence, "_pump", lambda *_: False)
    rank: Any = SimpleNamespace(
        phase=Phase.SLEEPS if asleep else Phase.STILL, waiting_for_memory=frozenset(), gil=frozenset()
    )
    assert object.__new__(Quiescence)._looks_again([rank]) is news


def test_what_a_rank_does_behind_its_last_group_is_not_first(session: Session) -> None:
    """Its peers hear at once that it has left."""
    scenario = target("worlds", "one_leaves_the_group")
    found: list[Any] = []
    search = Search(scenario, scenario.world, (lambda outcome: found.append(outcome.results[0]) or (),), schedules=20)
    report = explore(session, search)
    assert report.exhaustive
    assert report.claim.conditions == ("for gloo",), "another backend would tell its peers at another time"
    assert found == [Returned(False), Returned(True)]


def test_a_group_that_is_made_again_has_all_its_ranks(session: Session) -> None:
    outcome = run(session, "group_made_again")
    assert outcome.results == (Returned([2.0] * 3),) * 2
    for turn in "012":
        there = [op for op in outcome.ops if op.places and op.places[0].path == turn]
        made, looks = there[0], [op for op in there if op.call == "stat"]
        assert [look.rank for look in sorted(looks, key=lambda look: look.rank)] == [0, 1]
        assert all(look.clock.get(made.thread, 0) >= made.clock[made.thread] for look in looks)
