"""Invariants of saves, restarts and retention on hand-written outcomes: each has a twin that it finds nothing in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from racecheck.invariants import (
    all_shards_present,
    atomic_publish,
    consistent_weights,
    durable_after_ack,
    error_honesty,
    gc_safety,
    judge,
    latest_consistency,
    liveness,
    monotonic_step,
    name_of,
    no_stale_shards,
    old_survives,
    snapshot_isolation,
)
from racecheck.model.nouns import (
    Crash,
    DiskEntry,
    Event,
    Fault,
    Invariant,
    Mismatch,
    Op,
    Outcome,
    RankResult,
    Result,
    Verdict,
    Violation,
    Weights,
    World,
)
from tests.support.builders import (
    acked,
    collective,
    died,
    loaded,
    metadata,
    op,
    opens,
    outcome,
    piece,
    raised,
    returned,
    saved,
    stopped,
    use,
)

CRASH = Crash("ext4", ())
KILL = op("1 kill b/f1", syscall="SIGKILL", fault="kill")
FULL = op("1 write b/f1", errno="ENOSPC", fault="ENOSPC")
FAULTY = World(faults=(Fault("ENOSPC", ("write",)),))


def messages(invariant: Invariant, judged: Outcome) -> list[str]:
    found = list(invariant(judged))
    assert {each.invariant for each in found} <= {name_of(invariant)}
    return [each.message for each in found]


def only(invariant: Invariant, judged: Outcome) -> Violation:
    (found,) = invariant(judged)
    assert found.invariant == name_of(invariant)
    return found


def reason(invariant: Invariant, judged: Outcome) -> str:
    """Why an invariant cannot judge; it has found nothing."""
    judgement = judge(judged, [invariant])
    assert judgement.verdict is Verdict.UNKNOWN
    return judgement.reasons[0]


def both(step: int, at: str = "", *, event: int = 0) -> tuple[Weights, ...]:
    """Two ranks begin to save a step."""
    return saved(0, step, at, event=event, w=f"w{step}"), saved(1, step, at, event=event, w=f"w{step}")


def two(*weights: Weights, results: tuple[RankResult, ...] = (returned(), returned()), **fields: Any) -> Outcome:
    """What two ranks that said this left."""
    return outcome(*results, weights=weights, **fields)


def pointer_to(target: str, rank: int = 0) -> list[Event]:
    """A symbolic link that is renamed into place."""
    link = op(f"{rank} symlink tmp", result=Result(text=target))
    return [link, op(f"{rank} rename tmp -> latest")]


def gives(*steps: int) -> Outcome:
    """A recovery whose ranks load these steps."""
    weights = tuple(loaded(rank, step, w=f"w{step}") for rank, step in enumerate(steps))
    return outcome(*[returned()] * max(1, len(steps)), weights=weights)


ONE = (*both(1), *acked(1, 0, 1, event=3))
TWO_BEGUN = (*ONE, saved(0, 2, event=4, w="w2"))
TWO = (*ONE, *both(2), *acked(2, 0, 1, event=6))
LOST = [
    (gives(), "nothing was loaded"),
    (gives(1, 0), "rank 1 loaded step 0"),
    (
        outcome(raised("EOFError", "Ran out of input"), returned()),
        "loading failed: EOFError on rank 0: Ran out of input",
    ),
    (outcome(died(signal="SIGSEGV")), "loading failed: rank 0 was killed by SIGSEGV before it returned"),
    (outcome(stopped("collective", "waits")), "loading failed: rank 0 did not end: waits"),
    (
        outcome(stopped("echo"), stopped("echo"), mismatch=Mismatch("0", 1, {0: "barrier()", 1: "all_reduce()"})),
        "the ranks called different collectives while loading",
    ),
]


# Durable after ack; the old one survives.


@pytest.mark.parametrize(("recovery", "found"), LOST)
def test_what_all_ranks_had_saved_is_lost(recovery: Outcome, found: str) -> None:
    at_rest = two(*ONE, crash=CRASH, recovery=recovery)
    lost = only(durable_after_ack, at_rest)
    assert (lost.message, lost.events) == (f"step 1 was saved on all ranks, but then {found}", (2,))
    assert messages(old_survives, at_rest) == []


@pytest.mark.parametrize(("recovery", "found"), LOST)
def test_a_save_under_way_destroys_the_old_one(recovery: Outcome, found: str) -> None:
    for weights in (TWO_BEGUN, (*ONE, *both(2), *acked(2, 1))):
        under_way = two(*weights, crash=CRASH, recovery=recovery)
        assert messages(old_survives, under_way) == [
            f"step 1 was saved on all ranks, step 2 was in progress, but then {found}"
        ]
        assert messages(durable_after_ack, under_way) == []


@pytest.mark.parametrize("invariant", [durable_after_ack, old_survives])
def test_the_old_one_or_a_newer_one_may_load(invariant: Invariant) -> None:
    fine = [(ONE, (1, 1)), (ONE, (1,)), (TWO, (2, 2)), (TWO_BEGUN, (1, 1)), (TWO_BEGUN, (2, 2)), (TWO_BEGUN, (1, 2))]
    for weights, steps in fine:
        assert messages(invariant, two(*weights, crash=CRASH, recovery=gives(*steps))) == []
    assert messages(durable_after_ack, two(*TWO, crash=CRASH, recovery=gives(1, 1))) == [
        "step 2 was saved on all ranks, but then rank 0 loaded step 1"
    ]


@pytest.mark.parametrize("invariant", [durable_after_ack, old_survives])
def test_nothing_is_owed_before_all_ranks_have_saved(invariant: Invariant) -> None:
    for weights in ((), both(1), (*both(1), *acked(1, 0))):
        for recovery in (gives(), gives(0), outcome(raised("EOFError"))):
            assert messages(invariant, two(*weights, crash=CRASH, recovery=recovery)) == []
            assert messages(invariant, two(*weights, trace=[KILL], recovery=recovery)) == []


def test_a_recovery_that_was_given_up_says_nothing() -> None:
    running = outcome(stopped("running"), returned())
    assert messages(durable_after_ack, two(*ONE, recovery=running)) == []


def test_a_load_that_names_no_step_is_of_the_one_that_it_equals() -> None:
    new, old, strange = (outcome(returned(), weights=(loaded(0, w=digest),)) for digest in ("w2", "w1", "w9"))
    assert messages(durable_after_ack, two(*TWO, recovery=new)) == []
    assert messages(durable_after_ack, two(*TWO, recovery=old)) == [
        "step 2 was saved on all ranks, but then rank 0 loaded step 1"
    ]
    assert "did not declare which step" in reason(durable_after_ack, two(*TWO, recovery=strange))


@pytest.mark.parametrize("invariant", [durable_after_ack, old_survives])
def test_durability_needs_acks_and_a_recovery(invariant: Invariant) -> None:
    assert "no recovery" in reason(invariant, two(*ONE))
    assert "Rank.acked" in reason(invariant, two(*both(1), *acked(1, 0), recovery=gives(1, 1)))


def test_after_a_fault_what_was_never_said_is_no_question() -> None:
    for cut in ({"crash": CRASH}, {"trace": [KILL]}):
        assert messages(consistent_weights, two(recovery=gives(), **cut)) == []
        assert messages(snapshot_isolation, two(*both(1), recovery=gives(), **cut)) == []
        assert "saved" in reason(consistent_weights, two(recovery=gives(1), **cut))
    assert "loaded" in reason(consistent_weights, two(*both(1), recovery=gives()))


# Error honesty.


def hit(*weights: Weights, recovery: Outcome | None = None, trace: Iterable[Event] = (), hit: Op = FULL) -> Outcome:
    """The save of step 2 is hit at the first event."""
    return two(*both(2, "b"), *weights, trace=[hit, *trace], recovery=recovery, world=FAULTY)


def test_a_rank_that_fails_in_silence() -> None:
    what = "rank 1's write b/f1 failed (ENOSPC) in the save of step 2, but the save returned there; "
    for recovery, found in (
        (outcome(raised("EOFError")), "the step does not load"),
        (gives(1, 1), "a restart does not find it"),
        (gives(2, 1), "a restart does not find it"),
        (gives(), "a restart does not find it"),
    ):
        broken = only(error_honesty, hit(*acked(2, 0, 1, event=1), recovery=recovery))
        assert (broken.message, broken.ranks, broken.events) == (what + found, (1,), (0,))
    assert "no recovery" in reason(error_honesty, hit(*acked(2, 0, 1, event=1)))


def test_a_rank_may_try_again() -> None:
    assert messages(error_honesty, hit(*acked(2, 0, 1, event=1), recovery=gives(2, 2))) == []


def test_a_rank_that_fails_alone() -> None:
    broken = only(error_honesty, hit(*acked(2, 0, event=1), recovery=gives(2, 2)))
    assert (
        broken.message == "rank 1's write b/f1 failed (ENOSPC) in the save of step 2, but the save returned on rank 0"
    )
    assert broken.ranks == (0, 1)
    assert messages(error_honesty, hit(recovery=gives(1, 1))) == [], "nobody counts on it"


def test_what_failed_is_published_all_the_same() -> None:
    moved = pointer_to("b")
    broken = only(error_honesty, hit(trace=moved))
    assert broken.message == "rank 1's write b/f1 failed (ENOSPC) in the save of step 2, but then latest named it"
    assert (broken.ranks, broken.events) == ((0, 1), (0, 2))
    assert messages(error_honesty, hit(trace=pointer_to("a"))) == []
    before = two(*both(2, "b"), trace=[*moved, FULL], world=FAULTY)
    assert messages(error_honesty, before) == []


@pytest.mark.parametrize("fault", ["short, 3 of 8 B", "torn, 3 of 8 B", "EIO"])
def test_every_call_that_fails_counts(fault: str) -> None:
    assert len(messages(error_honesty, hit(*acked(2, 0, event=1), hit=replace(FULL, fault=fault)))) == 1


@pytest.mark.parametrize("fault", ["slow, 10 s", "stale: no entry yet", ""])
def test_what_is_slow_or_stale_has_not_failed(fault: str) -> None:
    assert messages(error_honesty, hit(*acked(2, 0, event=1), hit=replace(FULL, fault=fault))) == []


def test_only_what_fails_in_a_save_counts() -> None:
    before = two(*both(2, event=1), *acked(2, 0, event=2), trace=[FULL], world=FAULTY)
    after = two(*both(2), *acked(2, 0, 1), trace=[FULL], world=FAULTY, recovery=gives(1))
    other = two(saved(0, 2), *acked(2, 0), trace=[FULL], world=FAULTY)
    killed = hit(*acked(2, 0), hit=KILL)
    for judged in (before, after, other, killed):
        assert messages(error_honesty, judged) == []


def test_honesty_needs_faults_and_saves() -> None:
    assert "no fault" in reason(error_honesty, two(*both(1)))
    assert "Rank.saved" in reason(error_honesty, two(world=FAULTY))


# Liveness.


def test_the_next_save_after_a_fault_succeeds() -> None:
    gone_on = (*both(1), *both(2, event=1))
    failed = two(*gone_on, *acked(2, 0), trace=[FULL], results=(returned(), raised("FileExistsError", "b.tmp")))
    broken = only(liveness, failed)
    assert broken.message == "the save of step 2 did not return on rank 1: FileExistsError on rank 1: b.tmp"
    assert broken.ranks == (1,)
    assert messages(liveness, two(*gone_on, *acked(2, 0, 1), trace=[FULL])) == [], "step 1 was under way at the fault"


def test_a_rank_that_is_gone_cannot_save() -> None:
    alone = two(
        saved(0, 2, event=1), trace=[KILL], results=(stopped("echo"), died(signal="SIGKILL")), recovery=TWO_SAVED
    )
    assert messages(liveness, alone) == []


TWO_SAVED = outcome(returned(), returned(), weights=(*both(3), *acked(3, 0, 1)))


def test_what_only_returned_did_not_begin_here() -> None:
    assert messages(liveness, two(*acked(1, 0, 1), recovery=TWO_SAVED)) == []


def test_the_recovery_saves_again() -> None:
    stuck = outcome(stopped("lock", "waits for .lock"), returned(), weights=(*both(3), *acked(3, 1)))
    for cut in ({"crash": CRASH}, {"trace": [KILL]}, {}):
        assert messages(liveness, two(recovery=stuck, **cut)) == [
            "the save of step 3 in the recovery did not return on rank 0: rank 0 did not end: waits for .lock"
        ]
        assert messages(liveness, two(recovery=TWO_SAVED, **cut)) == []


def test_liveness_needs_a_save_after_the_fault() -> None:
    for recovery in (None, gives(1)):
        assert "no save follows" in reason(liveness, two(*both(1), trace=[FULL], recovery=recovery))
    assert "no save follows" in reason(liveness, two(*both(2), crash=CRASH, recovery=gives(1))), "it was cut"


# Retention.

RM_A = op("0 unlink a/f0", inode=5)
OLD = (*both(1, "a"), *acked(1, 0, 1, at="a"))


def test_the_last_checkpoint_is_deleted() -> None:
    for trace, weights in (
        ([RM_A], OLD),
        ([RM_A], (*OLD, *both(2, "b"), *acked(2, 0, at="b"))),
        ([RM_A, op("0 rmdir a", inode=4)], (*OLD, *both(2, "b"), *acked(2, 0, 1, at="b", event=1))),
        ([op("0 rename a -> a.old", inode=4), op("0 unlink a.old/f0", inode=5)], OLD),
    ):
        broken = only(gc_safety, two(*weights, trace=trace))
        assert broken.message.endswith("the only checkpoint that all ranks had saved (step 1)")
        assert broken.ranks == (0,)
    assert only(gc_safety, two(*OLD, trace=[RM_A])).message.startswith("rank 0 deletes a, ")


def test_an_old_one_may_go_when_all_have_a_newer_one() -> None:
    newer = (*OLD, *both(2, "b"), *acked(2, 0, 1, at="b", event=1))
    for trace, weights in (
        ([op("0 mkdir b"), RM_A, op("0 rmdir a", inode=4)], newer),
        ([op("0 unlink b/f0", inode=7), RM_A], newer),
        ([op("0 unlink a/f0.tmp", inode=5), op("0 unlink a/.tmp1/f0", inode=5), op("0 unlink ab/f0", inode=5)], OLD),
        ([op("0 unlink a/f0", errno="ENOENT"), op("0 rename a.tmp -> a/f0")], OLD),
    ):
        assert messages(gc_safety, two(*weights, trace=trace)) == []


WRITE_B: list[Op] = [opens("1 open b/f1", "w"), use("1 write b/f1", 3, inode=8, size=4)]


def test_a_save_may_delete_the_old_one_after_the_last_change_to_its_own() -> None:
    weights = (*OLD, *both(2, "b"), *acked(2, 0, 1, at="b", event=9))
    removed = [RM_A, op("0 rmdir a", inode=4)]
    for last in ([], [op("1 rename b.tmp -> b", inode=9)], [op("0 rename b/f.tmp -> b/f", inode=9)]):
        assert messages(gc_safety, two(*weights, trace=[*WRITE_B, *last, *removed])) == []
        assert len(messages(gc_safety, two(*weights, trace=[*WRITE_B, *removed, *last]))) == bool(last)
    assert len(messages(gc_safety, two(*weights, trace=[*removed, *WRITE_B]))) == 1
    late = (*OLD, saved(0, 2, "b", w="w2"), saved(1, 2, "b", event=5, w="w2"), *acked(2, 0, 1, at="b", event=9))
    assert len(messages(gc_safety, two(*late, trace=[*WRITE_B, *removed]))) == 1, "rank 1 has not begun"


def test_a_kill_after_the_deletion_leaves_the_new_one_complete_if_it_was_written_before() -> None:
    weights = (*OLD, *both(2, "b"))
    written = [replace(each, clock={each.thread: number}) for number, each in enumerate(WRITE_B, 1)]
    for seen, violations in ((2, 0), (1, 1)):
        removed = replace(RM_A, clock={RM_A.thread: 1, WRITE_B[0].thread: seen})
        assert len(messages(gc_safety, two(*weights, trace=[*written, removed, KILL]))) == violations
        for other in ([], [replace(KILL, fault="EIO", call="write")]):
            assert len(messages(gc_safety, two(*weights, trace=[*written, removed, *other]))) == 1, "nothing was killed"
        assert len(messages(gc_safety, two(*weights, trace=[*written, KILL, removed]))) == 1, "killed while it wrote"


def test_what_the_pointer_names_is_deleted() -> None:
    newer = (*OLD, *both(2, "b"), *acked(2, 0, 1, at="b"))
    broken = only(gc_safety, two(*newer, trace=[*pointer_to("a"), RM_A, op("0 rmdir a", inode=4)]))
    assert (broken.message, broken.events) == ("rank 0 deletes a while latest names it", (1, 2))
    temporary = [*pointer_to("a"), op("0 unlink a/f0.tmp", inode=5)]
    assert messages(gc_safety, two(*newer, trace=temporary)) == []
    moved_on = [*pointer_to("a"), *pointer_to("b"), RM_A]
    assert messages(gc_safety, two(*newer, trace=moved_on)) == []


def test_what_another_rank_reads_is_deleted() -> None:
    newer = (*OLD, *both(2, "b"), *acked(2, 0, 1, at="b"))
    reading: list[Event] = [opens("1 open a/f1", "r", inode=6), use("1 read a/f1", 3, inode=6, size=4)]
    for trace in (reading[:1], reading):
        broken = only(gc_safety, two(*newer, trace=[*trace, RM_A]))
        assert broken.message == "rank 0 deletes a while rank 1 reads a/f1"
        assert (broken.ranks, broken.events) == ((0, 1), (0, len(trace)))
    closed = [*reading, use("1 close a/f1", 3, inode=6), RM_A]
    own = [opens("0 open a/f1", "r", inode=6), RM_A]
    writing = [opens("1 open a/f1", "r+", inode=6), RM_A]
    listing = opens("1 open a", "r", inode=4)
    directory = [replace(listing, places=(replace(listing.places[0], kind="directory"),)), RM_A]
    elsewhere = [opens("1 open b/f1", "r", inode=8), RM_A]
    for fine in (closed, own, writing, directory, elsewhere):
        assert messages(gc_safety, two(*newer, trace=fine)) == []


def test_retention_needs_to_know_where_checkpoints_are() -> None:
    for weights in ((), (*both(1), *acked(1, 0, 1)), (*both(1), *acked(1, 0, at="a"))):
        assert "Rank.acked with at" in reason(gc_safety, two(*weights, trace=[RM_A]))
        assert messages(gc_safety, two(*weights, trace=[KILL])) == []


# What one node sees.

NODES = World(ranks=2, nodes=2)
ONE_NODE = World(ranks=2, nodes=1)


def test_a_rank_loads_an_older_step_than_before() -> None:
    back = (loaded(1, 2, event=1), loaded(1, 1, event=2))
    trace: list[Event] = [op("1 open b"), op("1 open a")]
    broken = only(monotonic_step, two(*back, trace=trace, world=NODES))
    assert (broken.message, broken.ranks, broken.events) == (
        "rank 1 loaded step 1 after it had loaded step 2",
        (1,),
        (0, 1),
    )
    assert messages(monotonic_step, two(*reversed(back), world=NODES)) == []
    there = two(recovery=two(*back, trace=trace))
    assert only(monotonic_step, there).message.endswith("loaded step 2 (in the recovery)")
    assert messages(monotonic_step, two(back[0], trace=trace, recovery=two(loaded(1, 1)))) == [], "a crash may go back"


def test_a_node_loads_an_older_step_than_before() -> None:
    back = (loaded(0, 2, event=1), loaded(1, 1, event=3))
    later: list[Event] = [op("0 open b"), collective(), op("1 open a")]
    assert messages(monotonic_step, two(*back, trace=later, world=ONE_NODE)) == [
        "rank 1 loaded step 1 after rank 0 had loaded step 2"
    ]
    assert messages(monotonic_step, two(*back, trace=later, world=NODES)) == [], "another node"
    overlapping: list[Event] = [op("1 stat a"), op("0 open b"), op("1 open a")]
    assert messages(monotonic_step, two(loaded(0, 2, event=2), back[1], trace=overlapping, world=ONE_NODE)) == []


def test_only_what_is_loaded_can_go_back() -> None:
    assert len(messages(monotonic_step, two(loaded(1, 1), loaded(1, 0)))) == 1
    assert messages(monotonic_step, two(loaded(1, 1), loaded(1, 1))) == []
    assert messages(monotonic_step, two(*both(2), loaded(1, 1), *both(0))) == []


def test_a_load_begins_after_its_rank_has_spoken_last() -> None:
    trace: list[Event] = [op("1 open a"), op("0 open b"), op("1 open a")]
    early, between, late = loaded(1, 1, event=1), loaded(0, 2, event=2), loaded(1, 1, event=3)
    assert messages(monotonic_step, two(early, between, late, trace=trace, world=ONE_NODE)) == [
        "rank 1 loaded step 1 after rank 0 had loaded step 2"
    ]
    assert messages(monotonic_step, two(between, late, trace=trace, world=ONE_NODE)) == [], "it may have begun before"


def test_loads_in_an_unknown_order_are_not_compared() -> None:
    assert messages(monotonic_step, two(loaded(0, 2), loaded(1, 1))) == [], "a run without control has no trace"
    assert len(messages(monotonic_step, two(loaded(0, 2), loaded(0, 1)))) == 1
    told: list[Event] = [op("0 open b")]
    assert messages(monotonic_step, two(loaded(0, 2, event=1), loaded(1, 1, event=1), trace=told)) == []


def test_a_load_without_a_step_is_not_compared() -> None:
    assert messages(monotonic_step, two(loaded(1, 2), loaded(1))) == []
    assert "Rank.loaded" in reason(monotonic_step, two(*both(1)))
    assert messages(monotonic_step, two(*both(1), trace=[KILL])) == []


def sees(label: str, text: str = "", *, errno: str = "", fault: str = "stale: as it was", **clock: int) -> Op:
    """A look by a thread after a number of events of others: ``t0=4``, four of thread 0."""
    known = {name.removeprefix("t"): count for name, count in clock.items()}
    return op(label, result=Result(errno=errno, text=text), fault=fault, clock=known)


PUBLISHED: list[Event] = [
    replace(each, clock={"0": number}) if isinstance(each, Op) else each
    for number, each in enumerate([*pointer_to("a"), *pointer_to("b")], 1)
]


@pytest.mark.parametrize(
    ("look", "seen"),
    [
        (sees("1 readlink latest", "a", t0=4, t1=1), "saw latest name a"),
        (sees("1 stat latest", errno="ENOENT", t0=4, t1=1), "saw no latest"),
        (sees("1 open latest", errno="ENOENT", t0=4, t1=1), "saw no latest"),
        (sees("0 read latest", "a\n", t0=5), "saw latest name a"),
    ],
)
def test_a_look_shows_less_than_was_published_before_its_turn(look: Op, seen: str) -> None:
    broken = only(latest_consistency, two(trace=[*PUBLISHED, look, look], world=NODES))
    assert broken.message == f"rank {look.rank} {seen}, although rank 0 had already made it name b"
    assert broken.events == (3, 4)
    concurrent = replace(look, clock={"0": 1, "1": 1})
    if look.rank:
        assert messages(latest_consistency, two(trace=[*PUBLISHED, concurrent], world=NODES)) == []


def test_a_node_sees_less_than_it_has_seen() -> None:
    new, old = sees("0 readlink latest", "b", fault="", t2=1), sees("1 readlink latest", "a", t1=1)
    assert messages(latest_consistency, two(trace=[*PUBLISHED, replace(new, clock={}), old], world=ONE_NODE)) == [
        "rank 1 saw latest name a, although its node had already seen a newer one"
    ]
    assert messages(latest_consistency, two(trace=[*PUBLISHED, replace(new, clock={}), old], world=NODES)) == []
    assert messages(latest_consistency, two(trace=[*PUBLISHED, old, new], world=ONE_NODE)) == []


def test_a_present_object_is_never_too_old() -> None:
    removed: list[Event] = [*PUBLISHED, op("0 unlink latest", inode=3), sees("1 stat latest", errno="ENOENT", t0=5)]
    again: list[Event] = [*PUBLISHED, *pointer_to("a"), sees("1 readlink latest", "a", t0=6)]
    for trace in (removed, again):
        assert messages(latest_consistency, two(trace=trace, world=NODES)) == []
    assert "no rank published" in reason(latest_consistency, two())
    assert messages(latest_consistency, two(trace=[KILL])) == []


# Stale shards.


def test_shards_of_a_larger_world_stay_behind() -> None:
    disk = ["a/.metadata", *(f"a/__{rank}_0.distcp" for rank in range(4)), "a/notes.txt", "b/__3_0.distcp"]
    trace: list[Event] = [
        opens("0 open a/__2_0.distcp", "w"),
        opens("0 open a/__0_0.distcp", "w"),
        opens("1 open a/__1_0.distcp", "w"),
    ]
    judged = two(*both(1, "a", event=1), trace=trace, disk=disk)
    assert messages(no_stale_shards, judged) == ["a: the save of step 1 did not write a/__2_0.distcp, a/__3_0.distcp"]
    assert messages(no_stale_shards, two(*both(1, "a"), trace=trace, disk=disk[:4])) == []
    assert messages(no_stale_shards, replace(judged, results=(returned(), raised("OSError")))) == [], "it has failed"
    assert messages(no_stale_shards, two(*both(1, "a"), trace=[op("0 rename t -> a", inode=3)], disk=disk)) == []
    assert "Rank.saved with at" in reason(no_stale_shards, two(*both(1)))


# Checkpoints after a crash.

LACKING = metadata(piece("w", "a/__0_0.distcp", "__0_0.distcp is missing"))


def test_after_a_crash_only_what_was_saved_has_to_be_whole() -> None:
    for cut in ({"crash": CRASH}, {"trace": [KILL]}):
        for weights in ((), both(1, "a"), (*both(1, "b"), *acked(1, 0, 1, at="b"))):
            assert messages(all_shards_present, two(*weights, contents={"a/.metadata": LACKING}, **cut)) == []
        saved_ = two(*both(1, "a"), *acked(1, 0, 1), contents={"a/.metadata": LACKING}, **cut)
        assert messages(all_shards_present, saved_) == ["a: __0_0.distcp is missing (w)"]
        assert messages(all_shards_present, two(disk=["a/__0_0.distcp"], **cut)) == []


def test_after_a_crash_the_pointer_says_what_survived_of_it() -> None:
    old, new = (DiskEntry("file", 2, hashlib.sha256(text).hexdigest()) for text in (b"a\n", b"b\n"))
    trace: list[Event] = [
        opens("0 open t", "w"), use("0 write t", 1, inode=3, text="a\n"), op("0 rename t -> latest"),
        opens("0 open t", "w"), use("0 write t", 2, inode=4, text="b\n"), op("0 rename t -> latest"),
    ]  # fmt: skip
    gone = DiskEntry("directory")
    for entry, there, found in (
        (old, "a", []),
        (new, "b", []),
        (old, "b", ["at the end latest names a, which does not exist"]),
        (new, "a", ["at the end latest names b, which does not exist"]),
        (DiskEntry("file", 0, ""), "a", ["latest is empty at the end"]),
        (DiskEntry("file", 2, "torn"), "a", []),
    ):
        crashed = two(trace=trace, disk={"latest": entry, there: gone}, crash=CRASH)
        assert messages(atomic_publish, crashed) == found
    assert messages(atomic_publish, two(crash=CRASH)) == []


def test_after_a_crash_what_ranks_did_before_is_not_judged_again() -> None:
    late = [*pointer_to("a"), opens("1 open a/f1", "w")]
    link = DiskEntry("symlink", target="a")
    disk = {"latest": link, "a": DiskEntry("directory")}
    assert len(messages(atomic_publish, two(trace=late, disk=disk))) == 1
    assert messages(atomic_publish, two(trace=late, disk=disk, crash=CRASH)) == []
