"""Each rank asks whether there is a checkpoint, and over NFS the nodes get different answers.

**Report.**  Linux nfs(5), "Directory entry caching": a client remembers that a name does *not* exist, until the cached
attributes of its directory expire, by default 30 to 60 seconds later.

**Mechanism.**  Every rank looks for ``latest`` when it starts, to see whether to resume.  Later rank 0 publishes, all
meet at a barrier, and every rank looks again, to load.  A barrier does not refresh the cache of a client: a node that
has once been told ENOENT may still say so.  Its ranks take the other branch, in which there are other collectives.

**What must be found.**

- ``every_rank_looks``: the ranks take different branches, and hang.
- ``pointer_is_read``, judged by what the ranks see of ``latest``: it is not there, though it was published before.
- ``rank_0_looks``, and broadcasts what ``latest`` says: holds.  The others open what it names, for which they have not
  looked before.
"""

from __future__ import annotations

from typing import Any

import racecheck
from racecheck import DEFAULT, Rank, Verdict, equal_collectives, latest_consistency, no_deadlock

REPORT = "nfs(5), directory entry caching"
nfs = {"ranks": 2, "nodes": 2, "storage": "nfs", "report": REPORT}


def publish(rank: Rank) -> None:
    """Rank 0 saves and names what it has saved, and all wait for it."""
    import torch.distributed as dist

    if rank.rank == 0:
        (rank.path / "step-1").write_text("weights")
        temporary = rank.path / "latest.tmp"
        temporary.write_text("step-1")
        temporary.replace(rank.path / "latest")
    dist.barrier()


def run(rank: Rank) -> None:
    """Look whether to resume, train and save, and look again."""
    import torch.distributed as dist

    latest = rank.path / "latest"
    latest.exists()
    publish(rank)
    if latest.exists():
        dist.barrier()


@racecheck.scenario(**nfs, invariants=(no_deadlock, equal_collectives), expected=Verdict.FAIL, breaks="no-deadlock")
def every_rank_looks(rank: Rank) -> None:
    """Each decides for itself."""
    run(rank)


@racecheck.scenario(**nfs, invariants=(latest_consistency,), expected=Verdict.FAIL, breaks="latest-consistency")
def pointer_is_read(rank: Rank) -> None:
    """The same, judged by what they see."""
    run(rank)


@racecheck.scenario(**nfs, invariants=DEFAULT)
def rank_0_looks(rank: Rank) -> None:
    """Rank 0 decides for all."""
    import torch.distributed as dist

    latest = rank.path / "latest"
    latest.exists()
    publish(rank)
    answer = [latest.read_text() if rank.rank == 0 and latest.exists() else None]
    dist.broadcast_object_list(answer)
    if answer[0] is not None:
        assert (rank.path / answer[0]).read_text() == "weights"
        dist.barrier()


def test_every_rank_looks(racecheck: Any) -> None:
    racecheck.finds(every_rank_looks, within=20)


def test_pointer_is_read(racecheck: Any) -> None:
    racecheck.finds(pointer_is_read, within=20)


def test_rank_0_looks(racecheck: Any) -> None:
    racecheck.check(rank_0_looks, schedules=15)
