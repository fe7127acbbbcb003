"""Invariants of checkpoints on hand-written outcomes: each has a twin that it finds nothing in."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from racecheck.invariants import (
    DEFAULT,
    all_shards_present,
    atomic_publish,
    consistent_weights,
    judge,
    name_of,
    no_torn_files,
    nothing_outside,
    reads_contents,
    recovers,
    same_checkpoint,
    snapshot_isolation,
    wants_contents,
)
from racecheck.invariants.checkpoints import FOREIGN, TOO_LARGE, UNSUPPORTED
from racecheck.model.nouns import (
    Content,
    Crash,
    DiskEntry,
    Event,
    Invariant,
    Mismatch,
    Op,
    Outcome,
    Verdict,
    Violation,
    World,
)
from racecheck.targets.suite.load_invariants import newest_loads
from tests.support.builders import (
    acked,
    loaded,
    metadata,
    op,
    opens,
    outcome,
    piece,
    place,
    raised,
    returned,
    saved,
    stopped,
    use,
)

TWO_NODES = World(ranks=4, nodes=2, storage="node-local")


def messages(invariant: Invariant, judged: Outcome) -> list[str]:
    return [each.message for each in invariant(judged)]


def only(invariant: Invariant, judged: Outcome) -> Violation:
    (found,) = invariant(judged)
    assert found.invariant == name_of(invariant)
    return found


def two(trace: list[Event] | None = None, **fields: Any) -> Outcome:
    """What two ranks that returned left."""
    return outcome(returned(), returned(), trace=trace or [], **fields)


def reason(invariant: Invariant, judged: Outcome) -> str:
    """Why an invariant cannot judge; it has found nothing."""
    judgement = judge(judged, [invariant])
    assert judgement.verdict is Verdict.UNKNOWN
    return judgement.reasons[0]


# Shards.

WHOLE = metadata(piece("w", "ckpt/__0_0.distcp"), piece("b", "ckpt/__1_0.distcp"))
LACKING = metadata(
    piece("w", "ckpt/__0_0.distcp"),
    piece("b", "ckpt/__1_0.distcp", "__1_0.distcp is missing"),
    piece("c", "ckpt/__1_0.distcp", "__1_0.distcp is missing"),
)
ON_DISK = ["ckpt", "ckpt/.metadata", "ckpt/__0_0.distcp", "ckpt/__1_0.distcp"]


def test_a_whole_checkpoint_has_all_its_shards() -> None:
    judged = two(contents={"ckpt/.metadata": WHOLE, "model.pt": Content("torch")}, disk=ON_DISK)
    assert messages(all_shards_present, judged) == []


def test_a_missing_shard_is_named_with_its_tensors_and_the_last_rank_that_touched_it() -> None:
    trace: list[Event] = [
        op("1 open ckpt/__1_0.distcp", flags=("O_CREAT", "O_WRONLY")),
        op("0 unlink ckpt/__1_0.distcp", errno="ENOENT"),
        op("0 unlink ckpt/__1_0.distcp", inode=3),
        op("1 stat ckpt/__1_0.distcp", errno="ENOENT"),
    ]
    found = only(all_shards_present, two(trace, contents={"ckpt/.metadata": LACKING}))
    assert found.message == "ckpt: __1_0.distcp is missing (b, c)"
    assert (found.ranks, found.events) == ((0,), (2,))


def test_the_removal_of_a_directory_touches_its_files() -> None:
    trace: list[Event] = [op("1 rename ckpt -> old", inode=3), op("0 rename ckpt_1 -> ckpt"), op("1 mkdir ckpt_2")]
    found = only(all_shards_present, two(trace, contents={"ckpt/.metadata": LACKING}))
    assert (found.ranks, found.events) == ((0,), (1,))


def test_one_violation_for_each_directory_names_at_most_five_things() -> None:
    many = metadata(*(piece(f"w{number}", f"a/f{number}", f"f{number} is cut") for number in range(7)))
    cut = metadata(problem="truncated: only 3 bytes are there")
    judged = two(contents={"a/.metadata": many, "b/.metadata": cut, "c/x.pt": Content("torch", "it is empty")})
    assert messages(all_shards_present, judged) == [
        "a: f0 is cut (w0), f1 is cut (w1), f2 is cut (w2), f3 is cut (w3), f4 is cut (w4) and 2 more",
        "b: .metadata: truncated: only 3 bytes are there",
        "c: x.pt: it is empty",
    ]


def test_a_checkpoint_that_is_not_in_a_directory() -> None:
    judged = two(
        contents={"model.pt": Content("torch", "is missing"), "a.safetensors": Content("safetensors", "it is empty")}
    )
    assert messages(all_shards_present, judged) == [".: a.safetensors: it is empty, model.pt is missing"]


def test_shards_without_metadata_are_no_checkpoint() -> None:
    judged = two(disk=["ckpt", "ckpt/__0_0.distcp", "ckpt/__1_0.distcp"])
    assert messages(all_shards_present, judged) == ["ckpt: it has __0_0.distcp, __1_0.distcp but no .metadata"]
    described = two(disk=[*ON_DISK, "b/__0_0.distcp", "b/__0.metadata"], contents={"ckpt/.metadata": WHOLE})
    assert messages(all_shards_present, described) == [], "each rank may have its own metadata"


def test_each_node_is_judged_by_its_own_disk() -> None:
    there = metadata(
        piece("w", "node0/ckpt/__0_0.distcp"),
        piece("b", "node0/ckpt/__2_0.distcp", "__2_0.distcp is missing"),
    )
    trace: list[Event] = [
        op("0 open ckpt/__0_0.distcp", flags=("O_CREAT",)),
        op("2 open ckpt/__2_0.distcp", flags=("O_CREAT",)),
    ]
    judged = outcome(
        *[returned()] * 4,
        trace=trace,
        world=TWO_NODES,
        contents={"node0/ckpt/.metadata": there},
        disk=["node0/ckpt/.metadata", "node0/ckpt/__0_0.distcp", "node1/ckpt/__2_0.distcp"],
    )
    found = only(all_shards_present, judged)
    assert found.message == ("ckpt: on node 0 __2_0.distcp is missing (b), node 1 has __2_0.distcp but no .metadata")
    assert (found.ranks, found.events) == ((2,), (1,))
    shared = replace(judged, world=World(ranks=4))
    assert messages(all_shards_present, shared) != [found.message]


def test_nodes_that_each_have_all_are_fine() -> None:
    contents = {f"node{node}/ckpt/.metadata": metadata(piece("w", f"node{node}/ckpt/__0_0.distcp")) for node in (0, 1)}
    disk = [f"node{node}/ckpt/{name}" for node in (0, 1) for name in (".metadata", "__0_0.distcp")]
    judged = outcome(*[returned()] * 4, world=TWO_NODES, contents=contents, disk=disk)
    assert messages(all_shards_present, judged) == []


def test_what_has_a_temporary_name_is_no_checkpoint_yet() -> None:
    torn = Content("torch", "it is empty")
    judged = two(
        contents={"ckpt/.metadata": WHOLE, "model.pt.tmp": torn, "step_2.tmp/model.pt": torn},
        disk=[*ON_DISK, "step_2.tmp/__0_0.distcp"],
    )
    assert messages(all_shards_present, judged) == []
    alone = two(contents={"model.pt.tmp": torn}, disk=["model.pt.tmp"])
    assert "not judged, since its name looks temporary: model.pt.tmp: it is empty" in reason(all_shards_present, alone)
    nothing = two(disk=["model.tmp"])
    assert "no checkpoint to judge" in reason(all_shards_present, nothing)


def test_a_checkpoint_that_ranks_name_is_judged_whatever_its_name() -> None:
    torn, at = Content("torch", "it is empty"), "tmp_run/step_2"
    for weights in ((saved(0, 2, at, w="w2"),), (loaded(0, 2, at=at, w="w2"),)):
        judged = two(contents={f"{at}/model.pt": torn, f"{at}/a.tmp": torn}, disk=[f"{at}/model.pt"], weights=weights)
        assert messages(all_shards_present, judged) == [f"{at}: model.pt: it is empty"]


def test_a_whole_checkpoint_with_a_temporary_name_is_whole() -> None:
    there = metadata(piece("w", "tmp_run/__0_0.distcp"))
    judged = two(contents={"tmp_run/.metadata": there}, disk=["tmp_run/.metadata", "tmp_run/__0_0.distcp"])
    assert messages(all_shards_present, judged) == []


@pytest.mark.parametrize("why", [f"holds a.B, {FOREIGN}", f"it has 9 bytes, {TOO_LARGE}", f"by a; {UNSUPPORTED}"])
def test_what_cannot_be_read_here_leaves_it_open(why: str) -> None:
    open_ = {"a.bin": Content("torch", why), "ckpt/.metadata": metadata(piece("w", "ckpt/f", f"f: {why}"))}
    said = reason(all_shards_present, two(contents=open_))
    assert "LookupError: not judged: a.bin: " in said
    assert "ckpt: f: " in said
    worse = two(contents={**open_, "b.pt": Content("torch", "it is empty")})
    judgement = judge(worse, [all_shards_present])
    assert judgement.verdict is Verdict.FAIL
    assert [each.message for each in judgement.violations] == [".: b.pt: it is empty"]


def test_without_a_checkpoint_nothing_is_judged() -> None:
    nothing = "no checkpoint to judge: no DCP metadata and no torch.save file"
    assert nothing in reason(all_shards_present, two(disk=["ckpt", "ckpt/config.json"]))
    assert "were not read" in reason(all_shards_present, two(disk=ON_DISK))


def test_an_invariant_that_reads_contents_is_marked() -> None:
    assert wants_contents([nothing_outside, partial(partial(all_shards_present))])
    assert not wants_contents(DEFAULT)
    assert not wants_contents([])

    @reads_contents
    def own(judged: Outcome) -> Any:
        return iter(())

    assert wants_contents([own])
    assert name_of(own) == "own"


# Recovery.


def test_a_recovery_in_which_a_rank_fails_is_named_with_how() -> None:
    missing = raised("FileNotFoundError", "[Errno 2] No such file: 'ckpt'", errno="ENOENT", path="ckpt")
    echo = raised("RuntimeError", "Connection closed by peer", echo=True)
    judged = two(recovery=outcome(missing, echo, returned()))
    found = only(recovers, judged)
    assert found.message == "the recovery failed: FileNotFoundError on rank 0: [Errno 2] No such file: 'ckpt'"
    assert found.ranks == (0,)
    assert only(recovers, two(recovery=outcome(stopped("collective", "waits in barrier #1")))).ranks == (0,)


def test_a_recovery_with_different_collectives_failed() -> None:
    mismatch = Mismatch("0", 0, {1: "barrier()", 0: "send()"})
    judged = two(recovery=outcome(stopped("echo"), stopped("echo"), mismatch=mismatch))
    assert only(recovers, judged).ranks == (0, 1)


def test_a_recovery_that_succeeds_or_is_not_there_is_fine() -> None:
    assert recovers in DEFAULT
    assert messages(recovers, two()) == []
    assert messages(recovers, two(recovery=two())) == []
    assert messages(recovers, outcome(raised("EOFError"), recovery=two())) == [], "the run itself may have failed"


def test_what_is_doubtful_of_a_recovery_is_a_doubt() -> None:
    slow = two(recovery=outcome(stopped("running", "still going after 9 ops")))
    judgement = judge(slow, [recovers])
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.reasons == ("in the recovery: rank 0 did not end: still going after 9 ops",)


# Weights.

SAVED = (
    saved(0, 1, a="a1", b="b1"),
    saved(1, 1, a="a1", r="r1"),
    saved(0, 2, a="a2", b="b2"),
    saved(1, 2, a="a2", r="r2"),
)


def recovering(*loads: Any, before: Any = SAVED, ranks: int = 2) -> Outcome:
    return two(weights=before, recovery=outcome(*[returned()] * ranks, weights=loads))


@pytest.mark.parametrize(
    "loads",
    [
        [loaded(0, a="a1", b="b1"), loaded(1, a="a1", r="r1")],
        [loaded(0, 2, a="a2", b="b2"), loaded(1, 2, a="a2", r="r2")],
        [loaded(0, 1, a="a1", b="b1"), loaded(0, 2, a="a2", b="b2"), loaded(1, 2, a="a2", r="r2")],
    ],
)
def test_what_was_saved_may_be_loaded(loads: list[Any]) -> None:
    for invariant in (consistent_weights, snapshot_isolation):
        assert messages(invariant, recovering(*loads)) == []
        assert messages(invariant, two(weights=(*SAVED, *loads))) == []


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (loaded(0, a="a1", b="b2"), "loaded a mix of step 1 (a) and step 2 (b)"),
        (loaded(0, 2, a="a1", b="b2"), "loaded a mix of step 1 (a) and step 2 (b)"),
        (loaded(0, 2, a="a1", b="b1"), "declared step 2 but loaded step 1"),
        (loaded(0, 3, a="a2", b="b2"), "loaded step 3, which no rank declared as saved"),
        (loaded(0, a="a2", b="xx"), "loaded b with values of no saved step"),
        (loaded(0, a="a2", b="b2", c="c"), "loaded c, which was never saved"),
        (loaded(0, a="a2"), "loaded step 2 without b"),
        (loaded(0, 2), "loaded step 2 without a, b"),
        (
            loaded(0, a="a1", b="b2", c="c"),
            "loaded a mix of step 1 (a) and step 2 (b); loaded c, which was never saved",
        ),
        (loaded(1, a="b2", r="r2"), "loaded a with values of no saved step"),
    ],
)
def test_a_load_that_was_not_saved_is_reported(load: Any, message: str) -> None:
    rank = load.rank
    found = only(consistent_weights, recovering(load))
    assert (found.message, found.ranks, found.events) == (f"rank {rank} {message} (in the recovery)", (rank,), ())
    here = only(consistent_weights, two([op("0 mkdir a"), op("0 mkdir b")], weights=(*SAVED, replace(load, event=2))))
    assert (here.message, here.events) == (f"rank {rank} {message}", (1,))


AGAIN = (
    saved(0, 1, a="a", b="b"), saved(1, 1, a="a", b="b"), *acked(1, 0, 1),
    saved(0, 1, a="A", b="B"), saved(1, 1, a="A", b="B"), *acked(1, 0, 1),
)  # fmt: skip
"""A step that is saved twice."""


def test_a_mix_of_two_saves_of_one_step_is_reported() -> None:
    for fine in (loaded(0, 1, a="a", b="b"), loaded(0, 1, a="A", b="B")):
        assert messages(consistent_weights, recovering(fine, before=AGAIN)) == []
    found = messages(consistent_weights, recovering(loaded(0, 1, a="a", b="B"), before=AGAIN))
    assert found == ["rank 0 loaded step 1 as a mix of its first (a) and second (b) save (in the recovery)"]


def test_what_a_rank_saves_in_two_parts_is_one_save() -> None:
    parts = (saved(0, 1, a="a"), saved(0, 1, b="b"))
    assert messages(consistent_weights, recovering(loaded(0, 1, a="a", b="b"), before=parts, ranks=1)) == []


def test_a_mix_with_what_the_restarted_job_has_saved_is_reported() -> None:
    load = loaded(0, 1, a="new", b="b")
    job = outcome(returned(), returned(), weights=(saved(0, 1, a="new", b="newer"), load))
    found = messages(consistent_weights, two(weights=AGAIN[:4], recovery=job))
    assert found == [
        "rank 0 loaded a as the restarted job had saved it, and the rest as the job before it had (in the recovery)"
    ]


@pytest.mark.parametrize(
    ("before", "job", "is_stale"),
    [
        (AGAIN, (loaded(0, 1, a="a", b="b"),), True),
        (AGAIN, (loaded(0, 1, a="A", b="B"),), False),
        (AGAIN[:5], (loaded(0, 1, a="a", b="b"),), False),
        (AGAIN[:7], (loaded(0, 1, a="a", b="b"),), False),
        (AGAIN[:4], (*AGAIN[4:], loaded(0, 1, a="a", b="b")), True),
        (AGAIN[:4], (*AGAIN[4:], loaded(0, 1, a="A", b="B")), False),
        (AGAIN[:4], (loaded(0, 1, a="a", b="b"), *AGAIN[4:]), False),
    ],
)
def test_what_was_saved_again_loads_as_it_was_saved_last(before: Any, job: Any, is_stale: bool) -> None:
    numbered = [replace(each, event=(each.kind == "loaded") != (job[0].kind == "loaded")) for each in job]
    looks = [op("0 stat x"), op("0 stat x")]
    recovery = outcome(returned(), returned(), trace=looks, weights=numbered)
    found = messages(newest_loads, two(weights=before, recovery=recovery))
    said = "all ranks had saved step 1 again, but then rank 0 loaded what it was before (in the recovery)"
    assert found == [said] * is_stale


def rows(*blocks: str) -> str:
    """The digest of a tensor of 128 rows in blocks of 16."""
    return f"{'-'.join(blocks):0<16}:128:{''.join(f'{each:0<6}' for each in blocks)}"


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ("22222211", "rows 0-95 of step 2, 96-127 of step 1"),
        ("1xxx2222", "rows 0-15 of step 1, 16-63 of no saved step, 64-127 of step 2"),
        ("xxxxxxxx", "values of no saved step"),
    ],
)
def test_a_tensor_that_mixes_steps_is_described_by_its_rows(blocks: str, said: str) -> None:
    before = tuple(saved(0, step, w=rows(*str(step) * 8)) for step in (1, 2))
    found = messages(consistent_weights, recovering(loaded(0, w=rows(*blocks)), before=before, ranks=1))
    assert found == [f"rank 0 loaded w with {said} (in the recovery)"]


OWN = (saved(0, 1, own="x0"), saved(1, 1, own="x1"))


def test_a_rank_gets_its_own_back() -> None:
    assert messages(consistent_weights, recovering(loaded(0, own="x0"), loaded(1, own="x1"), before=OWN)) == []
    found = only(consistent_weights, recovering(loaded(0, own="x0"), loaded(1, own="x0"), before=OWN))
    assert found.message == "rank 1 loaded rank 0's own instead of its own (in the recovery)"
    larger = [loaded(rank, own="x0") for rank in range(3)]
    assert messages(consistent_weights, recovering(*larger, before=OWN, ranks=3)) == []


def test_a_rank_that_saved_nothing_gets_what_another_saved() -> None:
    one = (saved(0, 1, w="w1"), saved(0, 2, w="w2"))
    assert messages(consistent_weights, recovering(loaded(0, w="w2"), loaded(1, w="w2"), before=one)) == []
    found = only(consistent_weights, recovering(loaded(0, w="w2"), loaded(1, w="w1"), before=one))
    assert found.message == (
        "the ranks continue from different steps: rank 0 loaded step 2; rank 1 loaded step 1 (in the recovery)"
    )
    assert found.ranks == (0, 1)
    gone = two(weights=one, recovery=outcome(returned(), raised("X"), weights=(loaded(0, w="w2"), loaded(1, w="w1"))))
    assert messages(consistent_weights, gone) == [], "one that has failed goes on from nothing"
    later = [loaded(0, w="w1"), loaded(0, w="w2"), loaded(1, w="w2")]
    assert messages(consistent_weights, recovering(*later, before=one)) == [], "the last load counts"


def test_steps_that_digests_do_not_tell_apart_are_no_mix() -> None:
    frozen = (saved(0, 1, f="f", w="w1"), saved(0, 2, f="f", w="w2"), saved(0, 3, f="f", w="w2"))
    assert messages(consistent_weights, recovering(loaded(0, f="f", w="w2"), before=frozen)) == []
    most = (saved(0, 1, a="a1", b="b1", c="c1", f="f"), saved(0, 2, a="a2", b="b2", c="c2", f="f"))
    found = only(consistent_weights, recovering(loaded(0, a="a1", b="b2", c="c2", f="f"), before=most))
    assert found.message.startswith("rank 0 loaded a mix of step 1 (a) and step 2 (b, c, f)")
    assert (
        messages(
            consistent_weights, recovering(loaded(0, 3, f="f", w="w2"), loaded(1, 2, f="f", w="w2"), before=frozen)
        )
        != []
    )


def test_a_part_saved_by_itself_may_be_loaded_by_itself() -> None:
    parts = (saved(0, 1, w="w1"), saved(0, 1, m="m1"))
    assert messages(consistent_weights, recovering(loaded(0, w="w1"), loaded(0, m="m1"), before=parts)) == []


def test_a_save_that_read_changed_weights_is_reported() -> None:
    leaked = recovering(loaded(0, 1, a="a1", b="b2"))
    found = only(snapshot_isolation, leaked)
    assert found.message == (
        "step 1 was loaded with b as it was at step 2: the save read weights that training had already changed "
        "(in the recovery)"
    )
    assert messages(snapshot_isolation, recovering(loaded(0, a="a1", b="b2"))) == [found.message]
    both = recovering(loaded(0, 1, a="a2", b="b2"))
    assert only(snapshot_isolation, both).message.startswith("step 1 was loaded with a, b as they were at step 2: ")


def test_torn_weights_are_of_no_step() -> None:
    assert messages(snapshot_isolation, recovering(loaded(0, 1, a="a1", b="torn"))) == [
        "b is of no step that was saved (in the recovery)"
    ]


def test_an_older_tensor_is_no_leak() -> None:
    old = recovering(loaded(0, 2, a="a1", b="b2"))
    assert messages(snapshot_isolation, old) == []
    assert len(messages(consistent_weights, old)) == 1


def test_no_rank_declared_anything() -> None:
    for invariant in (consistent_weights, snapshot_isolation):
        assert "no rank declared what it saved" in reason(invariant, two())
        assert "no rank declared what it loaded" in reason(invariant, two(weights=SAVED))
    assert "no rank declared where it saved" in reason(same_checkpoint, two(weights=SAVED))


def test_all_ranks_save_one_step_to_one_checkpoint() -> None:
    fine = (saved(0, 1, "s1"), saved(1, 1, "s1"), saved(0, 2, "s2"), saved(1, 2, "s2"), saved(1, 2))
    assert messages(same_checkpoint, two(weights=fine)) == []
    apart = (saved(0, 1, "12-00", event=3), saved(1, 1, "12-01", event=5), saved(2, 1, "12-00"), saved(0, 2, "12-02"))
    found = only(same_checkpoint, two(weights=apart))
    assert found.message == "step 1 was saved to different checkpoints: ranks 0, 2 12-00; rank 1 12-01"
    assert (found.ranks, found.events) == ((0, 1, 2), (2, 4))


# Publishing.

DISK = {
    "step_1": DiskEntry("directory"),
    "step_2": DiskEntry("directory"),
    "step_2/w": DiskEntry("file", 4),
    "latest": DiskEntry("file", 6),
}


def publish(rank: int, text: str, file: int = 9) -> list[Event]:
    """Write a pointer under another name and rename it."""
    return [
        opens(f"{rank} open latest.tmp", "w"),
        use(f"{rank} write latest.tmp", file, inode=7, text=text),
        use(f"{rank} close latest.tmp", file, inode=7),
        op(f"{rank} rename latest.tmp -> latest"),
    ]


def shard(rank: int, path: str = "step_2/w") -> list[Event]:
    return [opens(f"{rank} open {path}", "w"), use(f"{rank} write {path}", 4, inode=5, size=4)]


def test_a_pointer_that_is_moved_last_is_fine() -> None:
    trace = [
        *shard(1),
        op("0 mkdir step_1"),
        *publish(0, "step_2\n"),
        op("1 unlink step_2/w.lock"),
        *shard(1, "step_3/w"),
    ]
    assert messages(atomic_publish, two(trace, disk=DISK)) == []


def test_a_write_to_what_the_pointer_names_is_reported_once() -> None:
    trace = [*publish(0, "step_2\n"), *shard(1), *shard(1, "step_2/b")]
    found = only(atomic_publish, two(trace, disk=DISK))
    assert found.message == "latest named step_2 while rank 1 was still writing step_2/w"
    assert (found.ranks, found.events) == ((0, 1), (3, 4))


@pytest.mark.parametrize(
    "late",
    [
        op("1 mkdir step_2/sub"),
        op("1 rename step_2.tmp -> step_2"),
        op("1 rename a -> step_2/w"),
        op("1 truncate step_2/w", inode=5),
        op("1 link a -> step_2/w"),
        opens("1 open step_2/w", "w", inode=5),
        opens("1 open step_2/new", "a"),
    ],
)
def test_every_change_counts(late: Op) -> None:
    assert len(messages(atomic_publish, two([*publish(0, "step_2"), late], disk=DISK))) == 1
    assert messages(atomic_publish, two([late, *publish(0, "step_2")], disk=DISK)) == []
    failed = replace(late, result=replace(late.result, errno="EEXIST"))  # type: ignore[type-var]
    assert messages(atomic_publish, two([*publish(0, "step_2"), failed], disk=DISK)) == []


def test_reading_and_other_checkpoints_do_not_count() -> None:
    trace = [*publish(0, "step_2"), opens("1 open step_2/w", "r", inode=5), use("1 read step_2/w", 3, inode=5, size=4)]
    assert messages(atomic_publish, two([*trace, op("1 mkdir step_20")], disk=DISK)) == []


def test_only_what_is_named_now_counts() -> None:
    trace = [*publish(0, "step_1"), *publish(0, "step_2"), *shard(1, "step_1/w")]
    assert messages(atomic_publish, two(trace, disk=DISK)) == []


def test_a_pointer_that_is_rewritten_in_place_can_be_seen_empty() -> None:
    emptied = opens("0 open latest", "w", inode=7)
    read, write = use("1 read latest", 3, inode=7), use("0 write latest", 2, inode=7, text="step_2")
    found = only(atomic_publish, two([emptied, read, write], disk=DISK))
    assert found.message == "rank 1 read latest after rank 0 had truncated it and before it was written"
    assert (found.ranks, found.events) == ((0, 1), (0, 1))
    assert messages(atomic_publish, two([emptied, write, read], disk=DISK)) == []
    own = use("0 read latest", 3, inode=7)
    assert messages(atomic_publish, two([emptied, own, write], disk=DISK)) == []


def test_a_pointer_must_name_what_exists_at_the_end() -> None:
    found = only(atomic_publish, two(publish(1, "step_9\n"), disk=DISK))
    assert found.message == "at the end latest names step_9, which does not exist"
    assert (found.ranks, found.events) == ((1,), (3,))
    empty = two([opens("0 open latest", "w")], disk={**DISK, "latest": DiskEntry("file")})
    assert messages(atomic_publish, empty) == ["latest is empty at the end"]


def test_links_are_pointers_too() -> None:
    link = {**DISK, "latest": DiskEntry("symlink", target="step_2")}
    trace = [op("0 symlink latest.tmp"), op("0 rename latest.tmp -> latest")]
    assert messages(atomic_publish, two(trace, disk=link)) == []
    assert len(messages(atomic_publish, two([*trace, *shard(1)], disk=link))) == 1
    lost = {**DISK, "latest": DiskEntry("symlink", target="step_9")}
    assert messages(atomic_publish, two(trace, disk=lost)) == ["at the end latest names step_9, which does not exist"]
    assert messages(atomic_publish, two(disk=lost)) == ["at the end latest names step_9, which does not exist"]


def test_a_pointer_below_and_one_with_a_whole_path() -> None:
    disk = {f"out/{path}": entry for path, entry in DISK.items()}
    for says in ("step_2", "out/step_2", "/mnt/run/out/step_2", "./step_2/"):
        trace: list[Event] = [
            opens("0 open out/latest", "w"),
            use("0 write out/latest", 2, inode=7, text=says),
            op("1 mkdir out/step_2/sub"),
        ]
        assert messages(atomic_publish, two(trace, disk=disk)) == [
            "out/latest named out/step_2 while rank 1 was still writing out/step_2/sub"
        ]


def test_each_node_has_its_own_pointer() -> None:
    disk = {f"node{node}/{path}": entry for node in (0, 1) for path, entry in DISK.items()}
    trace = [*publish(0, "step_2"), *publish(2, "step_2")]
    judged = outcome(*[returned()] * 4, trace=trace, disk=disk, world=TWO_NODES)
    assert messages(atomic_publish, judged) == []
    late = replace(judged, trace=(*trace, *shard(3)))
    assert messages(atomic_publish, late) == [
        "node1/latest named node1/step_2 while rank 3 was still writing node1/step_2/w"
    ]


def test_a_pointer_of_another_name_and_form() -> None:
    iteration = partial(atomic_publish, pointer="iteration.txt", named=lambda text: f"step_{int(text)}")
    trace: list[Event] = [opens("0 open iteration.txt", "w"), use("0 write iteration.txt", 2, inode=7, text="2")]
    disk = {**DISK, "iteration.txt": DiskEntry("file", 1)}
    assert messages(iteration, two(trace, disk=disk)) == []
    assert len(messages(iteration, two([*trace, *shard(1)], disk=disk))) == 1


def test_what_a_pointer_said_before_the_run_is_known_from_reading_it() -> None:
    read = use("1 read latest", 3, inode=7, text="step_2\n")
    assert messages(atomic_publish, two([read, *shard(0)], disk=DISK)) == [
        "latest named step_2 while rank 0 was still writing step_2/w"
    ]


def test_a_pointer_that_is_rewritten_in_place_names_what_was_written_last() -> None:
    for how, first in (
        ("w", use("0 read latest", 3, inode=7)),
        ("r+", use("0 read latest", 3, inode=7, text="step_1")),
    ):
        trace: list[Event] = [
            opens("0 open latest", "w", inode=7),
            use("0 write latest", 2, inode=7, text="step_1"),
            opens("0 open latest", how, inode=7),
            first,
            use("0 write latest", 3, inode=7, text="step_2"),
        ]
        assert messages(atomic_publish, two([*trace, *shard(1, "step_1/w")], disk=DISK)) == []
        assert only(atomic_publish, two([*trace, *shard(1)], disk=DISK)).events == (4, 5)


def test_a_text_may_be_written_in_parts() -> None:
    trace: list[Event] = [
        opens("0 open latest", "w"),
        use("0 write latest", 2, inode=7, text="step"),
        use("0 write latest", 2, inode=7, text="_2\n"),
    ]
    assert messages(atomic_publish, two(trace, disk=DISK)) == []
    assert only(atomic_publish, two([*trace, *shard(1)], disk=DISK)).events == (2, 3)


def test_the_pointer_itself_is_no_part_of_the_checkpoint_that_it_is_in() -> None:
    disk = {f"out/{path}": entry for path, entry in DISK.items()}
    once: list[Event] = [opens("0 open out/latest", "w"), use("0 write out/latest", 2, inode=7, text=".")]
    assert messages(atomic_publish, two([*once, *once], disk=disk)) == []
    assert len(messages(atomic_publish, two([*once, op("1 mkdir out/step_3")], disk=disk))) == 1


def test_a_pointer_whose_text_is_not_known_is_not_judged() -> None:
    trace: list[Event] = [opens("0 open latest", "w"), use("0 write latest", 2, inode=7, size=6)]
    assert "does not show what was written to latest" in reason(atomic_publish, two(trace, disk=DISK))
    assert "does not show" in reason(atomic_publish, two([*trace, *publish(0, "step_2")], disk=DISK)), "nor later"
    told = replace(op("0 symlink latest"), result=use("0 read f", 1, inode=1, text="step_1").result)
    assert messages(atomic_publish, two([told, *publish(0, "step_2")], disk=DISK)) == []
    assert len(messages(atomic_publish, two([told, *shard(1, "step_1/w"), *publish(0, "step_2")], disk=DISK))) == 1


def staged(where: str, rank: int = 0) -> list[Event]:
    """Write a pointer elsewhere, with its name."""
    return [opens(f"{rank} open {where}/latest", "w"), use(f"{rank} write {where}/latest", 2, inode=7, text="step_2")]


def test_a_pointer_that_is_only_prepared_names_nothing_yet() -> None:
    for where in ("stage", "step_2.tmp", ".tmp/a"):
        early = [*staged(where), *shard(1)]
        moved = op(f"0 rename {where}/latest -> latest", inode=7)
        assert messages(atomic_publish, two([*early, moved], disk=DISK)) == []
        assert len(messages(atomic_publish, two([*early, moved, *shard(1)], disk=DISK))) == 1
        read = use(f"1 read {where}/latest", 3, inode=7, text="step_2")
        assert len(messages(atomic_publish, two([*early, read, moved], disk=DISK))) == 1, "it is in use"
    linked = [*staged("stage"), *shard(1), op("0 link stage/latest -> latest", inode=7)]
    assert messages(atomic_publish, two(linked, disk=DISK)) == []


def test_what_a_crash_leaves_in_a_temporary_directory_is_no_pointer() -> None:
    disk = {path: entry for path, entry in DISK.items() if not path.startswith("step_2")}
    left = {**disk, "step_2.tmp/latest": DiskEntry("symlink", target="step_2")}
    crashed = two(staged("step_2.tmp"), disk=left, crash=Crash("ext4", ()))
    assert messages(atomic_publish, crashed) == []
    alone = replace(crashed, disk={path: entry for path, entry in left.items() if path != "latest"})
    assert "step_2.tmp/latest may be a pointer, or one that was being prepared" in reason(atomic_publish, alone)
    assert messages(partial(atomic_publish, pointer="./latest"), alone) == []


def test_a_pointer_in_a_directory_that_only_looks_temporary_counts() -> None:
    disk = {f"tmp_run/{path}": entry for path, entry in DISK.items()}
    assert messages(atomic_publish, two([*staged("tmp_run"), *shard(1, "tmp_run/step_2/w")], disk=disk)) == [
        "tmp_run/latest named tmp_run/step_2 while rank 1 was still writing tmp_run/step_2/w"
    ]


@pytest.mark.parametrize(
    ("pointer", "violations"), [("latest", 2), ("./latest", 1), ("a/latest", 1), ("other/latest", 0)]
)
def test_a_pointer_with_a_slash_is_one_path(pointer: str, violations: int) -> None:
    disk = {**DISK, "other/latest": DiskEntry("file", 6)}
    trace = [*staged("a"), *publish(1, "step_2"), *shard(1)]
    assert len(messages(partial(atomic_publish, pointer=pointer), two(trace, disk=disk))) == violations


def test_a_path_to_a_pointer_is_the_same_on_each_node() -> None:
    disk = {f"node{node}/{path}": entry for node in (0, 1) for path, entry in DISK.items()}
    judged = outcome(*[returned()] * 4, trace=[*publish(2, "step_2"), *shard(3)], disk=disk, world=TWO_NODES)
    assert messages(partial(atomic_publish, pointer="./latest"), judged) == [
        "node1/latest named node1/step_2 while rank 3 was still writing node1/step_2/w"
    ]


def test_without_a_pointer_nothing_is_judged_unless_a_rank_failed() -> None:
    assert "no rank published latest" in reason(atomic_publish, two(shard(0)))
    assert messages(atomic_publish, outcome(raised("EOFError"), trace=shard(0))) == []


# Torn files.

MADE = opens("0 open f", "w")
OVER = opens("0 open f", "w", inode=5)


def w(rank: int, file: int, size: int = 4, **fields: Any) -> Op:
    return use(f"{rank} write f", file, inode=5, size=size, **fields)


def r(rank: int, file: int, size: int = 4, **fields: Any) -> Op:
    return use(f"{rank} read f", file, inode=5, size=size, **fields)


def close(rank: int, file: int) -> Op:
    return use(f"{rank} close f", file, inode=5)


READS = opens("1 open f", "r", inode=5)


@pytest.mark.parametrize(
    ("trace", "events"),
    [
        ([MADE, w(0, 1), READS, r(1, 2), w(0, 1), close(0, 1)], (0, 3, 4)),
        ([MADE, READS, r(1, 2, 0), w(0, 1), close(0, 1)], (0, 2, 3)),
        ([OVER, READS, r(1, 2, 0), w(0, 1), close(0, 1)], (0, 2, 3)),
        ([opens("0 open f", "r+", inode=5), w(0, 1), READS, r(1, 2), w(0, 1)], (0, 3, 4)),
        ([MADE, w(0, 1), READS, use("1 mmap f", 2, inode=5), w(0, 1)], (0, 3, 4)),
    ],
)
def test_reading_what_another_rank_is_writing(trace: list[Event], events: tuple[int, ...]) -> None:
    found = only(no_torn_files, two(trace))
    assert found.message == "torn read: rank 1 reads f, which rank 0 is writing"
    assert (found.ranks, found.events) == ((0, 1), events)


@pytest.mark.parametrize(
    "trace",
    [
        [MADE, w(0, 1), close(0, 1), READS, r(1, 2), r(1, 2, 0)],
        [READS, r(1, 2), r(1, 2, 0), close(1, 2), OVER, w(0, 1), close(0, 1)],
        [MADE, w(0, 1), READS, r(1, 2), r(1, 2, 0), close(0, 1)],
        [opens("0 open f", "r+", inode=5), READS, r(1, 2), r(1, 2, 0), w(0, 1), close(0, 1)],
        [MADE, w(0, 1), r(0, 3), w(0, 1)],
        [MADE, w(0, 1), use("1 read g", 2, inode=6, size=4), w(0, 1)],
        [MADE, READS, w(0, 1), close(0, 1), r(1, 2)],
        [READS, r(1, 2), r(1, 2, 0), OVER, w(0, 1), close(0, 1), r(1, 2)],
    ],
)
def test_reading_what_is_whole(trace: list[Event]) -> None:
    assert messages(no_torn_files, two(trace)) == []


def test_a_file_that_changes_between_two_reads_of_it() -> None:
    trace: list[Event] = [READS, r(1, 2), OVER, w(0, 1), close(0, 1), r(1, 2)]
    found = only(no_torn_files, two(trace))
    assert found.message == "torn read: rank 1 reads f in parts, while rank 0 changes it"
    assert (found.ranks, found.events) == ((0, 1), (1, 3, 5))


def test_a_writer_that_died_leaves_half_a_file() -> None:
    trace: list[Event] = [MADE, w(0, 1), READS, r(1, 2)]
    judged = outcome(raised("EOFError"), returned(), trace=trace)
    assert messages(no_torn_files, judged) == [
        "torn read: rank 1 reads f, which rank 0 started to write and never finished"
    ]
    assert messages(no_torn_files, two(trace)) == []


def test_two_ranks_that_write_one_file_mix_it() -> None:
    other = opens("1 open f", "w", inode=5)
    trace: list[Event] = [MADE, other, w(0, 1), w(1, 2), close(0, 1), close(1, 2)]
    found = only(no_torn_files, two(trace))
    assert found.message == "mixed file: ranks 0 and 1 both write f while both have it open"
    assert (found.ranks, found.events) == ((0, 1), (2, 3))
    turns: list[Event] = [MADE, w(0, 1), close(0, 1), other, w(1, 2), close(1, 2)]
    assert messages(no_torn_files, two(turns)) == []


def test_writers_that_keep_apart_do_not_mix() -> None:
    both: list[Event] = [opens("0 open f", "r+", inode=5), opens("1 open f", "r+", inode=5)]
    apart = [w(0, 1, args={"offset": 0}), w(1, 2, args={"offset": 4})]
    assert messages(no_torn_files, two([*both, *apart])) == []
    over = [w(0, 1, args={"offset": 0}), w(1, 2, args={"offset": 3})]
    assert len(messages(no_torn_files, two([*both, *over]))) == 1
    appending: list[Event] = [opens("0 open f", "a", inode=5), opens("1 open f", "a", inode=5), w(0, 1), w(1, 2)]
    assert messages(no_torn_files, two(appending)) == []
    one_appends: list[Event] = [opens("0 open f", "a", inode=5), opens("1 open f", "r+", inode=5), w(0, 1), w(1, 2)]
    assert len(messages(no_torn_files, two(one_appends))) == 1


def lock(rank: int, file: int, *flags: str) -> Op:
    return use(f"{rank} flock lock", file, inode=8, flags=flags)


def test_ranks_that_hold_one_lock_do_no_harm() -> None:
    both: list[Event] = [opens("0 open f", "r+", inode=5), opens("1 open f", "r+", inode=5)]
    first: list[Event] = [lock(0, 11, "LOCK_EX"), w(0, 1), lock(0, 11, "LOCK_UN")]
    then: list[Event] = [lock(1, 12, "LOCK_EX"), w(1, 2), lock(1, 12, "LOCK_UN")]
    assert messages(no_torn_files, two([*both, *first, *then])) == []
    assert len(messages(no_torn_files, two([*both, *first, w(1, 2)]))) == 1, "the second did not ask for it"
    assert len(messages(no_torn_files, two([*both, *first[:1], *first[2:], w(0, 1), *then]))) == 1, (
        "given back too early"
    )


def test_reading_under_the_lock_of_the_writer_is_fine() -> None:
    both: list[Event] = [opens("0 open f", "r+", inode=5), READS]
    write: list[Event] = [lock(0, 11, "LOCK_EX"), w(0, 1), lock(0, 11, "LOCK_UN")]
    read: list[Event] = [lock(1, 12, "LOCK_SH"), r(1, 2), r(1, 2, 0), lock(1, 12, "LOCK_UN")]
    assert messages(no_torn_files, two([*both, *write, *read, *write])) == []
    assert len(messages(no_torn_files, two([*both, *write, r(1, 2), *write]))) == 1


def test_an_open_file_is_the_one_that_was_opened_by_that_name() -> None:
    elsewhere: list[Event] = [opens("0 open g", "w"), MADE, w(0, 1), READS, r(1, 2), w(0, 1)]
    assert only(no_torn_files, two(elsewhere)).events == (1, 4, 5)
    replaced: list[Event] = [opens("0 open f", "w", inode=4), MADE, w(0, 1), READS, r(1, 2), w(0, 1)]
    assert only(no_torn_files, two(replaced)).events == (1, 4, 5)


def test_an_open_file_keeps_its_writer_when_it_is_renamed() -> None:
    trace: list[Event] = [
        opens("0 open f.tmp", "w"),
        use("0 write f.tmp", 1, inode=5, size=4),
        op("0 rename f.tmp -> f", inode=0),
        opens("1 open f", "r", inode=5),
        r(1, 2),
        w(0, 1),
    ]
    found = only(no_torn_files, two(trace))
    assert found.events == (0, 4, 5)


def test_copies_read_their_source_and_write_their_target() -> None:
    copied = replace(op("1 copy f -> g"), result=replace(use("1 copy f", 2, inode=5, size=4).result, size=4))  # type: ignore[type-var]
    source, target = (
        replace(place(name), inode=inode, open_file=inode, kind="file") for name, inode in (("f", 5), ("g", 6))
    )
    copied = replace(copied, places=(source, target))
    assert only(no_torn_files, two([MADE, w(0, 1), copied, w(0, 1)])).events == (0, 2, 3)
    reader = [
        opens("0 open g", "r", inode=6),
        use("0 read g", 3, inode=6, size=1),
        copied,
        use("0 read g", 3, inode=6, size=1),
    ]
    assert only(no_torn_files, two([*reader])).ranks == (0, 1)


@pytest.mark.parametrize(
    "invariant",
    [
        all_shards_present,
        atomic_publish,
        consistent_weights,
        no_torn_files,
        recovers,
        same_checkpoint,
        snapshot_isolation,
    ],
    ids=name_of,
)
def test_a_good_run_violates_nothing(invariant: Invariant) -> None:
    good = two(
        [*shard(0), *publish(0, "step_2")],
        disk={**DISK, "step_2/.metadata": DiskEntry("file", 9)},
        contents={"step_2/.metadata": WHOLE},
        weights=(saved(0, 2, "step_2", w="w"), saved(1, 2, "step_2", w="w")),
        recovery=outcome(returned(), returned(), weights=(loaded(0, w="w"), loaded(1, 2, w="w"))),
    )
    assert judge(good, [invariant]).verdict is Verdict.PASS
