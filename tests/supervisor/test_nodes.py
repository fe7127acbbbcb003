"""Worlds of several nodes: which rank is where, and disks that belong to nodes."""

from __future__ import annotations

import pytest

import racecheck
from racecheck import Rank
from racecheck.model.errors import CannotRun, UsageError
from racecheck.model.nouns import Size, World
from racecheck.processes.session import Session
from racecheck.targets.scenarios import make_world
from tests.support.controlled_runs import run, values


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
