"""Which op a fault hits depends on the order of ops, and a proof has tried each order that matters."""

from __future__ import annotations

import errno

import pytest

from racecheck.model import Fault, Returned, World
from racecheck.relation import Relation
from racecheck.scenarios import make_world
from racecheck.search import Search, explore
from racecheck.storage.footprints import footprint
from racecheck.world.session import Session
from tests.builders import op
from tests.conftest import target

EIO, ENOSPC = errno.EIO, errno.ENOSPC


def ends(session: Session, name: str, *faults: str) -> list[object]:
    """What ranks may return, once for each way to end."""
    scenario = target("fault_orders", name)
    asked = Search(scenario, make_world(scenario.world, faults=faults), scenario.invariants, strategy="dpor", keep_going=True)
    report = explore(session, asked)
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
