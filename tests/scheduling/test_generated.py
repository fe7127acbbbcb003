"""Generated programs: a search that says EXHAUSTED has found all that brute force finds.

The judge (`tests.generated.judge`) knows no op and no footprint: every step of every thread is a scheduling point.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.generated import crashes, judge, searching
from tests.generated.drawing import FEATURES
from tests.generated.programs import Failure, Program, dump, load
from tests.generated.relinearising import difference
from tests.generated.tally import Tally, count, program_of, seeds
from tests.support import soak

FIRST, CHUNKS, CHUNK = 150, 2, 300


def check(names: list[str], *, memory: bool = True) -> Tally:
    """Search these programs; a miss fails with the program made small."""
    tally = Tally()
    for name in names:
        count(tally, name, memory=memory)
    for name in tally.missed:
        small = searching.shrunk(program_of(name))
        pytest.fail(f"{name}: {tally.missed[name]}\nmade small, {searching.complaint(small)}:\n{small}\n{dump(small)}")
    return tally


@pytest.fixture(scope="module")
def full() -> Tally:
    """What searches for the full claim found in the first programs."""
    return check(seeds(0, FIRST))


def test_a_proof_misses_no_outcome(full: Tally) -> None:
    print(full)
    for feature in FEATURES:
        assert full.proofs[feature] >= 0.8 * full.programs[feature] > 0, f"{full}: hardly any {feature} is a proof"


def test_nor_does_one_whose_threads_share_only_what_is_controlled(full: Tally) -> None:
    """In these programs they do: each thread sees files, locks, keys, faults, and the ends of others."""
    tally = check(seeds(0, FIRST), memory=False)
    for feature in FEATURES:
        assert tally.proofs[feature] >= 0.8 * tally.programs[feature] > 0, f"{tally}: hardly any {feature} is a proof"
    assert tally.runs < 0.7 * full.runs, "it is the cheaper one"


@pytest.mark.slow
@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_many_programs(chunk: int, memory: bool) -> None:
    print(check(seeds(1_000_000 + chunk * CHUNK, CHUNK), memory=memory))


@pytest.mark.soak
@pytest.mark.parametrize("memory", [True, False])
def test_fresh_programs(memory: bool) -> None:
    for seed in soak.seeds():
        check(seeds(seed, 1), memory=memory)


def test_another_order_of_independent_ops_has_the_same_result() -> None:
    for name in seeds(0, FIRST):
        program = program_of(name)
        assert not difference(program, Random(name)), f"{name}:\n{program}"


def test_a_crash_leaves_what_each_order_of_independent_calls_may_leave() -> None:
    for number in range(100):
        program = crashes.draw(Random(f"crash:{number}"))
        assert crashes.judged(program) <= crashes.searched(program), f"crash:{number}\n{program}"


def test_an_op_that_failed_depends_on_what_it_would_have_touched() -> None:
    """Rank 2's rename, then rank 0's, then rank 1's second file: in that file's way rank 0 fails, and touches less."""
    group = (1, 2)
    makes = (("create", "a"), ("barrier", group), ("create", "b"))
    program = Program(((("rename", "d", "b"),), makes, (("barrier", group), ("rename", "a", "d/x"))), ("d",))
    assert not searching.complaint(program)


def test_a_get_that_waits_in_vain_in_a_run_that_repeats_shows_its_race() -> None:
    """Rank 1's get, after rank 2's delete, waits forever in a run in which only rank 0 could go on, and has been."""
    ranks = ((("check", "n"),), (("get", "k"), ("add", "n", 1)), (("set", "k", "1"), ("delete", "k")))
    assert not searching.complaint(Program(ranks, ("d",)))


def results(*ranks: tuple[tuple[object, ...], ...], **more: object) -> set[object]:
    """What the ranks of a program see, in all its outcomes, by the judge."""
    return {each[0] for each in judge.outcomes(Program(ranks, **more))}  # type: ignore[arg-type]


def test_the_judge_tries_every_order() -> None:
    assert results((("mkdir", "a"),), (("stat", "a"),)) == {("", "directory:0"), ("", "ENOENT")}


def test_the_judge_knows_modes_kinds_and_ranges_of_locks() -> None:
    held = ("flock", "l", "EX", "wait")
    assert results((held,), (("flock", "l", "EX", "try"),)) == {("", ""), ("", "EAGAIN")}
    assert results((("flock", "l", "SH", "wait"),), (("flock", "l", "SH", "try"),)) == {("", "")}
    assert results((held,), (("record", "l", "EX", 0, 1, "try"),)) == {("", "")}
    record = ("record", "l", "EX", 0, 0, "wait")
    assert results((record,), (("record", "l", "EX", 1, 1, "try"),)) == {("", "")}
    assert results((record,), (("record", "l", "EX", 0, 1, "try"),)) == {("", ""), ("", "EAGAIN")}


def test_the_judge_knows_circles_of_record_locks() -> None:
    one, other = (tuple(("record", file, "EX", 0, 0, "wait") for file in files) for files in ("lm", "ml"))
    assert results(one, other) == {("; ", "; "), ("; EDEADLK", "; "), ("; ", "; EDEADLK")}


def test_the_judge_loses_a_lock_that_is_converted_in_vain() -> None:
    share, want = ("flock", "l", "SH", "wait"), ("flock", "l", "EX", "try")
    converts = (share, ("flock", "l", "EX", "wait"))
    assert results(converts, (share, want)) == {("; ", "; "), ("; ", "; EAGAIN")}


def test_the_judge_cuts_a_daemon_thread_anywhere() -> None:
    program = Program(((("daemon", (("mkdir", "a"), ("mkdir", "b"))),),))
    disks = {frozenset(dict(each[1])) - {"l", "m"} for each in judge.outcomes(program)}  # type: ignore[call-overload]
    assert disks == {frozenset(), frozenset("a"), frozenset("ab")}


def test_the_judge_counts_faults_across_ranks() -> None:
    failure = Failure("EIO", "stat", "a", -1, 2)
    found = results((("stat", "a"),), (("stat", "a"),), failures=(failure,))
    assert found == {("EIO", "ENOENT"), ("ENOENT", "EIO")}


def test_the_judge_lets_the_root_go_early_or_not() -> None:
    ranks = ((("broadcast", (0, 1), 0), ("mkdir", "a")), (("stat", "a"), ("broadcast", (0, 1), 0)))
    assert ("; ", "directory:0; ") in results(*ranks)
    assert {each[0] for each in judge.outcomes(Program(ranks), blocking=True)} == {("; ", "ENOENT; ")}


def test_a_thread_that_waits_for_a_key_continues_when_it_is_set() -> None:
    assert results((("get", "k"),), (("set", "k", "1"),)) == {("1", "")}
    assert results((("get", "k"),), ()) == {("stopped", "")}


def test_a_program_can_be_written_down() -> None:
    for name in seeds(0, 40):
        assert load(dump(program_of(name))) == program_of(name)
