"""What each model allows to be left of a few calls: the whole set, by hand."""

from __future__ import annotations

from random import Random

import pytest

from racecheck.crash.bitsets import bits
from racecheck.crash.changes import PAGE, Changes
from racecheck.crash.legal import Legal, Limits
from racecheck.crash.models import MODELS
from racecheck.crash.states import states
from tests.peers.file_systems import litmus
from tests.support.crash_logs import Calls, shown


def after(calls: Calls, model: str) -> set[str]:
    """What a crash at the very end of some calls may leave, each disk in one line."""
    calls.nothing()
    enumeration = states(calls.log(), model, acks=[calls.last])
    assert not enumeration.truncated
    found = {
        " ".join(f"{path}={text}" for path, text in shown(each.disk).items()) for each in _at_end(enumeration, calls)
    }
    return {line.replace("/=", "/") for line in found}


def _at_end(enumeration, calls):
    return [each for each in enumeration.states if calls.last in each.crash.happened]


def settled(*files: str) -> Calls:
    """Files that hold "old", durably."""
    calls = Calls()
    for path in files:
        calls.create(path)
        calls.write(path, "old")
    calls.settle()
    return calls


def test_kill_loses_nothing():
    calls = settled("a")
    calls.open_w("a")
    calls.write("a", "new")
    calls.rename("a", "b")
    assert after(calls, "kill") == {"b=new"}


def test_kill_in_the_middle_of_a_write_leaves_whole_pages():
    calls = Calls()
    calls.create("a")
    calls.write("a", "x", of=3 * PAGE)
    sizes = {stored.size for state in states(calls.log(), "kill").states for _, stored in state.disk.paths}
    assert sizes == {0, PAGE, 2 * PAGE, 3 * PAGE}
    calls.create("b")
    torn = [state for state in states(calls.log(), "kill").states if state.crash.torn]
    assert torn
    assert all("b" not in shown(state.disk) for state in torn), "it was not in the middle any more"


def test_a_write_that_was_acknowledged_is_not_torn_by_a_kill():
    calls = Calls()
    calls.create("a")
    calls.write("a", "x", of=3 * PAGE)
    ack = calls.last
    for state in states(calls.log(), "kill", acks=[ack]).states:
        assert not (state.crash.torn and ack in state.crash.happened)


def test_ext4_names_last_in_order_and_bytes_apart_from_them():
    calls = Calls()
    calls.create("a")
    calls.write("a", "new")
    calls.create("b")
    assert after(calls, "ext4") == {"", "a=", "a=new", "a=000", "a= b=", "a=new b=", "a=000 b="}


def test_ext4_fsync_of_a_file_makes_the_names_before_it_last():
    calls = Calls()
    calls.create("other")
    calls.create("a")
    calls.write("a", "new")
    calls.fsync("a")
    calls.rename("a", "b")
    assert after(calls, "ext4") == {"a=new other=", "b=new other="}


def test_ext4_fsync_of_a_file_that_the_journal_has_nothing_about_promises_no_name():
    calls = settled("a")
    calls.create("b")
    calls.fsync("a")
    assert after(calls, "ext4") == {"a=old", "a=old b="}


def test_ext4_fsync_of_a_longer_file_promises_the_names_before_the_write_only():
    calls = settled("a")
    calls.create("b")
    calls.write("a", "er")
    calls.create("c")
    calls.fsync("a")
    assert after(calls, "ext4") == {"a=older b=", "a=older b= c="}


def test_ext4_a_rename_may_last_without_the_bytes_even_over_an_old_file():
    calls = settled("a")
    calls.create("tmp")
    calls.write("tmp", "new")
    calls.rename("tmp", "a")
    assert after(calls, "ext4") >= {"a=", "a=000", "a=new", "a=old"}


def replaced(finish) -> Calls:
    """A new file that is all durable but its name takes the place of an old one; then something promises that."""
    calls = settled("a")
    calls.create("tmp")
    calls.write("tmp", "new")
    calls.sync()
    calls.settle()
    calls.rename("tmp", "a")
    finish(calls)
    return calls


@pytest.mark.parametrize(
    ("model", "fdatasync", "o_dsync"),
    [
        ("ext4", True, True),
        ("posix-min", True, True),
        ("ordered", True, False),
        ("xfs", False, False),
        ("btrfs", False, False),
    ],
)
def test_the_old_file_is_back_after_rename_and_fdatasync_on_some_file_systems(
    model: str, fdatasync: bool, o_dsync: bool
):
    """As live file systems of Linux 6.18 do it ("ordered": ext4 with data=journal, where the new bytes come last)."""
    old = {"a=old tmp=new"}
    left = after(replaced(lambda calls: calls.fdatasync("a")), model)
    assert (old <= left) == fdatasync
    assert "a=new" in left
    written = after(replaced(lambda calls: calls.write_now("a", "new", 0, datasync=True)), model)
    assert (old <= written) == o_dsync
    assert "a=new" in written


