"""What ranks are excused for where something went wrong on purpose, and which invariants judge what a crash leaves."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from racecheck.faults import parse
from racecheck.invariants import (
    DEFAULT,
    after_crash,
    atomic_publish,
    judge,
    judges_crashes,
    name_of,
    no_deadlock,
    no_file_errors,
    no_unexpected_errors,
)
from racecheck.invariants.excuses import faults, is_cut, unexplained
from racecheck.model.nouns import Coverage, Crash, Outcome, Verdict, Violation, World
from racecheck.model.ops.launcher_ops import signal_op
from tests.support.builders import died, op, outcome, raised, returned, stopped

FULL = raised("OSError", "No space left", errno="ENOSPC", path="ckpt/f1")
HIT = op("1 write ckpt/f1", errno="ENOSPC", fault="ENOSPC")
KILL = op("1 kill ckpt/f1", syscall="SIGKILL", fault="kill")
BROKEN = (no_file_errors, no_unexpected_errors, no_deadlock)


def blamed(judged: Outcome) -> list[tuple[str, tuple[int, ...]]]:
    return [(each.invariant, each.ranks) for invariant in BROKEN for each in invariant(judged)]


def test_the_rank_whose_call_was_made_to_fail_has_to_fail() -> None:
    assert blamed(outcome(returned(), FULL, trace=[HIT])) == []
    assert blamed(outcome(returned(), FULL, trace=[op("1 write ckpt/f1", errno="ENOSPC")])) == [
        ("no-file-errors", (1,))
    ]
    assert blamed(outcome(returned(), raised("RuntimeError", "save failed"), trace=[HIT])) == []
    assert blamed(outcome(returned(), died(status=1), trace=[HIT])) == []


def test_its_peers_hear_of_it_in_whatever_way() -> None:
    for peer in (raised("RuntimeError", "rank 1 failed"), raised("ConnectionError", echo=True), stopped("echo"), FULL):
        assert blamed(outcome(peer, FULL, trace=[HIT])) == []


def unexplained_ranks(judged: Outcome) -> list[int]:
    assert blamed(judged) == [], "all are excused"
    return [rank for rank, _ in unexplained(judged)]


def test_a_failure_is_explained_by_the_faults_errno_or_since_nothing_else_was_done() -> None:
    went_on = [HIT, op("1 open ckpt/f2")]
    cleaned_up = [HIT, op("1 close ckpt/f1"), op("1 unlink ckpt/f1")]
    other = raised("AssertionError", "too short")
    assert unexplained_ranks(outcome(returned(), other, trace=went_on)) == [1]
    assert unexplained_ranks(outcome(returned(), other, trace=cleaned_up)) == []
    assert unexplained_ranks(outcome(returned(), FULL, trace=went_on)) == []
    assert unexplained_ranks(outcome(returned(), replace(other, causes=("ENOSPC",)), trace=went_on)) == []
    assert unexplained_ranks(outcome(returned(), raised("E", "[Errno 28] no room"), trace=went_on)) == []
    assert unexplained_ranks(outcome(returned(), died(status=1), trace=went_on)) == []


def test_a_peers_failure_is_explained_if_it_tells_of_the_fault() -> None:
    assert unexplained_ranks(outcome(raised("EOFError"), FULL, trace=[HIT])) == [0]
    assert unexplained_ranks(outcome(raised("E", "rank 1: No space left on device"), FULL, trace=[HIT])) == []
    assert unexplained_ranks(outcome(raised("EOFError"), died(signal="SIGKILL"), trace=[KILL])) == [0]


def test_a_fault_that_has_to_be_survived_excuses_nothing_but_the_death_of_the_killed() -> None:
    world = World(faults=(parse("ENOSPC on write survive"),))
    assert blamed(replace(outcome(returned(), FULL, trace=[HIT]), world=world)) == [("no-file-errors", (1,))]
    killed = replace(outcome(returned(), died(signal="SIGKILL"), trace=[KILL]), world=world)
    assert blamed(killed) == []
    peer = replace(killed, results=(raised("EOFError"), *killed.results[1:]))
    assert blamed(peer) == [("no-unexpected-errors", (0,))]


def test_the_launchers_signal_is_no_excuse_but_the_rank_that_it_ended_is_no_cause() -> None:
    told = signal_op(1, "1", "SIGTERM")
    assert not faults(outcome(returned(), returned(), trace=[told]))
    for end in (died(signal="SIGTERM"), died(status=143)):
        assert blamed(outcome(died(status=3), end, trace=[told])) == [("no-unexpected-errors", (0,))]
        assert blamed(outcome(died(status=3), end)) == [("no-unexpected-errors", (0,)), ("no-unexpected-errors", (1,))]
    assert blamed(outcome(died(status=3), raised("ValueError"), trace=[told])) == [
        ("no-unexpected-errors", (0,)),
        ("no-unexpected-errors", (1,)),
    ]


def test_what_had_failed_before_is_not_excused() -> None:
    missing = raised("FileNotFoundError", errno="ENOENT", path="ckpt")
    early = op("0 stat ckpt", errno="ENOENT")
    assert blamed(outcome(missing, FULL, trace=[early, HIT])) == [("no-file-errors", (0,))]
    assert blamed(outcome(missing, FULL, trace=[HIT, early])) == []


def test_a_fault_may_keep_a_rank_from_getting_over_what_it_had_met() -> None:
    """``makedirs(exist_ok=True)`` after EEXIST, where the question what is there is made to fail."""
    there = raised("FileExistsError", errno="EEXIST", path="ckpt")
    met = op("1 mkdir ckpt", errno="EEXIST")
    assert blamed(outcome(returned(), there, trace=[met, op("1 stat ckpt", errno="EIO", fault="EIO")])) == []
    for elsewhere in "0 stat ckpt", "1 unlink other":
        assert blamed(outcome(returned(), there, trace=[met, op(elsewhere, errno="EIO", fault="EIO")])) == [
            ("no-file-errors", (1,))
        ]


def test_a_process_that_breaks_down_is_not_excused() -> None:
    assert blamed(outcome(returned(), died(signal="SIGSEGV"), trace=[HIT])) == [("no-unexpected-errors", (1,))]
    assert blamed(outcome(returned(), died(signal="SIGKILL"), trace=[HIT])) == [("no-unexpected-errors", (1,))]


def test_a_killed_rank_dies() -> None:
    assert blamed(outcome(stopped("echo"), died(signal="SIGKILL"), trace=[KILL])) == []
    assert blamed(outcome(returned(), died(signal="SIGABRT"), trace=[KILL])) == [("no-unexpected-errors", (1,))]


def test_a_hang_is_never_excused() -> None:
    assert blamed(outcome(stopped("collective"), returned(), trace=[HIT])) == [("no-deadlock", (0,))]


@pytest.mark.parametrize("fault", ["slow, 10 s", "stale: no entry yet", ""])
def test_a_healthy_cluster_is_no_excuse(fault: str) -> None:
    late = op("1 write ckpt/f1", errno="ENOSPC", fault=fault)
    assert blamed(outcome(returned(), FULL, trace=[late])) == [("no-file-errors", (1,))]
    assert not is_cut(outcome(trace=[late]))


def test_faults_are_ops_of_the_trace() -> None:
    judged = outcome(trace=[op("0 mkdir a"), HIT, KILL])
    assert faults(judged) == [(1, HIT), (2, KILL)]
    assert is_cut(judged)
    assert is_cut(outcome(crash=Crash("kill", ())))


# Crashes.


def leaves_nothing(judged: Outcome) -> list[Violation]:
    return [Violation("leaves-nothing", "something is left")]


def test_of_a_crash_only_those_are_asked_that_judge_crashes() -> None:
    judged = outcome(FULL, stopped("running"), crash=Crash("ext4", (0,)), coverage=Coverage(holes={"mmap": 1}))
    assert judge(judged, [*DEFAULT, leaves_nothing]).verdict is Verdict.PASS
    holds = judges_crashes(lambda judged: iter(leaves_nothing(judged)))
    assert judge(judged, [holds]).verdict is Verdict.FAIL
    assert judge(judged, [partial(holds)]).verdict is Verdict.FAIL
    assert judge(judged, [no_file_errors]).reasons == ("nothing was judged: none of the invariants judges crashes",)


def test_what_came_of_the_recovery_counts_after_a_crash() -> None:
    crashed = outcome(returned(), crash=Crash("ext4", ()), recovery=outcome(raised("EOFError")))
    assert [each.invariant for each in judge(crashed, DEFAULT).violations] == ["recovers"]
    open_ = outcome(returned(), crash=Crash("ext4", ()), recovery=outcome(stopped("running", "slow")))
    assert judge(open_, DEFAULT).reasons == ("in the recovery: rank 0 did not end: slow",)


def test_which_invariants_judge_crashes() -> None:
    from racecheck import invariants

    every: list[Any] = [getattr(invariants, name) for name in invariants.__all__ if name != "DEFAULT"]
    assert {name_of(each) for each in after_crash(every)} == {
        "all-shards-present",
        "atomic-publish",
        "consistent-weights",
        "durable-after-ack",
        "liveness",
        "old-survives",
        "recovers",
        "resume-equals",
        "snapshot-isolation",
    }
    assert [name_of(each) for each in after_crash([no_deadlock, partial(atomic_publish, pointer="last")])] == [
        "atomic-publish"
    ]
