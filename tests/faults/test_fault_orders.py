"""Which op a fault hits depends on the order of ops, and a proof has tried each order that matters."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from racecheck.explore.requests import Search
from racecheck.explore.search import explore
from racecheck.model.nouns import Fault, Op, Result, Returned, World
from racecheck.model.ops.footprint import Location, Mode
from racecheck.scheduling.happens_before import Order
from racecheck.scheduling.relation import Relation
from racecheck.sessions.session import Session
from racecheck.storage.footprints import footprint
from racecheck.targets.scenarios import make_world
from tests.support.builders import op, use
from tests.support.targets import target

EIO, ENOSPC = errno.EIO, errno.ENOSPC


def ends(session: Session, name: str, *faults: str) -> list[object]:
    """What ranks may return, once for each way to end."""
    scenario = target("fault_orders", name)
    world = make_world(scenario.world, faults=faults)
    report = explore(session, Search(scenario, world, scenario.invariants, strategy="dpor", keep_going=True))
    assert report.exhaustive, report.reasons
    found = [[each.value for each in ending.outcome.results if isinstance(each, Returned)] for ending in report.endings]
    return sorted(found, key=repr)


@pytest.mark.parametrize("name", ["two_threads_write", "parent_and_child_write"])
@pytest.mark.parametrize("spec", ["EIO on write rank=0 nth=2", "EIO on write", "torn on write bytes=2 nth=2"])
def test_either_thread_of_a_rank_meets_the_fault(session: Session, name: str, spec: str) -> None:
    assert ends(session, name, spec) == [[[0, EIO]], [[EIO, 0]]]


@pytest.mark.parametrize("spec", ["EIO on write nth=2", "EIO on write node=0", "torn on write"])
def test_either_rank_meets_the_fault(session: Session, spec: str) -> None:
    assert ends(session, "two_ranks_write", spec) == [[0, EIO], [EIO, 0]]


def test_the_room_on_a_disk_is_for_the_rank_that_comes_first(session: Session) -> None:
    assert ends(session, "two_ranks_write", "full bytes=5") == [[0, ENOSPC], [ENOSPC, 0]]


def test_a_fault_that_hits_all_ops_leaves_them_independent(session: Session) -> None:
    assert ends(session, "two_ranks_write", "EIO on write times=all") == [[EIO, EIO]]


def test_an_fsync_that_a_fault_counts_is_a_point(session: Session) -> None:
    assert ends(session, "two_ranks_sync", "EIO on fsync") == [[0, EIO], [EIO, 0]]


@pytest.mark.parametrize("glob", ["old/*", "new/*"])
def test_a_path_matches_before_or_after_a_rename(session: Session, glob: str) -> None:
    assert ends(session, "directory_is_renamed", f"EIO on fsync {glob} rank=0") == [[0, 0], [EIO, 0]]


@pytest.mark.parametrize(
    ("fault", "made", "expected"),
    [
        (Fault("EIO", ("write",)), op("0 write a"), True),
        (Fault("EIO", ("write",), rank=0), op("0 write a"), False),
        (Fault("EIO", ("write",), rank=0), op("0 write a", alone=False), True),
        (Fault("EIO", ("write",), node=1), op("2 write a"), False),
        (Fault("EIO", ("write",), times=0), op("0 write a"), False),
        (Fault("EIO", ("write",), nth=0), op("0 write a"), False),
        (Fault("EIO", ("write",), "b"), op("0 write a"), False),
        (Fault("EIO", ("read",)), op("0 write a"), False),
        (Fault("full"), op("0 write a"), True),
        (Fault("full", node=1), op("0 write a"), False),
        (Fault("crash"), op("0 write a"), False),
    ],
)
def test_an_op_touches_a_fault_whose_count_it_shares_with_others(fault: Fault, made: Op, expected: bool) -> None:
    relation = Relation(World(ranks=3, nodes=3 if fault.node >= 0 else 1, faults=(fault,)))
    assert (Location("fault", 0) in relation.footprint(made)) is expected


def test_a_fault_behind_another_counts_although_it_hits_all() -> None:
    """The first takes an op away from the second, which then never begins."""
    faults = (Fault("EIO", ("write",)), Fault("ENOSPC", ("write",), times=0))
    touched = Relation(World(ranks=2, faults=faults)).footprint(op("0 write a"))
    assert {Location("fault", 0), Location("fault", 1)} <= touched.keys()


def test_an_op_through_a_descriptor_reads_its_names_where_a_fault_has_a_glob() -> None:
    relation = Relation(World(ranks=2, faults=(Fault("EIO", ("fsync",), "new/*", rank=0),)))
    made = use("0 fsync old/file", 3, inode=7)
    assert relation.visible(made)
    assert relation.footprint(made)[Location("entry", "old")] is Mode.READ
    assert not relation.visible(use("1 fsync old/file", 3, inode=7))


def test_what_an_op_has_done_counts_although_it_reports_an_errno() -> None:
    torn = replace(use("0 write a", 3, inode=7), syscall="write", result=Result(errno="EIO", size=2))
    assert footprint(torn)[Location("content", 7)] is Mode.WRITE
    assert footprint(torn)[Location("offset", 3)] is Mode.WRITE
    failed = replace(torn, result=Result(errno="EIO"))
    assert Location("content", 7) not in footprint(failed)
    closed = op("0 close a", errno="EIO", inode=7, flags=("LOCK_UN",))
    assert footprint(closed)[Location("lock", 7)] is Mode.WRITE


def test_a_wait_for_one_lock_races_with_no_op_while_another_rank_holds_it() -> None:
    """A fault may count ops that are not about the lock: they come before the wait as long as the lock is held."""
    relation = Relation(World(ranks=2, faults=(Fault("EIO", ("flock", "mkdir"), nth=9),)))
    order = Order(relation)
    asked = [
        use("1 flock m", 1, inode=1, syscall="flock", flags=("LOCK_EX",)),
        op("1 mkdir d"),
        use("1 flock m", 1, inode=1, syscall="flock", flags=("LOCK_UN",)),
        use("0 flock m", 2, inode=1, syscall="flock", flags=("LOCK_EX",)),
    ]
    for count, each in enumerate(asked, 1):
        order.add(replace(each, clock={each.thread: count if each.rank else 1}))
    assert [*order.steps[-1].races] == [0]
