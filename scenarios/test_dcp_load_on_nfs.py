"""``dcp.save`` has returned, and ``dcp.load`` on another node finds no ``.metadata``.

This is the real ``torch.distributed.checkpoint``, on 2 nodes that have an NFS mount, or a bucket, in common.

**Report.**  None that is public.

**Mechanism.**  Before anything is written, every rank asks whether ``.metadata`` is there, to warn of overwriting
(``FileSystemWriter.prepare_local_plan`` in torch 2.13).  A client of NFS remembers that it is not, for as long as it
takes the directory's attributes to be known: 30 seconds at least, by default (nfs(5): acdirmin, lookupcache).  What its
own node creates there changes nothing of that.  Rank 0, on another node, then renames the finished metadata to this
name, and ``dcp.save`` returns everywhere.  Who loads within these seconds gets ENOENT, and so the load fails on all
ranks.  gcsfuse, too, remembers for 5 seconds what was not there.  (Linux 6.1 as client and server of NFS 3 and 4.2
answers these very calls in this way; with ``lookupcache=pos`` or ``actimeo=0`` it finds the file.)

**What must be found.**

- ``at_once``, on NFS and on a bucket: in ``dcp.load``, "metadata is None" on the node that did not write it.
- ``one_looks``: a writer in which only the coordinator looks, and makes the directory: holds on both.
- ``lookupcache``: mounted with ``lookupcache=pos``, so that only what is there is remembered: holds.  So does a bucket
  with ``negative-ttl=0``, which is ``--metadata-cache-negative-ttl-secs`` of gcsfuse.
"""

from __future__ import annotations

from typing import Any

import racecheck
from racecheck import DEFAULT, Rank, Verdict, consistent_weights

LOADED = (*DEFAULT, consistent_weights)


def weights(value: float) -> dict[str, Any]:
    import torch

    return {f"layer{number}": torch.full((8,), value + number) for number in range(2)}


def save_and_load(rank: Rank, writer: Any) -> None:
    """What was saved is loaded at once, as it is to hand weights on, or to go back after a spike."""
    import torch.distributed.checkpoint as dcp

    state = weights(1.0)
    rank.saved(state, step=1)
    dcp.save(state, storage_writer=writer)
    found = weights(0.0)
    dcp.load(found, checkpoint_id=rank.path / "step-1")
    rank.loaded(found, step=1)


def as_it_is(rank: Rank) -> Any:
    import torch.distributed.checkpoint as dcp

    return dcp.FileSystemWriter(rank.path / "step-1")


def coordinated(rank: Rank) -> Any:
    """A writer whose other ranks leave it to the coordinator to look, and to make the directory.

    It has done so before any of them opens its file: they wait for its plan.
    """
    import torch.distributed.checkpoint as dcp

    class Coordinated(dcp.FileSystemWriter):
        def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **named: Any) -> None:
            super().set_up_storage_writer(is_coordinator, *args, **named)
            self.is_coordinator = is_coordinator

        def prepare_local_plan(self, plan: Any) -> Any:
            return super().prepare_local_plan(plan) if self.is_coordinator else plan

    return Coordinated(rank.path / "step-1")


@racecheck.scenario(nodes=2, storage="nfs", invariants=LOADED, expected=Verdict.FAIL, breaks="no-unexpected-errors")
def at_once(rank: Rank) -> None:
    """Every rank looks for the metadata before there is any."""
    save_and_load(rank, as_it_is(rank))


@racecheck.scenario(
    nodes=2, storage="object(gcsfuse)", invariants=LOADED, expected=Verdict.FAIL, breaks="no-unexpected-errors"
)
def at_once_on_a_bucket(rank: Rank) -> None:
    """The same with gcsfuse."""
    save_and_load(rank, as_it_is(rank))


@racecheck.scenario(nodes=2, storage="nfs", invariants=LOADED)
def one_looks(rank: Rank) -> None:
    """Only the coordinator looks."""
    save_and_load(rank, coordinated(rank))


@racecheck.scenario(nodes=2, storage="object(gcsfuse)", invariants=LOADED)
def one_looks_on_a_bucket(rank: Rank) -> None:
    """The same with gcsfuse."""
    save_and_load(rank, coordinated(rank))


@racecheck.scenario(nodes=2, storage="nfs(lookupcache=pos)", invariants=LOADED)
def lookupcache(rank: Rank) -> None:
    """Every rank looks, and what was not there is not remembered."""
    save_and_load(rank, as_it_is(rank))


@racecheck.scenario(nodes=2, storage="object(gcsfuse, negative-ttl=0)", invariants=LOADED)
def negative_ttl(rank: Rank) -> None:
    """The same with gcsfuse."""
    save_and_load(rank, as_it_is(rank))


def test_at_once(racecheck: Any) -> None:
    racecheck.finds(at_once, within=5)


def test_at_once_on_a_bucket(racecheck: Any) -> None:
    racecheck.finds(at_once_on_a_bucket, within=5)


def test_one_looks(racecheck: Any) -> None:
    racecheck.check(one_looks, schedules=6)


def test_one_looks_on_a_bucket(racecheck: Any) -> None:
    racecheck.check(one_looks_on_a_bucket, schedules=6)


def test_lookupcache(racecheck: Any) -> None:
    racecheck.check(lookupcache, schedules=6)


def test_negative_ttl(racecheck: Any) -> None:
    racecheck.check(negative_ttl, schedules=6)
