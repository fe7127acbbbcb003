"""What ops touch: each family on purpose, pairs of ops in both orders on a real file system, and what has no file."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from racecheck.kernel.syscalls import TABLE
from racecheck.model.hypercalls import AMONG_THREADS
from racecheck.model.nouns import Op, Place, Result, World
from racecheck.model.ops.footprint import Footprint, Mode, depends, only_reads
from racecheck.scheduling.parts import WALK
from racecheck.storage.footprints import FAMILIES, footprint
from racecheck.storage.node_local import NodeLocal
from tests.support import soak
from tests.support.builders import op, use
from tests.support.diamonds import (
    HERE,
    Argument,
    Call,
    Did,
    File,
    Hand,
    Link,
    Room,
    Seen,
    diamond,
    kept,
    names_of,
    orders,
    stat_of,
)

CREATE = os.O_RDWR | os.O_CREAT
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


def mkdir(path: str) -> Call:
    return Call("mkdirat", (HERE, path, 0o755))


def rmdir(path: str) -> Call:
    return Call("unlinkat", (HERE, path, 0x200))


def unlink(path: str) -> Call:
    return Call("unlinkat", (HERE, path, 0))


def rename(source: str, target: str, flags: int = 0) -> Call:
    return Call("renameat2", (HERE, source, HERE, target, flags))


def link(source: str, target: str) -> Call:
    return Call("linkat", (HERE, source, HERE, target, 0))


def symlink(target: bytes, path: str) -> Call:
    return Call("symlinkat", (target, HERE, path))


def stat(path: str) -> Call:
    return Call("newfstatat", (HERE, path, Room(stat_of), 0))


def opens(path: str, how: int = os.O_RDWR) -> Call:
    return Call("openat", (HERE, path, how, 0o644))


def chmod(path: str, mode: int = 0o700) -> Call:
    return Call("fchmodat", (HERE, path, mode))


FILE, LAST_DIRECTORY = File("file", 0), File("directory", 0)
LISTS = Call("getdents64", (LAST_DIRECTORY, Room(names_of), 4096))
READS = Call("read", (FILE, Room(kept), 4))
WRITES = Call("write", (FILE, b"xy", 2))
TELLS = Call("fstat", (FILE, Room(stat_of)))


def below(name: bytes, call: str, *rest: Argument) -> Call:
    """A call on a name in the directory that was opened last."""
    return Call(call, (LAST_DIRECTORY, name, *rest))


def flock(how: int) -> Call:
    return Call("flock", (FILE, how | 4))


def record(how: int, start: int = 0, length: int = 0) -> Call:
    """A record lock of a process: 0 is shared, 1 exclusive, 2 gives it back."""
    return Call("fcntl", (FILE, 6, struct.pack("hhqqi4x", how, 0, start, length, 0)))


INDEPENDENT: dict[str, tuple[list[Did], Call, Call]] = {
    "two names in one directory": ([], mkdir("d/x"), mkdir("d/y")),
    "a name made and one removed": ([], opens("d/x", CREATE), unlink("d/a")),
    "a directory that both find": ([], mkdir("d"), mkdir("d")),
    "a file that both find": ([], opens("a", CREATE), opens("a", CREATE)),
    "an empty file is emptied": ([(1, opens("x", CREATE))], opens("x", os.O_RDWR | os.O_TRUNC), READS),
    "stat of a directory, and a name in it": ([], stat("d"), mkdir("d/x")),
    "stat of a file, and its neighbour": ([(1, opens("d/a"))], stat("a"), WRITES),
    "open does not read": ([(1, opens("a"))], opens("a", os.O_RDONLY), WRITES),
    "an open file has no name": ([(0, opens("a"))], WRITES, rename("a", "b")),
    "a file that was open is renamed over": ([(0, opens("a"))], READS, rename("d/a", "a")),
    "two names of one file": ([], rename("a", "h"), stat("a")),
    "onto itself": ([], rename("a", "a"), stat("a")),
    "two names of one file go": ([], unlink("a"), unlink("h")),
    "readers": ([(0, opens("a")), (1, opens("a"))], READS, READS),
    "mode and bytes": ([(1, opens("a"))], chmod("a"), WRITES),
    "no more names": ([(0, opens("d", DIRECTORY)), (0, LISTS)], LISTS, mkdir("d/x")),
    "locks of different files": ([(0, opens("a")), (1, opens("d/a"))], flock(2), flock(2)),
    "locks that neither gets": ([(2, opens("a")), (2, flock(2)), (0, opens("a")), (1, opens("a"))], flock(2), flock(2)),
    "shared locks": ([(0, opens("a")), (1, opens("a"))], flock(1), flock(1)),
    "a shared lock given back": ([(0, opens("a")), (1, opens("a")), (0, flock(1))], flock(8), flock(1)),
    "locks of two kinds": ([(0, opens("a")), (1, opens("a"))], flock(2), record(1)),
    "a failed removal": ([], rmdir("d"), opens("d/a")),
    "renames in different directories": ([], rename("d/a", "d/b"), rename("a", "b")),
}

DEPENDENT: dict[str, tuple[str, list[Did], Call, Call]] = {
    "who makes it": ("entry", [], mkdir("x"), mkdir("x")),
    "a name that is not there yet": ("entry", [], stat("x"), opens("x", CREATE)),
    "a directory above is not there yet": ("entry", [], mkdir("x/y"), mkdir("x")),
    "a directory above goes": ("entry", [], stat("d/a"), rename("d", "x")),
    "a link on the way": ("entry", [], stat("l/a"), unlink("l")),
    "a link that comes after a link": ("entry", [], stat("m"), rename("l", "x")),
    "a link at the end": ("entry", [], stat("l"), unlink("l")),
    "the target of a link that leads nowhere": ("entry", [], stat("k"), opens("gone", CREATE)),
    "behind a link to a link to nothing": ("entry", [(0, symlink(b"k", "q"))], stat("q/a"), symlink(b"d", "gone")),
    "a link that leads out": ("entry", [], stat("o"), unlink("o")),
    "a directory that the way leads through": ("entry", [], stat("e/../a"), rmdir("e")),
    "where a directory is": ("entry", [(0, opens("d/s", DIRECTORY))], below(b"../a", "newfstatat", Room(stat_of), 0),
                             rename("d/s", "e/s")),
    "a directory that was removed": ("entry", [(0, opens("e", DIRECTORY))], below(b"x", "mkdirat", 0o755), rmdir("e")),
    "what a name stands for": ("entry", [], rename("a", "e", 2), stat("e")),
    "a name that must be free": ("entry", [], rename("a", "x", 1), mkdir("x")),
    "a name that must be there": ("entry", [], link("d/a", "x"), unlink("d/a")),
    "an emptied file": ("content", [(1, opens("a"))], opens("a", os.O_RDWR | os.O_TRUNC), READS),
    "an empty file that is filled": (
        "content", [(1, opens("x", CREATE))], opens("x", os.O_RDWR | os.O_TRUNC), WRITES
    ),
    "room that is made": ("content", [(1, opens("a"))], stat("a"), Call("fallocate", (FILE, 0, 0, 99))),
    "the size": ("content", [(1, opens("a"))], stat("a"), Call("ftruncate", (FILE, 3))),
    "bytes": ("content", [(0, opens("a")), (1, opens("a"))], READS, WRITES),
    "bytes by another name": ("content", [(0, opens("h")), (1, opens("a"))], READS, WRITES),
    "the end": ("content", [(0, opens("a")), (1, opens("a", os.O_RDWR | os.O_APPEND))],
                Call("lseek", (FILE, 0, os.SEEK_END)), WRITES),
    "names": ("listing", [(0, opens("d", DIRECTORY))], LISTS, mkdir("d/x")),
    "an empty directory": ("listing", [], rmdir("e"), opens("e/x", CREATE)),
    "a target that must be empty": ("listing", [], rename("d/s", "e"), mkdir("e/x")),
    "a directory that is renamed over": ("directory", [(0, opens("e", DIRECTORY)), (0, LISTS)], LISTS,
                                         rename("d/s", "e")),
    "whether it is there": ("directory", [(0, opens("e", DIRECTORY)), (0, LISTS)], LISTS, rmdir("e")),
    "the mode": ("attributes", [(0, opens("a"))], TELLS, chmod("a")),
    "one name fewer": ("links", [(0, opens("a"))], TELLS, unlink("h")),
    "one name more": ("links", [(0, opens("a"))], TELLS, link("a", "x")),
    "a name that goes to another": ("links", [(0, opens("d/a"))], TELLS, rename("a", "d/a")),
    "the last name": ("links", [(0, opens("a")), (0, unlink("a"))], Call("linkat", (FILE, b"", HERE, "x", 0x1000)),
                      unlink("h")),
    "the last name, by a link of /proc": ("links", [(0, opens("a")), (0, unlink("a"))],
                                          Call("linkat", (HERE, Link(FILE), HERE, "x", 0x400)), unlink("h")),
    "a lock": ("lock", [(0, opens("a")), (1, opens("a"))], flock(2), flock(2)),
    "a lock given back": ("lock", [(0, opens("a")), (1, opens("a")), (0, flock(2))], flock(8), flock(2)),
    "a lock converted in vain": ("lock", [(0, opens("a")), (1, opens("a")), (0, flock(1)), (1, flock(1))],
                                 flock(2), flock(2)),
    "a record lock": ("record", [(0, opens("a")), (1, opens("a"))], record(1), record(1)),
    "a shared record lock": ("record", [(0, opens("a")), (1, opens("a"))], record(0), record(1)),
    "a record lock given back": ("record", [(0, opens("a")), (1, opens("a")), (0, record(1))], record(2), record(1)),
    "a record lock that goes with its file": ("record", [(0, opens("a")), (1, opens("a")), (0, record(1))],
                                              Call("close", (FILE,)), record(1)),
    "a lock that goes with its file": ("lock", [(0, opens("a")), (1, opens("a")), (0, flock(2))],
                                       Call("close", (FILE,)), flock(2)),
}  # fmt: skip


def conflicts(one: Op, other: Op) -> set[str]:
    """At which kinds of locations two ops are in conflict."""
    first, second = footprint(one), footprint(other)
    return {
        location.kind for location in first.keys() & second.keys()
        if depends({location: first[location]}, {location: second[location]})
    }  # fmt: skip


def both(root: Path, before: list[Did], one: Did, other: Did) -> tuple[Seen, Seen]:
    def prepare(hand: Hand) -> tuple[Did, Did]:
        for thread, call in before:
            hand.do(thread, fixed(hand, (thread, call))[1])
        return fixed(hand, one), fixed(hand, other)

    return orders(root, prepare)


def fixed(hand: Hand, did: Did) -> Did:
    call = hand.about(*did)
    assert call is not None
    return did[0], call


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory in memory, if there is one: on a disk the kernel takes its time."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as made:
        yield Path(made).resolve()


def test_every_family_is_placed() -> None:
    announced = {"issue", "store", "test", *AMONG_THREADS}
    assert FAMILIES.keys() == {call.family for call in TABLE.values()} | announced | {WALK}


@pytest.mark.parametrize("what", INDEPENDENT)
def test_no_thread_can_notice(root: Path, what: str) -> None:
    before, one, other = INDEPENDENT[what]
    first, second = both(root, before, (0, one), (1, other))
    assert [conflicts(*each.ops) for each in (first, second)] == [set(), set()]
    assert first.same(second)


@pytest.mark.parametrize("what", DEPENDENT)
def test_another_thread_can_notice(root: Path, what: str) -> None:
    """By this sort of location, in one order at least by nothing else: who left it out would miss it."""
    kind, before, one, other = DEPENDENT[what]
    first, second = both(root, before, (0, one), (1, other))
    assert not first.same(second)
    found = [conflicts(*each.ops) for each in (first, second)]
    assert all(found)
    assert {kind} in found


def test_threads_share_where_they_are_in_a_file(root: Path) -> None:
    first, second = both(root, [(0, opens("a"))], (0, READS), (2, READS))
    assert not first.same(second)
    assert conflicts(*first.ops) == conflicts(*second.ops) == {"offset"}


def test_every_kind_of_location_has_its_case() -> None:
    assert {kind for kind, *_ in DEPENDENT.values()} == {
        "entry", "content", "listing", "directory", "attributes", "links", "lock", "record",
    }  # fmt: skip


def check_diamonds(root: Path, seeds: range) -> int:
    """Random pairs; returns how many were independent."""
    independent = 0
    for seed in seeds:
        seen = diamond(root / str(seed), str(seed), 4 + seed % 24)
        shutil.rmtree(root / str(seed))
        if any(each.path.startswith("/") for one in seen for op_ in one.ops for each in op_.places):
            continue  # of what is outside the watched directory nobody keeps account
        related = [bool(conflicts(*each.ops)) for each in seen]
        assert related[0] == related[1], f"seed {seed}: in one order only {seen[0].ops} are in conflict"
        assert related[0] or seen[0].same(seen[1]), f"seed {seed}: {seen[0].ops} are not, {seen[1].ops} see it"
        independent += not related[0]
        for each in (*seen[0].ops, *seen[1].ops):
            check_bounds(each)
    return independent


def check_bounds(done: Op) -> None:
    """What failed has only read, and what is done has touched no more than it might have when it was pending."""
    assert done.result is not None
    touched, bound = footprint(done), footprint(replace(done, result=None))
    assert only_reads(touched) or not done.result.errno, done
    assert all(bound.get(where) in {mode, Mode.WRITE} for where, mode in touched.items()), done


def test_random_pairs(root: Path) -> None:
    assert check_diamonds(root, range(200)) > 130


@pytest.mark.slow
def test_many_random_pairs(root: Path) -> None:
    assert check_diamonds(root, range(1000, 1500)) > 375


@pytest.mark.soak
def test_fresh_random_pairs(root: Path) -> None:
    for seed in soak.seeds():
        check_diamonds(root, range(seed, seed + 1))


# Places.


def places(hand: Hand, call: Call) -> list[tuple[str, tuple[str, ...]]]:
    done, _ = hand.do(0, fixed(hand, (0, call))[1])
    return [(each.path, each.through) for each in done.places]


def test_a_place_says_by_which_links_and_directories_it_was_reached(root: Path) -> None:
    (root / "watched").mkdir()
    hand = Hand(root / "watched")
    try:
        for call in (symlink(b"k", "q"), symlink(b"p", "r"), symlink(b"r", "p"), opens("d/s", DIRECTORY)):
            hand.do(0, call)
        hand.do(0, Call("symlinkat", (os.fsencode(root / "watched" / "d"), HERE, "absolute")))
        for path, found in {
            "d/a": ("d/a", ()),
            "l/a": ("d/a", ("l",)),
            "l": ("d", ("l",)),
            "m": ("d/s", ("m", "l")),
            "m/a": ("d/s/a", ("m", "l")),
            "absolute/s/a": ("d/s/a", ("absolute",)),
            "k": ("gone", ("k",)),
            "k/a": ("gone/a", ("k",)),
            "q/a/b": ("gone/a/b", ("q", "k")),
            "e/../d/a": ("d/a", ("e",)),
            "l/../a": ("a", ("l", "d")),
            "d/s/..": ("d", ("d/s",)),
            "no/x/../y": ("no/x", ()),
            "a/x": ("a/x", ()),
            "d//./a": ("d/a", ()),
        }.items():
            assert places(hand, stat(path)) == [found], path
        assert places(hand, unlink("l")) == [("l", ())]
        assert places(hand, below(b"../a", "newfstatat", Room(stat_of), 0)) == [("d/a", ("d/s",))]
        assert places(hand, stat("o")) == [("/proc/self/cmdline", ("o",))]
        for path in ("p", "p/x"):
            [(end, through)] = places(hand, stat(path))
            assert {"p", "r"} <= {*through, *end.split("/")}, path
    finally:
        hand.close()


def test_a_place_says_how_long_the_file_was(root: Path) -> None:
    (root / "watched").mkdir()
    hand = Hand(root / "watched")
    try:
        sizes = [
            hand.do(0, fixed(hand, (0, call))[1])[0].places[-1].size
            for call in (opens("x", CREATE), WRITES, WRITES, TELLS, stat("x"), stat("d"), stat("l"), stat("no"))
        ]
        assert sizes == [0, 0, 2, 4, 4, 0, 0, 0]
    finally:
        hand.close()


# What is about no file, or not known.


def of(op_: Op) -> Footprint:
    return footprint(op_)


def test_closing_a_file_is_noticed_only_if_a_lock_goes_with_it() -> None:
    closing, locking = use("0 close a", 1, inode=7), use("1 flock a", 2, inode=7)
    assert not depends(of(closing), of(locking))
    assert depends(of(replace(closing, flags=("LOCK_UN",))), of(locking))


def test_a_file_that_a_pending_open_would_make() -> None:
    made = op("1 stat x")
    assert depends(of(op("0 open x", flags=("O_CREAT",), result=None)), of(made))
    assert not depends(of(op("0 open x", flags=("O_RDONLY",), result=None)), of(made))


def test_what_the_kernel_did_unobserved_may_have_gone_either_way() -> None:
    unknown = op("0 open x", flags=("O_CREAT",), result=Result(known=False))
    assert depends(of(unknown), of(op("1 stat x", errno="ENOENT")))


def test_a_query_of_a_lock_only_reads() -> None:
    asking = use("0 flock a", 1, inode=7, flags=("F_GETLK",))
    assert only_reads(of(asking))
    assert depends(of(asking), of(use("1 flock a", 2, inode=7, flags=("F_SETLK",))))


def test_the_mode_of_a_directory_is_about_all_that_is_below() -> None:
    """(Not for root, whom no mode stops.)"""
    directory = Place("d", 2, "d", 3, "directory")
    assert depends(of(op("0 chmod d", places=(directory,))), of(op("1 stat d/x/y")))
    assert not depends(of(op("0 utime d", places=(directory,))), of(op("1 stat d/x/y")))


def test_a_time_that_is_set_comes_after_writes_or_before() -> None:
    setting = op("0 utime a", inode=7)
    assert depends(of(setting), of(use("1 write a", 2, inode=7, size=3)))
    assert depends(of(setting), of(op("1 stat a", inode=7)))


def test_calls_that_may_begin_where_the_last_one_ended() -> None:
    for syscall, args, shares in (
        ("preadv2", {"offset": -1}, True),
        ("preadv2", {"offset": 0}, False),
        ("pread64", {"offset": 5}, False),
        ("copy_file_range", {}, True),
        ("getdents64", {}, True),
    ):
        mine = use("0 read a", 1, inode=7, syscall=syscall, args=args)
        theirs = replace(mine, thread="0.1")
        assert depends(of(mine), of(theirs)) == shares, syscall


def test_collectives_and_keys_of_the_store() -> None:
    issued = op("0 issue barrier of group 0", places=(Place("barrier of group 0", 0, "0", 0, ""),))
    again = replace(issued, thread="0.1", places=(Place("all_reduce of group 0", 0, "0", 0, ""),))
    assert depends(of(issued), of(again)), "the order of the collectives of a group"
    assert not depends(of(issued), of(replace(again, rank=1, thread="1")))
    add, check = (op(f"{rank} store key", syscall=how) for rank, how in enumerate(("add", "check")))
    assert depends(of(add), of(check))
    assert not depends(of(check), of(replace(check, thread="2")))


def test_where_nothing_is_nothing_is_shared() -> None:
    """Ops that find nothing at two names do not conflict with ops that find nothing at others."""
    nowhere = [op(f"{rank} open x{rank}", errno="ENOENT", flags=("O_TRUNC",)) for rank in range(2)]
    assert not depends(of(nowhere[0]), of(nowhere[1]))
    assert all(location.key for location in of(nowhere[0]))


def test_a_way_that_only_the_kernel_knows() -> None:
    rooted = op("0 open d", inode=3, flags=("O_RDONLY", "RESOLVE_IN_ROOT"))
    assert depends(of(rooted), of(op("1 mkdir d/x")))


def test_what_is_not_modelled_is_in_conflict_with_whatever_is_there() -> None:
    for family in ("watch", "handle", "no such family"):
        assert depends(of(op(f"0 {family.replace(' ', '-')} d", inode=3)), of(op("1 stat d/x")))


def test_the_same_name_on_other_nodes() -> None:
    storage = NodeLocal(World(ranks=4, nodes=2, storage="node-local"))
    mine, beside, elsewhere = (storage.footprint(op(f"{rank} mkdir x")) for rank in (0, 1, 2))
    assert depends(mine, beside)
    assert not depends(mine, elsewhere)
    scratch = [storage.footprint(op(f"{rank} mkdir TMPDIR/0/x")) for rank in (0, 2)]
    assert depends(*scratch), "a TMPDIR is on no node's disk"
    issued = [storage.footprint(op(f"{rank} store key", syscall="add")) for rank in (0, 2)]
    assert depends(*issued)
