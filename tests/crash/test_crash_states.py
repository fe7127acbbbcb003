"""Crash states of the logs of checkpoint code: which, how many, of which crash, and what repairs make of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from racecheck.crash import build
from racecheck.crash.changes import PAGE
from racecheck.crash.cuts import cuts, moments
from racecheck.crash.log import Data, Disk, Log, Stored, merged, overwritten, shortened
from racecheck.crash.repairs.fresh_directories import fresh_directories
from racecheck.crash.repairs.repair import repairs
from racecheck.crash.states import MODELS, CrashState, states
from racecheck.model.nouns import World
from racecheck.supervisor.finish.recorder import Span
from tests.peers.file_systems import litmus
from tests.peers.file_systems.contains import contains
from tests.support.builders import collective, op, outcome
from tests.support.crash_logs import Calls, dcp_save, deepspeed_save, shown

DCP = {"ckpt/.metadata": "metadata-two", "ckpt/__0_0.distcp": "shard0-two", "ckpt/__1_0.distcp": "shard1-two"}


def dcp(*, before: bool = False, **how: bool) -> Calls:
    """A save of DCP with two ranks to a fresh directory, or over a checkpoint that is durable."""
    calls = Calls(2)
    if before:
        calls.mkdir("ckpt")
        dcp_save(calls, "ckpt", "one")
        calls.settle()
        dcp_save(calls, "ckpt", "two", **how)
        return calls
    calls.mkdir("ckpt")
    dcp_save(calls, "ckpt", "two", **how)
    return calls


def deepspeed() -> Calls:
    calls = Calls(2)
    deepspeed_save(calls, "s1")
    calls.settle()
    deepspeed_save(calls, "s2")
    return calls


def load_dcp(disk: dict[str, str]) -> str:
    """What a load says: the step, or what is wrong."""
    steps = set()
    for path in DCP:
        if path not in disk:
            return f"{path} is missing"
        if not disk[path].strip("0") or "-" not in disk[path] or "0" in disk[path].partition("-")[2]:
            return f"{path} is broken"
        steps.add(disk[path].partition("-")[2])
    return steps.pop() if len(steps) == 1 else "mixed"


def load_deepspeed(disk: dict[str, str]) -> str:
    step = disk.get("latest")
    if step not in {"s1", "s2"}:
        return f"latest: {step!r}"
    for part in ("model", "optim"):
        for rank in (0, 1):
            text = disk.get(f"{step}/{part}{rank}")
            whole = f"{part}{rank}-{step}a{part}{rank}-{step}b"
            if text != whole:
                kind = "missing" if text is None else f"{len(text)}{' with zeros' * ('00' in text)}"
                return f"{part}{rank}: {kind}"
    return step


def classes(log: Log, model: str, load, **how) -> set[str]:
    return {load(shown(each.disk)) for each in states(log, model, **how).states}


def bad(log: Log, model: str, ack: int) -> int:
    """How many states lose the checkpoint although it had been acknowledged."""
    enumeration = states(log, model, acks=[ack])
    return sum(ack in each.crash.happened and load_dcp(shown(each.disk)) != "two" for each in enumeration.states)


@pytest.mark.parametrize("model", MODELS)
def test_the_first_state_is_the_whole_end(model: str):
    calls = dcp()
    first = states(calls.log(), model).states[0]
    assert {path: text for path, text in shown(first.disk).items() if text} == DCP
    assert (first.crash.lost, first.crash.torn) == ((), ())
    assert first.crash.happened == tuple(range(len(calls.moments)))
    assert first.crash.model == model


@pytest.mark.parametrize("model", MODELS)
def test_states_are_distinct_and_the_defaults_come_first(model: str):
    found = states(dcp(before=True).log(), model).states
    disks = [each.disk for each in found]
    assert len(set(disks)) == len(disks)
    harm = [len(each.crash.lost) + len(each.crash.torn) for each in found]
    assert harm[0] == 0
    assert [each > 0 for each in harm] == sorted(each > 0 for each in harm)


def test_acknowledgements_distinguish_equal_disks():
    calls = dcp()
    ack = calls.last
    found = states(calls.log(), "ext4", acks=[ack]).states
    keys = [(ack in each.crash.happened, each.disk) for each in found]
    assert len(set(keys)) == len(keys)
    assert len({disk for _, disk in keys}) < len(keys)


def test_a_model_that_there_is_not():
    with pytest.raises(ValueError, match="no model 'fat'; there are: kill, ext4, xfs, btrfs, posix-min, ordered"):
        states(dcp().log(), "fat")


def test_a_budget_keeps_the_defaults_and_says_so():
    log = dcp().log()
    every, few = states(log, "ext4"), states(log, "ext4", budget=3)
    assert not every.truncated
    assert few.states == every.states[:3]
    assert few.truncated == f"{len(every.states) - 3} states beyond the budget of 3"


def test_the_crash_of_a_state_says_what_was_lost():
    calls = Calls()
    calls.create("tmp")
    calls.write("tmp", "new")
    calls.nothing()
    calls.rename("tmp", "a")
    by_disk = {tuple(shown(each.disk).items()): each.crash for each in states(calls.log(), "ext4").states}
    assert (by_disk[("a", ""),].lost, by_disk[("a", ""),].torn) == ((1,), ())
    assert (by_disk[("a", "000"),].lost, by_disk[("a", "000"),].torn) == ((), (1,))
    assert by_disk[("tmp", "new"),].happened == (0, 1, 2)
    assert by_disk[("tmp", "new"),].lost == ()


@pytest.mark.parametrize("model", MODELS)
def test_no_two_states_have_the_same_crash(model: str):
    """So that a finding says which of them it is."""
    calls = Calls()
    calls.create("a")
    calls.write("a", "x", of=6 * PAGE)
    calls.write("a", "y", of=6 * PAGE)
    logs = [calls.log(), dcp(before=True).log(), deepspeed().log()]
    logs += [litmus.log_of(litmus.program(Random(f"same {seed}"))[:14], shared_journal=False) for seed in range(25)]
    for log in logs:
        found = states(log, model, most=300).states
        assert len({each.crash for each in found}) == len(found)


def under_way(log: Log) -> Log:
    """The same with the last call not yet over: it promises nothing."""
    last = max(each.event for each in log.entries)
    return replace(log, entries=tuple(each for each in log.entries if each.event < last or each.kind != "fsync"))


def test_a_synchronous_write_that_has_returned_is_not_lost():
    """It is two entries of the log, and only behind the second has it returned."""
    calls = Calls()
    calls.create("a")
    calls.fsync("a")
    calls.write_now("a", "new", 0)
    for model in ("kill", "ext4", "xfs", "btrfs", "ordered"):
        enumeration = states(calls.log(), model, acks=[calls.last])
        acked = {shown(each.disk).get("a") for each in enumeration.states if calls.last in each.crash.happened}
        assert acked == {"new"}, model


@pytest.mark.parametrize("model", ["ext4", "btrfs"])
def test_the_crash_of_every_state_leaves_it(model: str):
    """A state that is said to be left after a part of the log is allowed of just that part."""
    checked = 0
    for seed in range(25):
        log = litmus.log_of(litmus.program(Random(f"crash {seed}"))[:14], shared_journal=False)
        for state in states(log, model, most=300).states[:150]:
            happened = set(state.crash.happened)
            cut = replace(log, entries=tuple(each for each in log.entries if each.event in happened))
            assert allowed(cut, model, state) or allowed(under_way(cut), model, state) or state.crash.torn
            checked += 1
    assert checked > 500


def allowed(log: Log, model: str, state: CrashState) -> bool:
    wanted = dict(state.disk.paths)
    sizes = {path: stored.size if stored.kind == "file" else -1 for path, stored in wanted.items()}
    return contains(log, model, sizes, lambda path, stored: stored == wanted[path])


def test_weaker_models_leave_more():
    for calls in (dcp(), dcp(before=True)):
        left = {model: {each.disk for each in states(calls.log(), model, most=10**6).states} for model in MODELS}
        assert left["kill"] <= left["ordered"] < left["ext4"] < left["posix-min"]
        assert left["ordered"] < left["btrfs"]


@pytest.mark.parametrize("model", ["ext4", "btrfs", "ordered"])
@pytest.mark.parametrize(
    ("calls", "load"), [(dcp(), load_dcp), (dcp(before=True), load_dcp), (deepspeed(), load_deepspeed)]
)
def test_the_bounded_set_is_of_the_whole_and_shows_every_failure(calls: Calls, load, model: str):
    log = calls.log()
    whole, bounded = states(log, model, most=10**6), states(log, model, most=0)
    assert {each.disk for each in bounded.states} <= {each.disk for each in whole.states}
    assert "only some of the possible losses" in bounded.truncated
    missed = {load(shown(each.disk)) for each in whole.states} - {load(shown(each.disk)) for each in bounded.states}
    assert not whole.truncated
    assert not missed


def test_dcp_loses_an_acknowledged_checkpoint_and_the_mend_is_two_fsyncs():
    calls = dcp()
    log, ack = calls.log(), calls.last
    table = {name: bad(each, "ext4", ack) for name, each in {"as it is": log, **repairs(log)}.items()}
    flush, both = "flush before fsync", "flush before fsync, fsync directories"
    assert table["as it is"] > table[flush] > table[both] == 0
    assert table["as it is"] > table["fsync directories"] > 0
    assert {model: bad(repairs(log)[both], model, ack) for model in MODELS if model != "nfs-server"} == dict.fromkeys(
        [model for model in MODELS if model != "nfs-server"], 0
    )
    assert bad(dcp(flush=True, sync=True).log(), "ext4", ack) == 0
    assert bad(dcp(flush=True).log(), "ext4", ack) == table[flush]


def test_a_kill_in_a_save_over_a_checkpoint_loses_both():
    """Shards are truncated in place, and between unlink and rename there is no metadata."""
    log = dcp(before=True).log()
    left = classes(log, "kill", load_dcp)
    assert {"one", "two", "ckpt/.metadata is missing", "ckpt/__0_0.distcp is broken"} <= left
    replaced = repairs(log)["replace instead of unlink and rename"]
    assert "ckpt/.metadata is missing" not in classes(replaced, "kill", load_dcp)
    assert [each.kind for each in replaced.entries].count("unlink") == 0


def disks(log: Log) -> set[tuple[tuple[str, str], ...]]:
    """What a kill may leave."""
    return {tuple(shown(each.disk).items()) for each in states(log, "kill").states}


def test_a_directory_for_each_step_has_the_old_checkpoint_until_the_new_one_is_done():
    log = dcp(before=True).log()
    fresh = repairs(log)["fresh directory per step"]
    assert classes(fresh, "kill", load_dcp) == {"one", "two"}
    assert len(disks(fresh)) == 2
    assert states(fresh, "kill").states[0].disk == states(log, "kill").states[0].disk
    assert {each.event for each in fresh.entries} < {each.event for each in log.entries}, "it removes nothing"


def test_of_two_saves_in_one_run_the_second_has_a_directory_of_its_own():
    calls = Calls(2)
    calls.mkdir("ckpt")
    dcp_save(calls, "ckpt", "one")
    first = calls.last
    dcp_save(calls, "ckpt", "two")
    log = calls.log()
    assert fresh_directories(log) == log, "nobody says that there were two"

    def after_one(log: Log) -> set[str]:
        every = states(log, "kill", acks=(first,)).states
        return {load_dcp(shown(each.disk)) for each in every if len(each.crash.happened) > first + 1}

    assert after_one(log) > {"ckpt/.metadata is missing", "mixed"}
    assert after_one(fresh_directories(replace(log, acks=dict.fromkeys((0, 1), (first,))))) == {"one", "two"}


def test_so_has_one_that_removes_the_directory_first():
    calls = Calls()
    calls.mkdir("ckpt")
    calls.mkdir("ckpt/sub")
    calls.create("ckpt/sub/old")
    calls.settle()
    calls.unlink("ckpt/sub/old")
    calls.rmdir("ckpt/sub")
    calls.rmdir("ckpt")
    calls.mkdir("ckpt")
    calls.mkdir("ckpt/part")
    calls.create("ckpt/part/new")
    calls.create("after")
    old, new = ["ckpt/", "ckpt/sub/", "ckpt/sub/old"], ["ckpt/", "ckpt/part/", "ckpt/part/new"]
    fresh = disks(repairs(calls.log())["fresh directory per step"])
    assert sorted([path for path, _ in disk] for disk in fresh) == [["after", *new], new, old]


def test_what_one_disk_makes_last_says_nothing_of_another():
    """ext4 writes one journal: on one disk the fsync would make both names last."""
    calls = Calls(2)
    calls.mkdir("node0")
    calls.mkdir("node1")
    calls.settle()
    calls.at(1).create("node1/file")
    calls.barrier()
    calls.at(0).create("node0/file")
    calls.fsync("node0/file")
    apart = tuple(replace(entry, node=entry.rank) for entry in calls.log().entries)

    def left(log: Log) -> set[tuple[str, ...]]:
        every = states(log, "ext4", acks=(calls.last,)).states
        return {tuple(shown(each.disk)) for each in every if len(each.crash.happened) == len(log.moments)}

    alone = ("node0/", "node0/file", "node1/")
    assert alone not in left(replace(calls.log(), entries=apart))
    assert alone in left(replace(calls.log(), entries=apart, per_node=True))


def test_what_a_save_makes_in_the_old_directory_is_not_reported():
    calls = Calls()
    calls.mkdir("ckpt")
    calls.mkdir("ckpt/sub")
    calls.settle()
    calls.create("ckpt/sub/made")
    calls.unlink("ckpt/sub/made")
    calls.rmdir("ckpt/sub")
    calls.rmdir("ckpt")
    calls.mkdir("ckpt")
    calls.create("ckpt/new")
    assert fresh_directories(calls.log()) == calls.log()


def saves_in_place(times: int, way: str = "truncates") -> Log:
    """A file in a directory, written over and over, with an acknowledgement behind each time."""
    calls, acks = Calls(), []
    calls.mkdir("ckpt")
    for step in range(times):
        if way == "unlinks" and step:
            calls.unlink("ckpt/state")
        calls.open_w("ckpt/state")
        calls.write("ckpt/state", f"s{step}", 0)
        acks.append(calls.last)
    return replace(calls.log(), acks={0: acks})


@pytest.mark.parametrize("way", ["truncates", "unlinks"])
def test_each_of_many_saves_has_a_directory_of_its_own(way: str):
    log = saves_in_place(4, way)
    fresh = fresh_directories(log)
    whole = [shown(each.disk) for each in states(fresh, "kill").states]
    assert whole[0] == {"ckpt/": "", "ckpt/state": "s3"}
    assert {tuple(each.values()) for each in whole} == {(), ("",), ("", ""), *(("", f"s{step}") for step in range(4))}


def test_what_only_one_rank_has_filled_is_not_taken():
    """Nothing but the name that the new directory gets has the ranks wait for each other."""
    calls = Calls(2)
    calls.mkdir("ckpt")
    for rank in (0, 1):
        calls.create(f"ckpt/of {rank}")
        calls.write(f"ckpt/of {rank}", "old")
    calls.settle()
    for rank in (0, 1):
        calls.at(rank).open_w(f"ckpt/of {rank}")
        calls.write(f"ckpt/of {rank}", "new", 0)
    kept = {tuple(disk.values()) for disk in map(dict, disks(fresh_directories(calls.log())))}
    assert kept == {("", "old", "old"), ("", "new", "new")}
    assert len(disks(calls.log())) > 2


@pytest.mark.parametrize("name", ["ckpt/config", "ckpt/sub/state"])
def test_what_stays_or_lies_deeper_is_not_reported(name: str):
    calls = Calls()
    calls.mkdir("ckpt")
    calls.mkdir("ckpt/sub")
    for each in ("ckpt/state", name):
        calls.create(each)
        calls.write(each, "old")
    calls.settle()
    calls.open_w("ckpt/state")
    calls.write("ckpt/state", "new", 0)
    if "sub" in name:
        calls.unlink(name)
        calls.create(name)
    assert fresh_directories(calls.log()) == calls.log()


@pytest.mark.parametrize("way", ["in the watched directory", "from the end", "moves what is there"])
def test_an_unknown_fresh_directory_changes_nothing(way: str):
    calls = Calls()
    calls.mkdir("ckpt")
    for name in ("here", "ckpt/state"):
        calls.create(name)
        calls.write(name, "old")
    calls.settle()
    if way == "in the watched directory":
        calls.open_w("here")
    elif way == "from the end":
        calls.write("ckpt/state", "more")
    else:
        calls.rename("ckpt/state", "ckpt/state.old")
        calls.create("ckpt/state")
        calls.open_w("ckpt/state.old")
    assert fresh_directories(calls.log()) == calls.log()


def test_one_rank_may_be_far_behind_when_the_other_is_killed():
    """Then the old metadata is there with shards of two steps: no prefix of this run has that."""
    calls = dcp(before=True)
    assert "mixed" in classes(calls.log(), "kill", load_dcp)
    together = replace(calls.log(), moments=())
    assert all(load_dcp(shown(each.disk)) != "latest" for each in states(together, "kill").states)
    pointer = deepspeed().log()
    broken = {text for text in classes(pointer, "kill", load_deepspeed) if text not in {"s1", "s2"}}
    assert {text[:6] for text in broken} >= {"model1", "optim1"}
    repaired = repairs(pointer)["barrier before publish"]
    assert {text[:6] for text in classes(repaired, "kill", load_deepspeed)} == {"s1", "s2", "latest"}


def test_cuts_do_not_go_through_what_depends_on_each_other():
    calls = Calls(2)
    calls.at(0).create("a")
    calls.barrier()
    calls.at(1).create("b")
    assert all("a" in shown(each.disk) for each in states(calls.log(), "kill").states if "b" in shown(each.disk))
    free = Calls(2)
    free.at(0).create("a")
    free.at(1).create("b")
    assert {tuple(shown(each.disk)) for each in states(free.log(), "kill").states} == {(), ("a",), ("b",), ("a", "b")}
    moments = list(free.log().moments)
    moments[1] = replace(moments[1], after=(0,))
    saw = replace(free.log(), moments=tuple(moments))
    assert {tuple(shown(each.disk)) for each in states(saw, "kill").states} == {(), ("a",), ("a", "b")}


def test_moments_have_what_a_rank_saw_of_another():
    trace = (
        op("0 mkdir d", clock={"0": 1}),
        op("1 mkdir e", clock={"1": 1}),
        op("1 stat d", inode=3, clock={"1": 2}),
        collective(),
    )
    found = moments(outcome(trace=trace, world=World(ranks=2)))
    assert [(each.ranks, each.thread, each.after) for each in found] == [
        ((0,), "0", ()), ((1,), "1", ()), ((1,), "1", (0,)), ((0, 1), "", ()),
    ]  # fmt: skip


def test_cuts_that_are_left_out_are_reported():
    calls = Calls(6)
    for rank in range(6):
        for name in "abc":
            calls.at(rank).create(f"{name}{rank}")
    found, left_out = cuts(calls.log())
    assert len(found) <= 1100
    assert "not all consistent cuts" in left_out
    assert left_out in states(calls.log(), "kill").truncated


def test_repairs_go_by_the_ranks_that_they_are_for():
    log = deepspeed().log()
    assert set(repairs(log, most=1)) == {"barrier before publish", "fsync files", "fsync directories"}
    moved = repairs(log)["barrier before publish"].entries
    assert [each.name or "write" for each in moved][-2:] == ["latest", "write"] or moved[-1].data == Data("s2", 0, 2)
    assert sorted(each.event for each in moved) == sorted(each.event for each in log.entries)
    fsynced = repairs(log)["fsync files"].entries
    assert sum(each.kind == "fsync" for each in fsynced) == 5
    assert all(each.event == -1 for each in fsynced if each.kind == "fsync")


def test_disks_that_hold_the_same_are_equal():
    def disk(*writes: tuple[int, int]) -> Disk:
        extents, size = (), 0
        for start, end in writes:
            extents = overwritten(extents, start, end - start, Data("blob", start, end - start))
            size = max(size, end)
        return Disk((("a", Stored("file", merged(extents, size), size)),))

    assert disk((0, 9)) == disk((0, 4), (4, 9)) == disk((4, 9), (0, 4)) == disk((0, 9), (2, 5))
    assert hash(disk((0, 9))) == hash(disk((0, 4), (4, 9)))
    assert disk((0, 9)) != disk((0, 4), (5, 9))
    assert disk((0, 9))["a"].extents == ((0, 9, Data("blob", 0, 9)),)
    assert disk((4, 9))["a"].extents == ((0, 4, None), (4, 5, Data("blob", 4, 5)))


def test_extents_are_those_of_bytes():
    """Writes and truncations of spans against writes and truncations of bytes."""
    random = Random(1)
    for _ in range(200):
        extents, size, content = (), 0, b""
        for fill in range(1, 8):
            start, length = random.randrange(60), random.randrange(1, 30)
            if random.random() < 0.3:
                extents, size, content = shortened(extents, start), start, content[:start].ljust(start, b"\0")
            else:
                extents = overwritten(extents, start, length, Data(str(fill), 0, length))
                size = max(size, start + length)
                content = content.ljust(start, b"\0")[:start] + bytes([fill]) * length + content[start + length :]
            assert litmus.content(Stored("file", merged(extents, size), size)) == content


def test_objects_of_every_kind_are_on_the_disk():
    calls = Calls()
    calls.mkdir("d")
    calls.create("d/a")
    calls.write("d/a", "text")
    calls.link("d/a", "d/b")
    calls.write("d/b", "s", PAGE)
    disk = states(calls.log(), "kill").states[0].disk
    assert [(path, each.kind, each.size) for path, each in disk.paths] == [
        ("d", "directory", 0), ("d/a", "file", PAGE + 1), ("d/b", "file", PAGE + 1),
    ]  # fmt: skip
    assert disk["d/a"] == disk["d/b"]


def test_a_write_of_which_a_part_is_left_is_torn_and_not_lost():
    """Where pages come to the disk on their own a write is several entries of one event."""
    calls = Calls()
    calls.create("a")
    calls.write("a", "x", of=PAGE)
    calls.write("a", "y", of=PAGE)
    log = calls.log()
    log = replace(log, entries=(*log.entries[:2], replace(log.entries[2], event=log.entries[1].event)))
    found = {(each.crash.lost, each.crash.torn) for each in states(log, "nfs").states}
    assert found == {((), ()), ((), (1,))}, "with neither it had not begun"


@pytest.mark.parametrize(
    ("offset", "length", "parts"),
    [
        (0, 2 * PAGE, [(0, 2 * PAGE)]),
        (1, 5, [(0, 5)]),
        (PAGE - 1, 2 * PAGE + 2, [(0, 1), (1, 2 * PAGE + 1), (2 * PAGE + 1, 2 * PAGE + 2)]),
        (10, PAGE, [(0, PAGE - 10), (PAGE - 10, PAGE)]),
        (PAGE, PAGE + 3, [(0, PAGE), (PAGE, PAGE + 3)]),
    ],
)
def test_pages_that_a_write_fills_come_apart_from_those_that_it_shares(
    offset: int, length: int, parts: list[tuple[int, int]]
) -> None:
    assert [*build._parts(Span(offset, length, ""))] == parts
