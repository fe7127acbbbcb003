"""The last checkpoint of DDP training: nothing comes after it that the ranks would wait for.

This is a real training loop under ``DistributedDataParallel``, with the real ``torch.save`` and ``torch.load``.

**Report.**  The question "Why can't PyTorch distributed training save the last checkpoint?", and what is proposed for
it: a barrier, a barrier and a ``FileLock``, a save on every rank.

**Mechanism.**  Rank 0 writes ``last.pt`` after every step.  While it does, the others run ahead, but only as far as the
``all_reduce`` of the gradients of the next step: so each save is over before anybody has made a step more.  After the
last step there is no such place.  Who reads ``last.pt`` then gets the checkpoint before the last or, since the file is
emptied and filled again in place, a part of one.

**What must be found.**

- ``unsynchronised``: readers end in an error, on an empty file or half a one.
- ``barrier_before``, a barrier and then the save: it sends the readers off together with the writer.  It is no more
  than the ``all_reduce`` before it was.
- ``writer_locks``, a barrier and then the save under a lock: a lock that the readers do not take keeps nobody off.
- ``all_lock``, the readers take it, too: no read is torn any more.  But a lock has no order, and who gets it before
  rank 0 loads the checkpoint before the last, whole and without an error.
- ``every_rank_writes``, all the same file: the weights are the same on all ranks, and so is what they write.  Still a
  late rank empties the file that an early one has written and now reads.
- ``wait_for_file``, readers that poll until the file of the last checkpoint is there: it is there before it is written.
- ``barrier_after``, a barrier *between* the save and the loads, holds for the ranks that are in it.
- ``replaced``, another name, ``os.replace``, then a barrier, holds, and the file is whole at any time for anybody else,
  too.  So with it even polling holds: ``wait_for_replaced``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import racecheck
from racecheck import (
    DEFAULT,
    Rank,
    Verdict,
    consistent_weights,
    no_torn_files,
    no_unexpected_errors,
    nothing_left_over,
)

REPORT = "Why can't PyTorch distributed training save the last checkpoint?"
SIZES = {"steps": 2}
LAST = "last.pt"
FINAL = "final.pt"
INVARIANTS = (*DEFAULT, no_torn_files, consistent_weights, nothing_left_over)


def train(rank: Rank) -> Any:
    """Train; rank 0 saves after each step but the last, whose state is returned."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    last = rank.sizes["steps"]
    for step in range(1, last + 1):
        optimizer.zero_grad()
        model(torch.full((2, 64), float(step + rank.rank))).sum().backward()
        optimizer.step()
        if rank.rank == 0 and step < last:
            save(rank, model.module.state_dict(), rank.path / LAST, step)
    return model.module.state_dict()


def save(rank: Rank, state: Any, path: Path, step: int = 0) -> None:
    """Write in place; the last step if none is given."""
    import torch

    rank.saved(state, step=step or rank.sizes["steps"], at=path)
    torch.save(state, path)


def replace(rank: Rank, state: Any, path: Path) -> None:
    """Write under another name, then rename."""
    import torch

    rank.saved(state, step=rank.sizes["steps"], at=path)
    temporary = path.with_suffix(".tmp")
    torch.save(state, temporary)
    os.replace(temporary, path)


def load(rank: Rank, path: Path) -> None:
    """Load what is to be the last step."""
    import torch

    rank.loaded(torch.load(path, weights_only=True), step=rank.sizes["steps"], at=path)


def save_or_load(rank: Rank, state: Any) -> None:
    if rank.rank == 0:
        save(rank, state, rank.path / LAST)
    else:
        load(rank, rank.path / LAST)


def wait_and_load(rank: Rank, path: Path) -> None:
    while not path.exists():
        time.sleep(1)
    load(rank, path)


def resume(rank: Rank) -> None:
    """After the run: start from the last checkpoint."""
    load(rank, rank.path / LAST)


torn = racecheck.scenario(
    report=REPORT, sizes=SIZES, invariants=(no_torn_files,), expected=Verdict.FAIL, breaks="no-torn-files"
)
whole = racecheck.scenario(report=REPORT, sizes=SIZES, invariants=INVARIANTS)