@pytest.mark.parametrize("model", ["ext4", "xfs", "btrfs", "ordered"])
@pytest.mark.parametrize("finish", [lambda calls: calls.fsync("a"), lambda calls: calls.write_now("a", "new", 0)])
def test_fsync_and_o_sync_keep_a_new_name(model: str, finish):
    assert after(replaced(finish), model) == {"a=new"}


def test_a_link_may_be_gone_after_fdatasync_on_ext4():
    for model, left in (("ext4", {"a=old", "a=old b=old"}), ("xfs", {"a=old b=old"})):
        calls = settled("a")
        calls.link("a", "b")
        calls.fdatasync("b")
        assert after(calls, model) == left


@pytest.mark.parametrize("model", ["ext4", "xfs", "ordered"])
def test_fdatasync_keeps_a_new_file_and_its_size_and_the_names_of_a_directory(model: str):
    calls = settled("old")
    calls.create("a")
    calls.write("a", "new")
    calls.fdatasync("a")
    assert after(calls, model) == {"a=new old=old"}
    calls.truncate("a", 1)
    calls.rename("old", "b")
    calls.fdatasync("")
    assert after(calls, model) == {"a=n b=old"}


def test_fdatasync_forces_a_rename_that_comes_before_a_new_size():
    calls = replaced(lambda calls: calls.write("a", "er"))
    calls.fdatasync("a")
    assert after(calls, "ext4") == {"a=newer"}


def test_fdatasync_forces_nothing_on_ext4_for_a_size_that_the_disk_may_have_had_all_the_time():
    """As seen on Linux 6.18 (program 1900 of seed 17): the bytes are gone before they are written back."""
    calls = Calls()
    calls.create("b")
    calls.settle()
    calls.rename("b", "c")
    calls.write("c", "new")
    calls.truncate("c", 0)
    calls.fdatasync("c")
    assert after(calls, "ext4") == {"b=", "c="}
    assert after(calls, "xfs") == {"c="}


@pytest.mark.parametrize("model", ["ext4", "xfs", "btrfs"])
def test_a_write_with_o_sync_promises_the_bytes_of_its_own_pages_only(model: str):
    calls = Calls()
    calls.create("a")
    calls.write("a", "x" * PAGE)
    calls.write("a", "y" * PAGE)
    calls.write_now("a", "z", 0)
    left = {each.removeprefix("a=") for each in after(calls, model)}
    first = "z" + "x" * (PAGE - 1)
    assert left == {first, first + "0" * PAGE, first + "y" * PAGE}


def test_posix_min_a_write_with_o_sync_promises_its_own_bytes_and_fdatasync_no_names():
    calls = settled("a")
    calls.write("a", "er", 3)
    calls.write_now("a", "n", 0)
    left = after(calls, "posix-min")
    assert left >= {"a=nld", "a=nlder", "a=nld00"}
    assert all(each.startswith("a=nld") for each in left)


def test_posix_min_fdatasync_promises_no_names_in_a_directory():
    calls = Calls()
    calls.create("b")
    calls.fdatasync("")
    assert after(calls, "posix-min") == {"", "b="}


@pytest.mark.parametrize("model", ["ext4", "btrfs", "posix-min"])
def test_bytes_written_behind_a_truncation_do_not_last_without_it(model: str):
    calls = settled("a")
    calls.open_w("a")
    calls.write("a", "n")
    assert after(calls, model) == {"a=old", "a=", "a=0", "a=n"}


@pytest.mark.parametrize("model", ["ext4", "btrfs", "posix-min", "ordered"])
def test_sync_promises_everything(model: str):
    calls = settled("a")
    calls.mkdir("d")
    calls.rename("a", "d/b")
    calls.write("d/b", "er")
    calls.sync()
    assert after(calls, model) == {"d/ d/b=older"}


def test_ordered_everything_lasts_in_order():
    calls = Calls()
    calls.create("a")
    calls.write("a", "new")
    calls.create("b")
    assert after(calls, "ordered") == {"", "a=", "a=new", "a=new b="}


def test_btrfs_fsync_of_a_file_makes_its_own_name_last_and_no_other():
    calls = Calls()
    calls.mkdir("d")
    calls.mkdir("e")
    calls.create("e/other")
    calls.create("d/a")
    calls.write("d/a", "new")
    calls.rename("d/a", "d/b")
    calls.fsync("d/b")
    left = after(calls, "btrfs")
    assert {"d/ d/b=new", "d/ d/b=new e/ e/other="} <= left
    assert all("d/b=new" in each and "d/a" not in each for each in left)


def test_btrfs_whose_name_was_taken_is_not_lost_for_it():
    calls = settled("a")
    calls.rename("a", "b")
    calls.create("a")
    calls.fsync("a")
    assert after(calls, "btrfs") == {"a= b=old"}


