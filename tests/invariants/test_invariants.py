"""Invariants on hand-written outcomes: each has a twin that it finds nothing in."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from racecheck import invariants
from racecheck.invariants import (
    DEFAULT,
    equal_collectives,
    judge,
    name_of,
    no_deadlock,
    no_file_errors,
    no_unexpected_errors,
    nothing_left_over,
    nothing_outside,
)
from racecheck.model.nouns import Coverage, Event, Invariant, Mismatch, Outcome, Verdict, Violation
from tests.support.builders import collective, died, op, outcome, raised, returned, stopped

MISSING = raised("FileNotFoundError", "[Errno 2] No such file", errno="ENOENT", path="ckpt/f0")
ECHO = raised("RuntimeError", "Connection closed by peer", echo=True)
FINE = outcome(returned(), returned())
MISMATCH = Mismatch("0", 3, {0: "barrier()", 1: "all_reduce(float32)"})


def messages(invariant: Invariant, judged: Outcome) -> list[str]:
    return [each.message for each in invariant(judged)]


def only(invariant: Invariant, judged: Outcome) -> Violation:
    (found,) = invariant(judged)
    assert found.invariant == name_of(invariant)
    return found


@pytest.mark.parametrize("invariant", [*DEFAULT, nothing_left_over], ids=name_of)
def test_a_fine_run_violates_nothing(invariant: Invariant) -> None:
    trace: list[Event] = [
        op("0 mkdir ckpt"),
        op("1 mkdir ckpt", errno="EEXIST"),
        collective(),
        op("0 open ckpt/f0"),
    ]
    fine = outcome(returned(1), returned(2), trace=trace, disk=["ckpt", "ckpt/f0", "ckpt/attempt", "lock"])
    assert list(invariant(fine)) == []


# File errors.


def test_a_file_error_names_the_rank_the_path_and_the_op() -> None:
    trace: list[Event] = [
        op("1 unlink ckpt/f0", errno="ENOENT"),
        op("0 unlink ckpt/f0", inode=3),
        op("1 unlink ckpt/f0", errno="ENOENT"),
        op("0 unlink ckpt/f0", errno="ENOENT"),
        op("1 stat ckpt", errno="EACCES"),
        op("1 close"),
    ]
    found = only(no_file_errors, outcome(returned(), MISSING, trace=trace))
    assert found.message == "FileNotFoundError on rank 1: ckpt/f0"
    assert (found.ranks, found.events) == ((1,), (2,)), "the last op of that rank with that errno"


def test_the_op_is_the_one_about_the_path_not_one_of_the_clean_up() -> None:
    trace: list[Event] = [
        op("0 rename ckpt/f0 -> ckpt/f1", errno="ENOENT"),
        collective(),
        op("0 unlink ckpt/f0.tmp", errno="ENOENT"),
        op("0 sleep", result=None),
    ]
    assert only(no_file_errors, outcome(MISSING, trace=trace)).events == (0,)
    elsewhere = raised("FileNotFoundError", errno="ENOENT", path="/etc/f0")
    assert only(no_file_errors, outcome(elsewhere, trace=trace)).events == (2,)


def test_a_file_error_that_no_op_made_has_no_events() -> None:
    by_hand = raised("FileExistsError", "step 2 exists\nremove it")
    found = only(no_file_errors, outcome(by_hand, trace=[op("0 mkdir ckpt"), op("0 stat ckpt", errno="EEXIST")]))
    assert found.message == "FileExistsError on rank 0: step 2 exists"
    assert found.events == ()


def test_every_rank_with_a_file_error_is_named() -> None:
    full = raised("OSError", "[Errno 28] No space left", errno="ENOSPC", path="ckpt/f1")
    derived = raised("shutil.Error", "[('a', 'b')]", base="OSError")
    assert messages(no_file_errors, outcome(MISSING, returned(), full, derived)) == [
        "FileNotFoundError on rank 0: ckpt/f0",
        "OSError (ENOSPC) on rank 2: ckpt/f1",
        "shutil.Error on rank 3: [('a', 'b')]",
    ]


# Other errors.

DUMPED = 'Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n  File "s.py", line 1 in f\n'


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (raised("EOFError", "Ran out of input"), "EOFError on rank 1: Ran out of input"),
        (raised("AssertionError"), "AssertionError on rank 1"),
        (raised("pickle.UnpicklingError", "\nbad\nmore"), "pickle.UnpicklingError on rank 1: bad"),
        (died(signal="SIGSEGV"), "rank 1 was killed by SIGSEGV before it returned"),
        (died(status=3), "rank 1 exited with status 3 before it returned"),
        (died(), "rank 1 exited with status 0 before it returned"),
        (
            died(signal="SIGABRT", output="loading\nterminate called\n"),
            "rank 1 was killed by SIGABRT before it returned: terminate called",
        ),
        (
            died(signal="SIGABRT", output=f"terminate called\n  what():  torn\nframe #0: read\n{DUMPED}"),
            "rank 1 was killed by SIGABRT before it returned: torn",
        ),
        (
            died(signal="SIGSEGV", output=DUMPED),
            "rank 1 was killed by SIGSEGV before it returned: Fatal Python error: Aborted",
        ),
    ],
)
def test_an_unexpected_error_says_how_the_rank_ended(result: Any, message: str) -> None:
    judged = outcome(returned(), result)
    found = only(no_unexpected_errors, judged)
    assert (found.message, found.ranks) == (message, (1,))
    assert messages(no_file_errors, judged) == []


def test_file_errors_are_left_to_the_other_invariant() -> None:
    assert messages(no_unexpected_errors, outcome(returned(), MISSING)) == []


@pytest.mark.parametrize(("errno", "about_files"), [("", False), ("ETIMEDOUT", True)])
def test_a_time_that_is_over_is_about_files_if_the_system_says_so(errno: str, about_files: bool) -> None:
    """A future that is not done, a lock that others have: these are OSErrors by their class alone."""
    late = outcome(returned(), raised("TimeoutError", "late", errno=errno))
    assert bool(messages(no_file_errors, late)) is about_files
    assert bool(messages(no_unexpected_errors, late)) is not about_files


@pytest.mark.parametrize("echo", [ECHO, stopped("echo"), raised("ConnectionError", errno="EPIPE", echo=True)])
@pytest.mark.parametrize("cause", [MISSING, died(signal="SIGKILL"), stopped("collective"), stopped("running")])
def test_an_echo_does_not_count_where_a_cause_is_known(echo: Any, cause: Any) -> None:
    alone, echoed = outcome(returned(), cause), outcome(echo, cause)
    for invariant in (no_file_errors, no_unexpected_errors, no_deadlock):
        assert messages(invariant, echoed) == messages(invariant, alone)


def test_an_echo_of_different_collectives_does_not_count() -> None:
    judged = outcome(stopped("echo"), ECHO, mismatch=MISMATCH)
    assert messages(no_unexpected_errors, judged) == []
    assert len(messages(equal_collectives, judged)) == 1


def test_echoes_without_a_cause_are_reported() -> None:
    judged = outcome(ECHO, stopped("echo", "waits in barrier #0"), returned())
    assert messages(no_unexpected_errors, judged) == [
        "RuntimeError on rank 0: Connection closed by peer",
        "rank 1 did not end: waits in barrier #0",
    ]
    broken = raised("BrokenPipeError", "[Errno 32] Broken pipe", errno="EPIPE", echo=True)
    assert messages(no_file_errors, outcome(broken)) == ["BrokenPipeError on rank 0: [Errno 32] Broken pipe"]


# Deadlock.


def test_a_deadlock_is_one_violation_that_says_what_each_rank_waits_for() -> None:
    judged = outcome(
        stopped("collective", "waits in barrier #3 of group 0 for rank 1, which has returned"),
        returned(),
        stopped("lock", "waits for the lock on ckpt/.lock"),
        stopped("asleep", "sleeps and nothing can wake it"),
    )
    found = only(no_deadlock, judged)
    assert found.ranks == (0, 2, 3)
    assert found.message == (
        "deadlock: rank 0 waits in barrier #3 of group 0 for rank 1, which has returned; "
        "rank 2 waits for the lock on ckpt/.lock; rank 3 sleeps and nothing can wake it"
    )
    assert messages(no_unexpected_errors, judged) == []


def test_waiting_for_a_rank_that_failed_or_still_runs_is_no_deadlock() -> None:
    assert messages(no_deadlock, outcome(MISSING, stopped("echo"))) == []
    assert messages(no_deadlock, outcome(stopped("running"), stopped("collective"))) == []


# Collectives.


def test_different_collectives_are_named_rank_by_rank() -> None:
    found = only(equal_collectives, outcome(stopped("echo"), stopped("echo"), mismatch=MISMATCH))
    assert found.message == "collective #3 of group 0: rank 0 calls barrier(); rank 1 calls all_reduce(float32)"
    assert found.ranks == (0, 1)


# Disk.


@pytest.mark.parametrize("name", ["a.tmp", "tmpx1", ".tmpAbC", "ckpt.lock", ".lock", "a.partial", "a.part"])
def test_names_that_look_temporary_or_like_locks_are_left_over(name: str) -> None:
    found = only(nothing_left_over, outcome(returned(), disk=["ckpt", f"ckpt/{name}"]))
    assert found.message == f"left over: ckpt/{name}"


def test_what_lies_in_a_directory_is_not_judged_by_the_directory() -> None:
    assert messages(nothing_left_over, outcome(returned(), disk=["a.tmp", "a.tmp/f0"])) == ["left over: a.tmp"]


def test_left_overs_are_named_with_the_rank_that_made_them() -> None:
    trace: list[Event] = [
        op("0 open b.tmp"),
        op("0 unlink b.tmp", inode=2),
        op("1 open b.tmp"),
        op("0 open b.tmp", inode=5),
        op("2 open b.tmp", errno="ENOENT"),
        op("0 rename a -> a.lock"),
    ]
    found = only(nothing_left_over, outcome(returned(), returned(), trace=trace, disk=["b.tmp", "a.lock"]))
    assert found.message == "left over: a.lock, b.tmp"
    assert (found.events, found.ranks) == ((2, 5), (0, 1))


def test_left_overs_of_a_run_with_a_failed_rank_say_nothing() -> None:
    for results in ([returned(), MISSING], [stopped("running")], []):
        assert messages(nothing_left_over, outcome(*results, disk=["a.tmp"])) == []


def test_left_overs_can_be_called_otherwise() -> None:
    judged = outcome(returned(), disk=["a.tmp", "step_2.staging"])
    staged = partial(nothing_left_over, patterns=["*.staging"])
    assert only(staged, judged).message == "left over: step_2.staging"


@pytest.mark.parametrize(
    ("hit", "path", "who", "blamed"),
    [
        ("0 open TMPDIR/0/x", "/tmp/x", "rank 0 open", False),
        ("0 open TMPDIR/0/x", "/tmp/x", "rank 0 open, rank 1 open", True),
        ("0 open TMPDIR/0/x", "/x", "rank 0 open", True),
        ("0 open x", "/tmp/x", "rank 0 open", True),
    ],
)
def test_a_rank_that_cannot_write_to_tmpdir_may_use_tmp(hit: str, path: str, who: str, blamed: bool) -> None:
    judged = outcome(returned(), trace=[op(hit, errno="EIO", fault="EIO")], outside={path: who})
    assert bool(messages(nothing_outside, judged)) is blamed


def test_a_write_outside_is_named_with_its_rank() -> None:
    found = only(nothing_outside, outcome(returned(), outside={"/b": "rank 1 mkdir", "/a": "rank 0 open"}))
    assert found.message == "written outside the watched directory: /a (rank 0 open), /b (rank 1 mkdir)"


def test_a_long_list_is_cut() -> None:
    many = outcome(returned(), outside={f"/{number}": "rank 0 open" for number in range(8)})
    assert only(nothing_outside, many).message.endswith("/4 (rank 0 open) and 3 more")
    five = outcome(returned(), outside={f"/{number}": "rank 0 open" for number in range(5)})
    assert only(nothing_outside, five).message.endswith("/4 (rank 0 open)")


# Names and judgement.


def test_every_public_invariant_is_in_the_module_under_its_own_name() -> None:
    for name in (
        "no-file-errors",
        "no-unexpected-errors",
        "no-deadlock",
        "equal-collectives",
        "nothing-outside",
        "all-shards-present",
        "atomic-publish",
        "consistent-weights",
        "no-torn-files",
        "recovers",
        "same-checkpoint",
        "snapshot-isolation",
    ):
        assert name_of(getattr(invariants, name.replace("-", "_"))) == name
    assert [name_of(each) for each in DEFAULT] == [
        "no-file-errors",
        "no-unexpected-errors",
        "no-deadlock",
        "equal-collectives",
        "nothing-outside",
        "recovers",
    ]
    inner = partial(nothing_left_over, patterns=["x"])
    inner.__doc__ = "Python does not merge a partial that has attributes into the one around it."
    assert name_of(inner) == name_of(partial(inner, patterns=["y"])) == "nothing-left-over"


def test_an_invariant_may_be_an_object() -> None:
    class AllShards:
        def __call__(self, judged: Outcome) -> list[Violation]:
            return [Violation("all-shards", "none")]

    assert name_of(AllShards()) == "AllShards"
    assert judge(FINE, [AllShards()]).verdict is Verdict.FAIL


def found_then_broken(judged: Outcome) -> Iterator[Violation]:
    yield Violation("found-then-broken", "first")
    raise KeyError("second")


def broken(judged: Outcome) -> Iterator[Violation]:
    raise ValueError("no step in meta.json")


def test_a_run_that_nothing_speaks_against_passes() -> None:
    judgement = judge(FINE, DEFAULT)
    assert (judgement.verdict, judgement.violations, judgement.reasons) == (Verdict.PASS, (), ())


def test_violations_of_all_invariants_are_kept() -> None:
    judgement = judge(outcome(MISSING, raised("EOFError"), outside={"/a": "rank 0 open"}), DEFAULT)
    assert judgement.verdict is Verdict.FAIL
    assert [each.invariant for each in judgement.violations] == [
        "no-file-errors",
        "no-unexpected-errors",
        "nothing-outside",
    ]


def test_an_invariant_that_raises_makes_it_unknown_and_stops_no_other() -> None:
    judgement = judge(FINE, [broken, *DEFAULT])
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.reasons == ("broken could not judge the run: ValueError: no step in meta.json",)
    assert judge(outcome(MISSING), [broken, *DEFAULT]).verdict is Verdict.FAIL


def test_what_was_found_before_an_invariant_raised_counts() -> None:
    judgement = judge(FINE, [found_then_broken])
    assert judgement.verdict is Verdict.FAIL
    assert [each.message for each in judgement.violations] == ["first"]
    assert judgement.reasons == ("found-then-broken could not judge the run: KeyError: 'second'",)


@pytest.mark.parametrize("given", [None, "broken", [True], True])
def test_what_is_no_violation_makes_it_unknown(given: Any) -> None:
    judgement = judge(FINE, [lambda _: given])
    assert judgement.verdict is Verdict.UNKNOWN
    assert "could not judge the run: TypeError" in judgement.reasons[0]


def test_an_interrupt_is_not_swallowed() -> None:
    def interrupted(judged: Outcome) -> list[Violation]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(FINE, [interrupted])


DOUBTS = [
    (outcome(), "no rank ran"),
    (
        outcome(returned(), stopped("running", "still going after 9 ops")),
        "rank 1 did not end: still going after 9 ops",
    ),
    (outcome(returned(), coverage=Coverage(holes={"bind": 1})), "not controlled: bind"),
    (outcome(returned(), coverage=Coverage(holes={"bind": 2})), "not controlled: bind (2 times)"),
]


@pytest.mark.parametrize(("judged", "reason"), DOUBTS)
def test_a_doubt_makes_it_unknown(judged: Outcome, reason: str) -> None:
    judgement = judge(judged, DEFAULT)
    assert (judgement.verdict, judgement.reasons) == (Verdict.UNKNOWN, (reason,))


def test_notes_and_uncontrolled_calls_are_no_doubt() -> None:
    noted = outcome(returned(), coverage=Coverage(ops=3, passed=400, notes={"mapping": 1}))
    assert judge(noted, DEFAULT).verdict is Verdict.PASS


def test_a_violation_outweighs_doubts_which_stay_listed() -> None:
    judged = outcome(MISSING, stopped("running", "slow"), coverage=Coverage(holes={"bind": 1}))
    judgement = judge(judged, DEFAULT)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.reasons == ("rank 1 did not end: slow", "not controlled: bind")


def test_a_deadlock_is_certain() -> None:
    judgement = judge(outcome(stopped("collective"), returned()), DEFAULT)
    assert (judgement.verdict, judgement.reasons) == (Verdict.FAIL, ())


def test_without_invariants_nothing_passes() -> None:
    assert judge(FINE, []).verdict is Verdict.UNKNOWN
