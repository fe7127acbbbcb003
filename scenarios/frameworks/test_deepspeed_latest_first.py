"""The installed DeepSpeed writes ``latest`` before all ranks have written their parts of the checkpoint.

**Mechanism.**  In ``DeepSpeedEngine.save_checkpoint`` (``deepspeed/runtime/engine.py``, 0.16.9 to 0.19.8) each rank
writes its part by ``_save_zero_checkpoint``, then rank 0 writes ``latest``, and only then comes the ``dist.barrier()``.
A rank that dies, or cannot write its part, leaves a ``latest`` that names a checkpoint without it.  (With stage 3 ranks
meet in between, to gather the small parameters that each of them keeps whole.)

**What must be found.**

- ``rank_dies``: rank 1 is killed as it opens its part of the second step.  The restarted job goes by ``latest``:
  rank 0 loads its part, rank 1 finds no file.  The whole checkpoint of the first step is still there, unnamed.
- ``barrier_first``: with a barrier before ``latest`` is written (here: in the checkpoint engine's ``commit``, which is
  called in between) the first step is loaded.
"""

from __future__ import annotations

from typing import Any

import racecheck
from racecheck import DEFAULT, Rank, Verdict, consistent_weights, durable_after_ack
from racecheck.targets.adapters.deepspeed import Zero1
from racecheck.targets.suite.driver import Driver

INVARIANTS = (*DEFAULT, consistent_weights, durable_after_ack)
DIES = ("kill on open **/step2/zero_pp_rank_1_*optim_states.pt rank=1",)


class BarrierFirst(Zero1):
    """All ranks have written their parts before rank 0 writes ``latest``."""

    def _made(self) -> tuple[Any, Any]:
        import torch.distributed as dist

        engine, optimizer = super()._made()
        commit = engine.checkpoint_engine.commit

        def when_all_have_written(info: Any) -> Any:
            dist.barrier()
            return commit(info)

        engine.checkpoint_engine.commit = when_all_have_written
        return engine, optimizer


def saves(rank: Rank, kind: type) -> None:
    job = Driver(rank, kind)
    job.save(1)
    job.train()
    job.save(2)


@racecheck.scenario(ranks=2, invariants=INVARIANTS, faults=DIES, expected=Verdict.FAIL, breaks="recovers")
def rank_dies(rank: Rank) -> None:
    """DeepSpeed as it is installed."""
    saves(rank, Zero1)


@racecheck.scenario(ranks=2, invariants=INVARIANTS, faults=DIES)
def barrier_first(rank: Rank) -> None:
    """The repair."""
    saves(rank, BarrierFirst)


@rank_dies.recover
@barrier_first.recover
def load(rank: Rank) -> None:
    """The job is started again, with as many ranks."""
    Driver(rank, Zero1).load()


def test_rank_dies(racecheck: Any) -> None:
    found = racecheck.finds(rank_dies, within=5)
    messages = [each.violation.message for each in found.violations if each.violation.invariant == "recovers"]
    assert any("FileNotFoundError on rank 1" in message and "zero_pp_rank_1" in message for message in messages)


def test_barrier_first(racecheck: Any) -> None:
    racecheck.check(barrier_first, schedules=5)
