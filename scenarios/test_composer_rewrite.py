"""composer #686, ultralytics #700: a checkpoint is deleted, or written again, while other ranks read it.

These are the steps of loading as the reports give them, made with real calls, not the real composer or ultralytics.

**Report.**  mosaicml/composer #686: while a checkpoint is loaded, rank 0 holds the files that are the same for all
ranks in a temporary directory.  It leaves that directory's context, and ranks that are still extracting miss the shared
files.  The fix is one more barrier; the race was found by running the test hundreds of times.
ultralytics/ultralytics #700 with its issues: rank 0 writes ``best.pt`` and then writes it again without the optimizer,
while other ranks load it, which ends in "PytorchStreamReader failed reading file".  With #700 only rank 0
loads; #22884, which was closed, adds a barrier.

**Mechanism.**  Nothing tells rank 0 when the last reader is done, or the readers when rank 0 is.

**What must be found.**

- ``released_early``, as reported for composer: FileNotFoundError on a rank that still reads.  (Rank 0 has read them
  before the others, so that it leaves at once.)
- ``one_more_barrier`` (#686) holds.
- ``written_anew``, as reported for ultralytics: a reader finds the file cut off, and torch.load fails.
- ``renamed_into_place``, the fix that suggests itself: each reader finds a whole file, but some the one with the
  optimizer and some the one without.
- ``barrier_after_writing`` (#22884) holds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import racecheck
from racecheck import DEFAULT, Outcome, Rank, Returned, Verdict, Violation, no_unexpected_errors, nothing_left_over

SHARED = ("composer_states.pt", "hparams.yaml", "metadata.json")
TEMPORARY = "tmp_load"
BEST = "best.pt"


def archive(path: Path) -> None:
    """What there is to load: files that are the same for all ranks."""
    (path / "checkpoint").mkdir()
    for name in SHARED:
        (path / "checkpoint" / name).write_text(f"content of {name}")


@contextmanager
def temporary_directory(path: Path) -> Iterator[None]:
    """A directory with the shared files, for as long as the context lasts."""
    directory = path / TEMPORARY
    shutil.copytree(path / "checkpoint", directory)
    try:
        yield
    finally:
        shutil.rmtree(directory)


def extract(rank: Rank) -> None:
    """Each rank copies the shared files to a place of its own."""
    target = rank.path / f"rank{rank.rank}"
    target.mkdir()
    for name in SHARED:
        shutil.copyfile(rank.path / TEMPORARY / name, target / name)


def extracted_whole(outcome: Outcome) -> Iterator[Violation]:
    """A rank that has returned has all shared files, unchanged."""
    for rank, result in enumerate(outcome.results):
        lacking = [
            name for name in SHARED if outcome.disk.get(f"rank{rank}/{name}") != outcome.disk[f"checkpoint/{name}"]
        ]
        if isinstance(result, Returned) and lacking:
            yield Violation("extracted-whole", f"rank {rank} lacks {', '.join(lacking)}", (rank,))


EXTRACTED = (*DEFAULT, nothing_left_over, extracted_whole)


@racecheck.scenario(
    ranks=2,
    report="mosaicml/composer#686",
    invariants=EXTRACTED,
    expected=Verdict.FAIL,
    breaks="no-file-errors",
)
def released_early(rank: Rank) -> None:
    """As reported: rank 0 leaves the context once all know that the files are there."""
    import torch.distributed as dist

    if rank.rank == 0:
        with temporary_directory(rank.path):
            extract(rank)
            dist.barrier()
    else:
        dist.barrier()
        extract(rank)


@racecheck.scenario(ranks=3, report="mosaicml/composer#686", invariants=EXTRACTED)
def one_more_barrier(rank: Rank) -> None:
    """The fix of #686: rank 0 leaves the context when all have extracted."""
    import torch.distributed as dist

    if rank.rank == 0:
        with temporary_directory(rank.path):
            extract(rank)
            dist.barrier()
            dist.barrier()
    else:
        dist.barrier()
        extract(rank)
        dist.barrier()


def write_best(path: Path, *, optimizer: bool) -> None:
    import torch

    state = {"model": torch.ones(4)}
    torch.save({**state, "optimizer": torch.ones(4)} if optimizer else state, path)


def load_best(rank: Rank) -> list[str]:
    """The parts of the state that this rank finds in the file."""
    import torch

    return sorted(torch.load(rank.path / BEST))


def same_state(outcome: Outcome) -> Iterator[Violation]:
    """All ranks that have returned have loaded the same parts."""
    loaded = {rank: each.value for rank, each in enumerate(outcome.results) if isinstance(each, Returned)}
    if any(parts != ["model"] for parts in loaded.values()):
        text = "; ".join(f"rank {rank} has {', '.join(parts)}" for rank, parts in loaded.items())
        yield Violation("same-state", text, tuple(loaded))


LOADED = (*DEFAULT, nothing_left_over, same_state)


@racecheck.scenario(
    ranks=2,
    report="ultralytics/ultralytics#700",
    invariants=(no_unexpected_errors,),
    expected=Verdict.FAIL,
    breaks="no-unexpected-errors",
)
def written_anew(rank: Rank) -> list[str]:
    """As reported: all ranks load while rank 0 writes the file again; judged only by how the loading ends."""
    import torch.distributed as dist

    if rank.rank == 0:
        write_best(rank.path / BEST, optimizer=True)
    dist.barrier()
    if rank.rank == 0:
        write_best(rank.path / BEST, optimizer=False)
    return load_best(rank)


@racecheck.scenario(
    ranks=2,
    report="ultralytics/ultralytics#700",
    invariants=LOADED,
    expected=Verdict.FAIL,
    breaks="same-state",
)
def renamed_into_place(rank: Rank) -> list[str]:
    """Rank 0 writes aside and renames, so that no reader finds half a file."""
    import torch.distributed as dist

    if rank.rank == 0:
        write_best(rank.path / BEST, optimizer=True)
    dist.barrier()
    if rank.rank == 0:
        write_best(rank.path / f"{BEST}.tmp", optimizer=False)
        os.replace(rank.path / f"{BEST}.tmp", rank.path / BEST)
    return load_best(rank)


@racecheck.scenario(ranks=3, report="ultralytics/ultralytics#22884", invariants=LOADED)
def barrier_after_writing(rank: Rank) -> list[str]:
    """Nobody loads before rank 0 has written the last time."""
    import torch.distributed as dist

    if rank.rank == 0:
        write_best(rank.path / BEST, optimizer=True)
        write_best(rank.path / BEST, optimizer=False)
    dist.barrier()
    return load_best(rank)


released_early.setup(archive)
one_more_barrier.setup(archive)


def test_released_early(racecheck: Any) -> None:
    racecheck.finds(released_early, within=20)


def test_one_more_barrier(racecheck: Any) -> None:
    racecheck.check(one_more_barrier, schedules=20)


def test_a_file_is_written_again(racecheck: Any) -> None:
    racecheck.finds(written_anew, within=20)


def test_renamed_into_place(racecheck: Any) -> None:
    racecheck.finds(renamed_into_place, within=20)


def test_barrier_after_writing(racecheck: Any) -> None:
    racecheck.check(barrier_after_writing, schedules=20)