def test_btrfs_fsync_of_a_directory_makes_its_names_last():
    calls = settled("a")
    calls.mkdir("d")
    calls.rename("a", "d/a")
    calls.fsync("d")
    assert after(calls, "btrfs") >= {"d/ d/a=old", "a=old d/ d/a=old"}
    assert all("d/a=old" in each for each in after(calls, "btrfs"))


def test_posix_min_fsync_of_a_file_promises_no_name_and_a_rename_comes_apart():
    calls = settled("a")
    calls.create("tmp")
    calls.write("tmp", "new")
    calls.fsync("tmp")
    calls.rename("tmp", "a")
    assert after(calls, "posix-min") == {
        "a=old", "", "a=new", "a=old tmp=new", "tmp=new", "a=new tmp=new"
    }  # fmt: skip


def test_posix_min_fsync_of_the_directory_promises_its_names_but_not_its_own():
    calls = Calls()
    calls.mkdir("d")
    calls.create("d/a")
    calls.fsync("d")
    assert after(calls, "posix-min") == {"", "d/ d/a="}


def test_nfs_names_last_at_once_and_bytes_when_they_are_sent():
    calls = settled("a")
    calls.create("b")
    calls.write("b", "new")
    calls.rename("b", "a")
    assert after(calls, "nfs") == {"a=", "a=new"}
    calls.fsync("a")
    assert after(calls, "nfs") == {"a=new"}


def test_nfs_what_is_in_a_page_is_sent_together():
    calls = settled()
    calls.create("a")
    calls.write("a", "x")
    calls.write("a", "y")
    calls.write("a", "z", PAGE)
    pages = {
        "a=",
        "a=x",
        "a=xy",
        "a=xy" + "0" * (PAGE - 2) + "z",
        "a=x" + "0" * (PAGE - 1) + "z",
        "a=" + "0" * PAGE + "z",
    }
    assert after(calls, "nfs") == pages


def test_nfs_a_change_of_the_size_sends_the_bytes_first():
    calls = settled()
    calls.create("a")
    calls.write("a", "new")
    calls.truncate("a", 5)
    assert after(calls, "nfs") == {"a=new00"}


def test_nfs_a_server_that_answers_before_it_writes_promises_nothing():
    calls = settled("a")
    calls.create("b")
    calls.write("b", "new")
    calls.fsync("b")
    calls.rename("b", "a")
    calls.sync()
    assert after(calls, "nfs-server") == {"a=old", "a=old b=", "a=old b=new", "a=old b=000", "a=", "a=new", "a=000"}


def test_a_file_is_lost_with_the_directory_above_it():
    calls = Calls()
    calls.mkdir("d")
    calls.create("d/a")
    calls.write("d/a", "new")
    calls.fsync("d/a")
    assert after(calls, "ordered") == {"d/ d/a=new"}
    assert after(calls, "posix-min") == {"", "d/", "d/ d/a=new"}


def test_a_write_over_pages_may_last_in_part():
    calls = Calls()
    calls.create("a")
    calls.write("a", "x", of=6 * PAGE)
    parts = {state.disk["a"].extents for state in states(calls.log(), "ext4").states if state.crash.torn}
    assert {tuple((start, length) for start, length, data in each if data) for each in parts} >= {
        ((0, 2 * PAGE),), ((0, 4 * PAGE),), ((4 * PAGE, 2 * PAGE),)
    }  # fmt: skip
    calls.fsync("a")
    calls.nothing()
    assert not [
        each
        for each in states(calls.log(), "ext4", acks=[calls.last]).states
        if calls.last in each.crash.happened and each.crash.torn
    ]


def brute_force(legal: Legal) -> set[int]:
    """All sets of changes, one by one, held against what the fields of a `Legal` say."""

    def holds(lasts: int) -> bool:
        missing = legal.happened & ~lasts
        for cause, unless, effect in legal.implies:
            if lasts & cause == cause and not lasts & unless and effect & missing:
                return False
        return all(not legal.requires[each] & missing for each in bits(lasts & ~legal.free))

    optional = list(bits(legal.happened & ~legal.must))
    subsets = (
        sum(1 << each for at, each in enumerate(optional) if number >> at & 1) for number in range(1 << len(optional))
    )
    return {each | legal.must for each in subsets if holds(each | legal.must)}


@pytest.mark.parametrize("model", [name for name in MODELS if name != "kill"])
def test_legal_sets_are_those_of_brute_force(model: str):
    seen = 0
    for seed in range(90):
        log = litmus.log_of(litmus.program(Random(f"sets {seed}")), shared_journal=True)
        changes = Changes(log, MODELS[model].split, MODELS[model].tails)
        legal = Limits(changes, MODELS[model]).after((1 << min(len(log.entries), 9)) - 1)
        sets = list(legal.sets(legal.happened))
        assert len(sets) == len(set(sets))
        assert set(sets) == brute_force(legal)
        seen += len(sets)
        for number in bits(legal.happened & ~legal.must):
            assert legal.most(1 << number) in sets
            assert legal.least(1 << number) in sets
    assert seen > 200
