"""Lightning #529: each rank looks for the next free version, and makes its directory.

These are the steps of the logger as the reports give them, made with real calls, not the real Lightning.

**Report.**  Lightning-AI/pytorch-lightning #529 is the report of this family that gives the file its name.  The steps
are those of its siblings.  #6364: every rank takes itself for rank 0 and builds the tree of the logger, which ends in
errors about directories that exist already.  #18294 and #8945: the ranks come to different versions,
``version_23`` and ``version_24``.  #6978 broadcasts the directory.

**Mechanism.**  Listing the versions, looking whether the next one is there and making it are separate calls.  Ranks
that list at the same time come to the same name; a rank that lists after another has made its directory comes to the
next one.

**What must be found.**

- ``racy``, as reported: FileExistsError.
- ``exist_ok``, the fix that suggests itself: no error, and the ranks of one run go on in different directories.
- ``rank_zero_makes_it``, the usual fix: each rank still lists, so they go on in different directories too.
- ``broadcast``, after #6978: one rank decides for all; that holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import racecheck
from racecheck import DEFAULT, Outcome, Rank, Returned, Verdict, Violation, no_file_errors

LOGS = "lightning_logs"


def older_versions(path: Path) -> None:
    for number in range(2):
        (path / LOGS / f"version_{number}").mkdir(parents=True)


def next_version(path: Path) -> str:
    """One more than the highest that is there."""
    numbers = [int(name.removeprefix("version_")) for name in os.listdir(path / LOGS)]
    return f"version_{max(numbers) + 1}"


def one_version(outcome: Outcome) -> Iterator[Violation]:
    """All ranks that have returned have returned the same version."""
    versions = {rank: each.value for rank, each in enumerate(outcome.results) if isinstance(each, Returned)}
    if len(set(versions.values())) > 1:
        text = "; ".join(f"rank {rank} has {version}" for rank, version in versions.items())
        yield Violation("one-version", text, tuple(versions))


INVARIANTS = (*DEFAULT, one_version)


@racecheck.scenario(
    ranks=2,
    report="Lightning-AI/pytorch-lightning#529",
    invariants=(no_file_errors,),
    expected=Verdict.FAIL,
    breaks="no-file-errors",
)
def racy(rank: Rank) -> str:
    """As reported: look, then make; judged only by what fails."""
    version = next_version(rank.path)
    directory = rank.path / LOGS / version
    if not directory.exists():
        directory.mkdir()
    return version


@racecheck.scenario(
    ranks=4,
    report="Lightning-AI/pytorch-lightning#529",
    invariants=INVARIANTS,
    expected=Verdict.FAIL,
    breaks="one-version",
)
def exist_ok(rank: Rank) -> str:
    """The directory may exist already."""
    version = next_version(rank.path)
    (rank.path / LOGS / version).mkdir(exist_ok=True)
    return version


@racecheck.scenario(
    ranks=4,
    report="Lightning-AI/pytorch-lightning#8945",
    invariants=INVARIANTS,
    expected=Verdict.FAIL,
    breaks="one-version",
)
def rank_zero_makes_it(rank: Rank) -> str:
    """Rank 0 alone makes the directory; the others need only its name."""
    version = next_version(rank.path)
    if rank.rank == 0:
        (rank.path / LOGS / version).mkdir()
    return version


@racecheck.scenario(ranks=4, report="Lightning-AI/pytorch-lightning#6978", invariants=INVARIANTS)
def broadcast(rank: Rank) -> str:
    """The fix of #6978: rank 0 decides, and tells the others; then each writes a file of its own."""
    import torch.distributed as dist

    version = ""
    if rank.rank == 0:
        version = next_version(rank.path)
        (rank.path / LOGS / version).mkdir()
    told = [version]
    dist.broadcast_object_list(told, src=0)
    (rank.path / LOGS / told[0] / f"events_{rank.rank}").write_text("begun")
    return told[0]


racy.setup(older_versions)
exist_ok.setup(older_versions)
rank_zero_makes_it.setup(older_versions)
broadcast.setup(older_versions)


def test_racy(racecheck: Any) -> None:
    racecheck.finds(racy, within=20)


def test_exist_ok(racecheck: Any) -> None:
    racecheck.finds(exist_ok, within=20)


def test_rank_zero_makes_it(racecheck: Any) -> None:
    racecheck.finds(rank_zero_makes_it, within=20)


def test_broadcast(racecheck: Any) -> None:
    racecheck.check(broadcast, schedules=20)
