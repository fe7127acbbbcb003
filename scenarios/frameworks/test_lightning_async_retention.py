"""``AsyncCheckpointIO`` with ``ModelCheckpoint``: the old checkpoint is deleted before the new one is written.

This is the real Lightning (2.6), with DDP; it takes an environment that has it (``lightning==2.6.6``).

**Report.**  Lightning #14035 ("Async checkpointing race conditions", open).

**Mechanism.**  ``ModelCheckpoint`` saves and then removes what is one too many; by default (``save_top_k=1``) that is
the checkpoint before.  ``AsyncCheckpointIO.save_checkpoint`` gives the save to a thread and returns, while
``remove_checkpoint`` goes to the plugin below it at once.  A job that is killed in between has no checkpoint.

**What must be found.**

- ``by_default``: killed just after a removal, the job has lost the step on which all ranks counted.
- ``one_more``: ``save_top_k=2`` keeps the one that is complete until the next but one is saved, which waits in the
  plugin's queue behind the one in between.
"""

from __future__ import annotations

from typing import Any

import racecheck
from racecheck import Rank, Verdict, durable_after_ack, old_survives
from racecheck.targets.adapters.lightning import LightningAsync
from racecheck.targets.suite.driver import Driver

KILLED = ("kill-job on unlink *.ckpt when=after",)
SURVIVES = (durable_after_ack, old_survives)


class OneMore(LightningAsync):
    """Keeps two."""

    save_top_k = 2


def save(job: Driver, steps: int) -> None:
    for step in range(1, steps + 1):
        begun = job.begin(step)
        job.finish(begun)


@racecheck.scenario(faults=KILLED, invariants=SURVIVES, expected=Verdict.FAIL, breaks="old-survives")
def by_default(rank: Rank) -> None:
    """Each save is waited for before the next begins."""
    save(Driver(rank, LightningAsync), 2)


@racecheck.scenario(faults=KILLED, invariants=SURVIVES)
def one_more(rank: Rank) -> None:
    """The same, so long that something is removed."""
    save(Driver(rank, OneMore), 3)


@by_default.recover
@one_more.recover
def resume(rank: Rank) -> None:
    Driver(rank, LightningAsync).load()


def test_by_default(racecheck: Any) -> None:
    racecheck.finds(by_default, within=20)


def test_one_more(racecheck: Any) -> None:
    racecheck.check(one_more, schedules=6)
