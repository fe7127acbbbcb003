"""Worlds of several nodes: which rank is where, and disks that belong to nodes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import racecheck
from racecheck import Rank
from racecheck.explore import runner
from racecheck.explore.requests import RunRequest, Search
from racecheck.explore.search import explore
from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.nouns import Size, World
from racecheck.scheduling.strategies import Replay
from racecheck.sessions.session import Session
from racecheck.targets import resolve
from racecheck.targets.scenarios import make_world
from tests.programs import nodes
from tests.support.controlled_runs import run, values
from tests.support.resharding import by_default
from tests.support.targets import target


def test_ranks_are_laid_out_as_torchrun_does(session: Session) -> None:
    for rank, found in enumerate(values(run(session, "laid_out", file="nodes"))):
        assert found == {
            "RANK": str(rank), "LOCAL_RANK": str(rank % 4), "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4",
            "GROUP_RANK": str(rank // 4), "GROUP_WORLD_SIZE": "2", "rank": f"{rank // 4}.{rank % 4}",
        }  # fmt: skip


def test_every_way_leads_to_the_nodes_own_disk(session: Session) -> None:
    outcome = run(session, "own_disks", file="nodes")
    for rank, found in enumerate(values(outcome)):
        node = rank // 2
        who = dict.fromkeys(["absolute", "through a link", "dots", "directory"], f"node {node}")
        assert found == {
            **who, "listing": ["ckpt", "given", "link", f"only{node}"], "relative": 6, "root": True, "above": ["disk"],
            "other": False, "setup": "the same everywhere",
        }  # fmt: skip
    assert {path for path in outcome.disk if "only" in path} == {"node0/only0", "node1/only1"}
    assert not outcome.coverage.holes


def test_the_watched_directory_itself_is_the_nodes_own(session: Session) -> None:
    outcome = run(session, "remove_all", file="nodes")
    assert values(outcome) == [True, True]
    assert list(outcome.disk) == ["node0/new"]


def test_what_only_the_kernel_could_do_ends_the_run(session: Session) -> None:
    """It would look on another disk: no finding may come of that."""
    with pytest.raises(CannotRun, match="chdir on a node-local disk"):
        run(session, "changes_directory", file="nodes")


def test_a_recovery_is_another_world_on_the_disk_that_was_left(session: Session) -> None:
    outcome = run(session, "saves", file="nodes")
    assert outcome.recovery is not None
    assert (outcome.recovery.world.ranks, outcome.recovery.world.nodes) == (2, 1)
    assert values(outcome.recovery) == [["shard0", "shard1"]] * 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": 3}, "4 ranks do not divide evenly among 3 nodes"),
        ({"nodes": 8}, "4 ranks do not divide evenly among 8 nodes"),
        ({"nodes": 0}, "among 0 nodes"),
        ({"skew": (0.0,) * 5}, "skew names rank 4, but the world has 4 ranks"),
        ({"skew": (float("nan"),)}, "a skew must be at most"),
        ({"backend": "mpi"}, "unknown backend 'mpi'; known: gloo, nccl, auto"),
        ({"sizes": {"steps": 0}}, "a size must be a name and a number from 1 to 1000000, not steps=0"),
        ({"sizes": {"steps": True}}, "a size must be a name and a number"),
        ({"sizes": {"": 1}}, "a size must be a name and a number"),
        ({"sizes": {1: 2}}, "a size must be a name and a number"),
        ({"sizes": ["steps"]}, "sizes must be a mapping, such as"),
        ({"sizes": {"steps": 1}}, "unknown size 'steps'; the scenario has: none"),
    ],
)
def test_a_world_that_cannot_be(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make_world(World(ranks=4), **changes)


def test_fewer_ranks_leave_the_skew_of_the_others_out() -> None:
    assert make_world(World(ranks=4, skew=(0, 1, 2, 3)), ranks=2).skew == (0, 1)


@pytest.mark.parametrize(("nodes", "ranks", "left"), [(1, 2, 1), (2, 2, 2), (4, 2, 2), (4, 3, 1), (2, 4, 2)])
def test_a_recovery_of_another_size_sits_on_as_many_nodes_as_share_it_out(nodes: int, ranks: int, left: int) -> None:
    @racecheck.scenario(ranks=4)
    def saves(rank: Rank) -> None:
        pass

    saves.recover(ranks=ranks)(saves.run)
    fresh = saves.fresh_world(World(ranks=4, nodes=nodes))
    assert (fresh.ranks, fresh.nodes) == (ranks, left)


def test_sizes_that_are_not_given_keep_their_value() -> None:
    world = World(sizes=(Size("steps", 3), Size("shards", 4)))
    assert make_world(world, sizes={"shards": 1}).sizes == (Size("steps", 3), Size("shards", 1))


def test_ways_that_lead_out_of_a_nodes_disk(session: Session) -> None:
    outcome = run(session, "leads_out", file="nodes")
    assert values(outcome) == [["Linux", True, ["f"], "x"]] * 2
    assert not outcome.coverage.holes


def test_each_node_has_a_host_name_that_leads_to_this_machine(session: Session) -> None:
    found = values(run(session, "hosts", file="nodes"))
    names = [each.pop("name") for each in found]
    assert names == [names[0], names[0], names[2], names[2]]
    assert names[0] != names[2]
    assert all(
        each == {"others": [], "reachable": True, "info": True, "leaders": 2, "unknown": True} for each in found
    ), found


def test_one_node_has_the_machine_s_host_name(session: Session) -> None:
    scenario = resolve.load(f"{Path(nodes.__file__)}::hosts")
    outcome = runner.run(session, RunRequest.of(scenario, World(ranks=2), by_default(2), seed="0"))
    assert [each["name"] for each in values(outcome)] == [socket.gethostname()] * 2


def test_ranks_of_a_node_share_its_tmpdir(session: Session) -> None:
    """Which one is first is explored."""
    found = values(run(session, "takes_turns", file="nodes"))
    assert [len(each) for each in found] == [2] * 4
    assert found[0] == found[1]
    assert found[2] == found[3]
    scenario = resolve.load(f"{Path(nodes.__file__)}::takes_turns")
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=60))
    assert report.exhaustive, report.claim
    winners = {tuple(values(each.outcome)[0]) for each in report.endings}
    assert winners == {("by 0", "taken"), ("by 1", "taken")}


def test_no_two_ranks_read_the_same_time(session: Session) -> None:
    outcome = run(session, "named_by_time", file="nodes")
    read = [each for found in values(outcome) for each in found]
    assert len(set(read)) == len(read)
    scenario = resolve.load(f"{Path(nodes.__file__)}::named_by_time")
    report = explore(session, Search(scenario, scenario.world, scenario.invariants, schedules=20))
    assert report.verdict.name == "PASS", report.violations


@pytest.mark.parametrize("name", ["asks_a_file", "asks_a_program"])
def test_nodes_that_are_asked_who_they_are_give_one_answer_which_is_a_gap(session: Session, name: str) -> None:
    gap = "a name or number of the machine, which is the same on all nodes here"
    outcome = run(session, name, file="nodes")
    first, second = values(outcome)
    assert first == second
    assert outcome.coverage.holes.keys() == {gap}
    scenario = target("nodes", name)
    alone = make_world(scenario.world, nodes=1)
    runner.warm_up(session, RunRequest.of(scenario, alone, Replay(()), seed="0"))
    assert not runner.run(session, RunRequest.of(scenario, alone, by_default(2), seed="0")).coverage.holes


def test_nodes_have_addresses_of_their_own(session: Session) -> None:
    first, second = values(run(session, "asks_for_an_address", file="nodes"))
    assert first != second
