"""The comparison of a real run with an emulated one, by hand-made runs of both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from racecheck.explore.launcher_check import (
    Difference,
    LauncherCheck,
    check_followed,
    differences,
    without_luck,
    without_lucky_ends,
)
from racecheck.model.errors import CannotRun
from racecheck.model.nouns import Op, Result, Verdict
from racecheck.report import comparison
from racecheck.supervisor.free.observed_launch import RealRun
from tests.support.builders import died, op, outcome, raised, returned, stopped

MADE, TAKEN = op("0 mkdir ckpt"), op("0 mkdir ckpt", errno="EEXIST")


def found(real: list[Op], emulated: list[Op], *patterns: str) -> list[Difference]:
    return differences(RealRun(tuple(real), {0: 0}), outcome(returned(), trace=emulated), patterns)


def test_ops_and_results_that_differ_are_found() -> None:
    assert found([MADE], [MADE]) == []
    assert found([TAKEN], [MADE]) == [Difference(0, "mkdir ckpt: EEXIST", "mkdir ckpt: ok, 0")]
    assert found([MADE, TAKEN], [MADE]) == [Difference(0, "mkdir ckpt: EEXIST", "")]
    assert found([], [MADE]) == [Difference(0, "", "mkdir ckpt: ok, 0")]
    assert found([replace(MADE, flags=("A",))], [replace(MADE, flags=("B",))]) == [
        Difference(0, "mkdir ckpt A: ok, 0", ""),
        Difference(0, "", "mkdir ckpt B: ok, 0"),
    ]
    longer = replace(MADE, result=Result(size=3))
    assert found([MADE], [longer]) == [Difference(0, "mkdir ckpt: ok, 0", "mkdir ckpt: ok, 3")]


def test_what_the_kernel_did_unseen_and_what_is_no_file_of_the_watched_directory_is_not_compared() -> None:
    unseen = replace(TAKEN, result=Result(known=False))
    assert found([unseen], [MADE]) == []
    assert found([], [op("0 mkdir TMPDIR/0/x"), op("0 store key"), op("0 sleep")]) == []


def test_names_drawn_at_random_are_compared_by_their_role() -> None:
    real, emulated = ([op(f"0 rename .tmp{name} -> f"), op(f"0 open {other}")] for name, other in ("ab", "ba"))
    pattern = r"\.tmp([a-z]{1,1})"
    assert len(found(real[:1], emulated[:1])) == 2
    assert found(real[:1], emulated[:1], pattern) == []
    assert len(found(real, emulated, pattern)) == 2, "a name without the pattern still differs"


def test_what_differs_with_the_seed_is_no_difference() -> None:
    """The random states of a rank, for one: their pickle is not always as long."""

    def wrote(size: int, *, errno: str = "") -> list[Op]:
        return [op("0 write rng", result=Result(errno=errno, size=size)), MADE]

    real, run = RealRun(tuple(wrote(7)), {0: 0}), outcome(returned(), trace=wrote(5))
    assert len(differences(real, run)) == 1
    assert without_luck(real, run, outcome(returned(), trace=wrote(6))) == []
    assert len(without_luck(real, run, outcome(returned(), trace=wrote(5)))) == 1
    taken = RealRun((*wrote(7)[:1], TAKEN), {0: 3})
    left = without_luck(taken, run, outcome(returned(), trace=wrote(6)))
    assert [each.real for each in left] == ["mkdir ckpt: EEXIST", "exit status 3"]


@pytest.mark.parametrize(
    ("label", "what"), [("0 flock lock", "locks files"), ("0.1 open x", "several threads or processes of a rank")]
)
def test_a_program_that_a_real_run_cannot_be_followed_in_is_refused(label: str, what: str) -> None:
    check_followed(outcome(returned(), trace=[MADE, op("0.1 begin")]))
    with pytest.raises(CannotRun, match=what):
        check_followed(outcome(returned(), trace=[MADE, op(label)]))


def test_each_rank_ends_with_the_same_status_or_by_a_signal() -> None:
    ends = returned(), raised("ValueError"), died(status=3), died(signal="SIGTERM"), stopped("echo")
    alike = RealRun((), {0: 0, 1: 1, 2: 3})
    assert differences(alike, outcome(*ends)) == []
    others = RealRun((), {0: 1, 2: 0, 3: 0, 4: 0})
    assert [(each.rank, each.real, each.emulated) for each in differences(others, outcome(*ends))] == [
        (0, "exit status 1", "exit status 0"),
        (1, "ended by a signal", "exit status 1"),
        (2, "exit status 0", "exit status 3"),
        (3, "exit status 0", "ended by a signal"),
        (4, "exit status 0", "ended by a signal"),
    ]


def test_a_signal_that_ends_ranks_in_one_of_two_real_runs_is_named_and_no_difference() -> None:
    """The real torch: a process with a gloo group aborts at its exit, now and then."""
    killed = [Difference(rank, "ended by a signal", "exit status 0") for rank in (0, 1)]

    def compared(*found: Difference) -> LauncherCheck:
        return LauncherCheck("torchrun", 2, 9, found)

    check = without_lucky_ends(compared(*killed), compared)
    assert (check.verdict, check.killed) == (Verdict.PASS, (0, 1))
    assert comparison.text(check).endswith("; rank 0, rank 1 ended by a signal in the first of two runs by torchrun")
    again = without_lucky_ends(compared(*killed), lambda: compared(killed[1]))
    assert (again.differences, again.killed) == ((killed[1],), (0,)), "a rank that dies each time differs"
    op_too = compared(*killed, Difference(0, "mkdir ckpt: EEXIST", ""))
    assert without_lucky_ends(op_too, compared) == op_too, "where ops differ, nothing is run again"


def test_the_text_counts_what_it_leaves_out() -> None:
    check = LauncherCheck("torchrun", 2, 9, (Difference(1, "open x: ok, 0", ""),) * 22)
    lines = comparison.text(check).splitlines()
    assert lines[0].startswith("FAIL  torchrun and racecheck do not run this program alike: 2 ranks, 9 ops")
    assert lines[0].endswith("22 differences")
    assert lines[1:3] == ["      rank 1  torchrun   open x: ok, 0", "              racecheck  -"]
    assert lines[-1] == "      2 more"
    assert (check.verdict, comparison.data(check)["verdict"]) == (Verdict.FAIL, "FAIL")