@racecheck.scenario(
    report=REPORT,
    sizes=SIZES,
    invariants=(no_unexpected_errors,),
    expected=Verdict.FAIL,
    breaks="no-unexpected-errors",
)
def unsynchronised(rank: Rank) -> None:
    """Rank 0 saves, the others load; judged only by how that ends."""
    save_or_load(rank, train(rank))


@torn
def barrier_before(rank: Rank) -> None:
    """A barrier; then rank 0 saves and the others load."""
    import torch.distributed as dist

    state = train(rank)
    dist.barrier()
    save_or_load(rank, state)


@torn
def writer_locks(rank: Rank) -> None:
    """A barrier; then rank 0 saves under a lock and the others load."""
    import torch.distributed as dist
    from filelock import FileLock

    state = train(rank)
    dist.barrier()
    if rank.rank == 0:
        with FileLock(rank.path / "lock"):
            save(rank, state, rank.path / LAST)
    else:
        load(rank, rank.path / LAST)


@racecheck.scenario(
    report=REPORT,
    sizes=SIZES,
    invariants=(*DEFAULT, no_torn_files, consistent_weights),
    expected=Verdict.FAIL,
    breaks="consistent-weights",
)
def all_lock(rank: Rank) -> None:
    """A barrier; then rank 0 saves and the others load, one at a time."""
    import torch.distributed as dist
    from filelock import FileLock

    state = train(rank)
    dist.barrier()
    with FileLock(rank.path / "lock"):
        save_or_load(rank, state)


@torn
def every_rank_writes(rank: Rank) -> None:
    """A barrier; then each rank saves, and loads what it has saved."""
    import torch.distributed as dist

    state = train(rank)
    dist.barrier()
    save(rank, state, rank.path / LAST)
    load(rank, rank.path / LAST)


@torn
def wait_for_file(rank: Rank) -> None:
    """The last checkpoint has a name of its own, for which the others wait."""
    state = train(rank)
    if rank.rank == 0:
        save(rank, state, rank.path / FINAL)
    else:
        wait_and_load(rank, rank.path / FINAL)


@whole
def barrier_after(rank: Rank) -> None:
    """Rank 0 saves; a barrier; then all load."""
    import torch.distributed as dist

    state = train(rank)
    if rank.rank == 0:
        save(rank, state, rank.path / LAST)
    dist.barrier()
    load(rank, rank.path / LAST)


@whole
def replaced(rank: Rank) -> None:
    """Rank 0 saves under another name and renames; a barrier; then all load."""
    import torch.distributed as dist

    state = train(rank)
    if rank.rank == 0:
        replace(rank, state, rank.path / LAST)
    dist.barrier()
    load(rank, rank.path / LAST)


@racecheck.scenario(ranks=4, report=REPORT, sizes=SIZES, invariants=INVARIANTS)
def wait_for_replaced(rank: Rank) -> None:
    """The last checkpoint is renamed to a name of its own, for which the others wait."""
    state = train(rank)
    if rank.rank == 0:
        replace(rank, state, rank.path / FINAL)
    wait_and_load(rank, rank.path / FINAL)


barrier_after.recover(resume)
replaced.recover(resume)


def test_unsynchronised(racecheck: Any) -> None:
    racecheck.finds(unsynchronised, within=20)


def test_barrier_before(racecheck: Any) -> None:
    racecheck.finds(barrier_before, within=20)


def test_writer_locks(racecheck: Any) -> None:
    racecheck.finds(writer_locks, within=20)


def test_all_lock(racecheck: Any) -> None:
    racecheck.finds(all_lock, within=20)


def test_every_rank_writes(racecheck: Any) -> None:
    racecheck.finds(every_rank_writes, within=20)


def test_wait_for_file(racecheck: Any) -> None:
    racecheck.finds(wait_for_file, within=20)


def test_barrier_after(racecheck: Any) -> None:
    racecheck.check(barrier_after, schedules=20)


def test_replaced(racecheck: Any) -> None:
    racecheck.check(replaced, schedules=20)


@pytest.mark.slow
def test_wait_for_replaced(racecheck: Any) -> None:
    racecheck.check(wait_for_replaced, schedules=20)
