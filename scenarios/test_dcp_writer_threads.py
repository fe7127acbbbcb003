"""``dcp.save`` with ``thread_count=2``: a thread cannot write, and the save succeeds.

This is the real ``torch.distributed.checkpoint``.

**Report.**  pytorch #191391, "FileSystemWriter swallows background write failures and reports success".

**Mechanism.**  ``FileSystemWriter(thread_count=N)`` writes N files in each rank, N - 1 of them by threads of its own.
It joins these and does not ask how they ended: what one raises goes to ``threading.excepthook``, and its tensors are
not among the results (``_FileSystemWriter._write_data``, torch 2.13).  ``finish`` writes the metadata all the same, and
``dcp.save`` returns on all ranks.  Whoever loads that checkpoint fails.

**What must be found.**

- ``two_threads``: EIO or ENOSPC for one file of the second save, which returns; then nothing of that step loads.
- ``one_thread``, the default: the error is raised on all ranks, and the step before is there.
- ``counted``: a writer that does not finish a checkpoint whose tensors have not all been written: holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import racecheck
from racecheck import DEFAULT, Rank, Verdict, durable_after_ack, error_honesty, old_survives

REPORT = "pytorch #191391"
FULL = "ENOSPC on open step-2/__1_*.distcp nth=each"
BROKEN = "EIO on open|fsync step-2/__1_*.distcp nth=each"
HONEST = (*DEFAULT, error_honesty, durable_after_ack, old_survives)
STEPS = (1, 2)


def weights(step: int, ranks: range) -> dict[str, Any]:
    """What these ranks have at a step: two tensors each."""
    import torch

    return {f"rank{rank}.{name}": torch.full((8,), step + rank / 10) for rank in ranks for name in ("a", "b")}


def save(rank: Rank, writer_of: Any) -> None:
    import torch.distributed.checkpoint as dcp

    for step in STEPS:
        path = rank.path / f"step-{step}"
        state = weights(step, range(rank.rank, rank.rank + 1))
        rank.saved(state, step=step, at=path)
        dcp.save(state, storage_writer=writer_of(path))
        rank.acked(step=step, at=path)


def writer(path: Path, threads: int) -> Any:
    import torch.distributed.checkpoint as dcp

    return dcp.FileSystemWriter(path, thread_count=threads)


def counting(path: Path) -> Any:
    """A writer that compares what was written with what the metadata is about to promise."""
    import torch.distributed.checkpoint as dcp

    class Counting(dcp.FileSystemWriter):
        def finish(self, metadata: Any, results: Any) -> None:
            promised = sum(len(getattr(each, "chunks", (each,))) for each in metadata.state_dict_metadata.values())
            written = sum(map(len, results))
            if written < promised:
                raise RuntimeError(f"{promised - written} of {promised} items have not been written")
            super().finish(metadata, results)

    return Counting(path, thread_count=2)


@racecheck.scenario(
    report=REPORT, faults=(FULL, BROKEN), invariants=HONEST, expected=Verdict.FAIL, breaks="error-honesty"
)
def two_threads(rank: Rank) -> None:
    """A file for each thread of a rank."""
    save(rank, lambda path: writer(path, threads=2))


@racecheck.scenario(report=REPORT, faults=(FULL, BROKEN), invariants=HONEST)
def one_thread(rank: Rank) -> None:
    """A file for each rank."""
    save(rank, lambda path: writer(path, threads=1))


@racecheck.scenario(report=REPORT, faults=(FULL, BROKEN), invariants=HONEST)
def counted(rank: Rank) -> None:
    """Two threads, and nobody publishes what they have not written."""
    save(rank, counting)


def load_newest(rank: Rank) -> None:
    """After the run: load the newest checkpoint that has its metadata."""
    import torch.distributed.checkpoint as dcp

    complete = sorted(each.parent for each in rank.path.glob("step-*/.metadata"))
    if complete:
        state = weights(0, range(2))
        dcp.load(state, checkpoint_id=complete[-1])
        rank.loaded(state, step=int(complete[-1].name.removeprefix("step-")), at=complete[-1])


for each in (two_threads, one_thread, counted):
    each.recover(load_newest, ranks=1)


def test_two_threads(racecheck: Any) -> None:
    racecheck.finds(two_threads, within=12)


def test_one_thread(racecheck: Any) -> None:
    racecheck.check(one_thread, schedules=8)


@pytest.mark.slow
def test_counted(racecheck: Any) -> None:
    racecheck.check(counted, schedules=8)
