"""ms-swift #4264: several ranks replace the link that names the last checkpoint.

These are the steps of replacing the link as the reports give them, made with real calls, not the real ms-swift.

**Report.**  modelscope/ms-swift #4264 is the report of this family that gives the file its name.  The steps are those
of its sibling NVIDIA/DeepLearningExamples #1092: one rank of each node removes the link to the last checkpoint and
makes it again; one rank's making lands between the other's removing and making, which ends in FileExistsError.
Proposed there: the global rank decides who does it.

**Mechanism.**  A link cannot be redirected in place: it is removed and made, and between the two there is none.

**What must be found.**

- ``racy``, as reported: FileExistsError.  (Also FileNotFoundError, when both remove.)
- ``errors_passed_over``, the fix that suggests itself: the link is right in the end, but who follows it meanwhile finds
  nothing.
- ``one_temporary_name``, a link made aside and renamed into place: the name aside is the same on all ranks, and
  the race is now about that one.  microsoft/agent-framework #7757 is this, with files.
- ``own_temporary_name``, the same with a name for each rank, holds, also for who follows the link meanwhile.
- ``one_rank``, where rank 0 replaces it and all wait, holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import racecheck
from racecheck import DEFAULT, Outcome, Rank, Returned, Verdict, Violation, nothing_left_over

LINK = "last"
OLD, NEW = "checkpoint-1", "checkpoint-2"


def two_checkpoints(path: Path) -> None:
    """The link still names the older one."""
    for name in (OLD, NEW):
        (path / name).mkdir()
        (path / name / "model.pt").write_text(name)
    (path / LINK).symlink_to(OLD)


def follow(rank: Rank) -> None:
    """What a rank does next: read the model of the last checkpoint."""
    (rank.path / LINK / "model.pt").read_text()


def names_the_newest(outcome: Outcome) -> Iterator[Violation]:
    """Once all ranks have returned, the link names the newest checkpoint."""
    if all(isinstance(result, Returned) for result in outcome.results):
        entry = outcome.disk.get(LINK)
        if entry is None or entry.target != NEW:
            named = entry.target if entry else "nothing"
            yield Violation("names-the-newest", f"{LINK} names {named}, not {NEW}")


INVARIANTS = (*DEFAULT, nothing_left_over, names_the_newest)


def rename_into_place(rank: Rank, name: str) -> None:
    """Make the link under another name and rename it."""
    aside = rank.path / name
    aside.symlink_to(NEW)
    aside.replace(rank.path / LINK)
    follow(rank)


by_two = racecheck.scenario(
    ranks=2,
    report="modelscope/ms-swift#4264",
    invariants=INVARIANTS,
    expected=Verdict.FAIL,
    breaks="no-file-errors",
)


@by_two
def racy(rank: Rank) -> None:
    """As reported: each rank removes the link, if there is one, and makes it."""
    link = rank.path / LINK
    if os.path.lexists(link):
        link.unlink()
    link.symlink_to(NEW)


@racecheck.scenario(
    ranks=4,
    report="modelscope/ms-swift#4264",
    invariants=INVARIANTS,
    expected=Verdict.FAIL,
    breaks="no-file-errors",
)
def errors_passed_over(rank: Rank) -> None:
    """If another rank has removed or made the link already, so be it."""
    link = rank.path / LINK
    link.unlink(missing_ok=True)
    with suppress(FileExistsError):
        link.symlink_to(NEW)
    follow(rank)


@by_two
def one_temporary_name(rank: Rank) -> None:
    """Make a link aside and rename it into place."""
    rename_into_place(rank, f"{LINK}.tmp")


@racecheck.scenario(ranks=3, report="modelscope/ms-swift#4264", invariants=INVARIANTS)
def own_temporary_name(rank: Rank) -> None:
    """The same, each rank with a name of its own."""
    rename_into_place(rank, f"{LINK}.{rank.rank}.tmp")


@racecheck.scenario(ranks=3, report="NVIDIA/DeepLearningExamples#1092", invariants=INVARIANTS)
def one_rank(rank: Rank) -> None:
    """Rank 0 removes and makes the link, and nobody goes on before it has."""
    import torch.distributed as dist

    if rank.rank == 0:
        racy(rank)
    dist.barrier()
    follow(rank)


racy.setup(two_checkpoints)
errors_passed_over.setup(two_checkpoints)
one_temporary_name.setup(two_checkpoints)
own_temporary_name.setup(two_checkpoints)
one_rank.setup(two_checkpoints)


def test_racy(racecheck: Any) -> None:
    racecheck.finds(racy, within=20)


def test_errors_passed_over(racecheck: Any) -> None:
    racecheck.finds(errors_passed_over, within=20)


def test_one_temporary_name(racecheck: Any) -> None:
    racecheck.finds(one_temporary_name, within=20)


def test_own_temporary_name(racecheck: Any) -> None:
    racecheck.check(own_temporary_name, schedules=20)


def test_one_rank(racecheck: Any) -> None:
    racecheck.check(one_rank, schedules=20)
