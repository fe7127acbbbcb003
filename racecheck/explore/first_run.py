"""The first run of a program, before any search, may show that it fails by itself, or writes to another directory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from racecheck.explore.runner import undisturbed
from racecheck.invariants.failures import describe, failures
from racecheck.model.errors import UsageError
from racecheck.model.frames import user_frames
from racecheck.model.nouns import Died, Op, Outcome, Raised, Returned
from racecheck.model.ops.launcher_ops import is_of_launcher
from racecheck.scheduling.predict import candidates
from racecheck.scheduling.relation import Relation
from racecheck.sessions.session import Session
from racecheck.targets.programs import Launch, Program

KEPT = "files in the working directory that the first run left as they were are not controlled"
_CHECKPOINTS = frozenset(
    {".bin", ".ckpt", ".distcp", ".metadata", ".npy", ".npz", ".pkl", ".pt", ".pth", ".safetensors"}
)
_SMALL = 16 << 20
"""The most bytes of a file that is taken for a checkpoint by its name; larger ones may be data."""
NOT_THE_PROGRAMS = frozenset({".cache", ".git", ".racecheck", "__pycache__"})


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory that a program wrote to: how many ``files``, and how many of these look like ``checkpoints``.

    ``kept`` are its entries that are not to be watched: the working directory has the program's own code.
    """

    path: Path
    files: int
    checkpoints: int
    kept: tuple[str, ...] = ()

    def __str__(self) -> str:
        files = f"{self.files} file{'s' * (self.files != 1)}"
        return f"{os.path.relpath(self.path)}{'/' * (self.path != Path.cwd())} ({files})"


def check(launch: Launch, outcome: Outcome, written: Sequence[Path], *, has_faults: bool) -> None:
    """Raise `UsageError` if a search of a program cannot say anything about races in the watched directory.

    ``outcome`` is an undisturbed run, ``written`` are the files that it wrote outside the watched directory.
    ``has_faults``: the search is also about the effects of faults on a program that fails anyway.
    """
    has_ops = any(isinstance(event, Op) and event.places for event in outcome.trace)
    directory = None if has_ops else likely(launch, written)
    shown = os.path.relpath(launch.watched)
    if directory is None and not (has_ops and has_faults):
        if _fails_in_every_order(outcome):
            raise UsageError(f"your program fails without any race: {_failure(outcome)}")
        if not has_ops and _failures(outcome):
            raise UsageError(f"your program fails before it does anything in {shown}: {_failure(outcome)}")
    if has_ops or not all(isinstance(each, (Returned, Raised)) for each in outcome.results):
        return
    if directory is None:
        raise UsageError(f"nothing happened in {shown}, and the program wrote no file of its own elsewhere")
    raise UsageError(
        f"nothing happened in {shown}; the program wrote to {directory}: "
        f"did you mean --watch {os.path.relpath(directory.path)}?"
    )


def directory_of(session: Session, program: Program, *, here: bool) -> Directory:
    """Run a program once, and return the directory that its checkpoints seem to go to; ``here``: the working directory.

    In the working directory, only files that the run wrote and small checkpoints are to be watched.  Raises
    `UsageError` if there is no directory, with the reason if the program fails.
    """
    working = Path(program.launch.directory)
    before = os.listdir(working)
    outcome, _ = undisturbed(session, program, program.world, seed="0")
    written = session.slot.written_outside()
    directory = likely(program.launch, written)
    if directory is not None and (here or directory.path == working):
        own = {each.relative_to(working).parts[0] for each in written if working in each.parents}
        kept = {each for each in before if not (each in own or _is_small_checkpoint(working / each))}
        kept |= {"__pycache__", *NOT_THE_PROGRAMS.intersection(before)}
        return replace(directory, path=working, kept=tuple(sorted(kept)))
    if directory is not None:
        return directory
    if _failures(outcome):
        why = f"your program fails before it writes a file in the working directory: {_failure(outcome)}"
        raise UsageError(f"{why}; if another rank makes it fail, name the directory with --watch DIR")
    raise UsageError("the program wrote no file in the working directory: name its directory with --watch DIR")


def likely(launch: Launch, written: Iterable[Path]) -> Directory | None:
    """Return the directory that a program's checkpoints seem to go to, None if it wrote no file of its own.

    Candidates are directories in the working directory, and directories that the program's arguments name.
    """
    found: dict[Path, list[Path]] = {}
    for each in written:
        base = _base(launch, each)
        if base is not None and NOT_THE_PROGRAMS.isdisjoint(each.relative_to(base.parent).parts):
            found.setdefault(base, []).append(each)
    here = Path(launch.directory)
    counted = [Directory(path, len(files), sum(map(_is_checkpoint, files))) for path, files in found.items()]
    return max(counted, key=lambda each: (each.checkpoints, each.files, each.path != here), default=None)


def _base(launch: Launch, file: Path) -> Path | None:
    """Return the candidate that a file is in, None if there is none."""
    here = Path(launch.directory)
    named = [Path(os.path.normpath(here / word.rpartition("=")[2])) for word in launch.arguments]
    for path in named:
        if path != here and path in file.parents:
            return path
    if here not in file.parents:
        return file.parent if file in named else None
    return here if file.parent == here else here / file.relative_to(here).parts[0]


def _is_checkpoint(file: PurePath) -> bool:
    return file.suffix in _CHECKPOINTS or file.name in _CHECKPOINTS


def _is_small_checkpoint(path: Path) -> bool:
    """Return whether a file is named like a checkpoint, and small enough to be restored before each run."""
    return _is_checkpoint(path) and path.is_file() and path.stat().st_size <= _SMALL


def _fails_in_every_order(outcome: Outcome) -> bool:
    """Return whether a run is the only one that there is, and ranks failed.

    No two ops could go the other way, and no rank was cut short or got a signal when another had failed: what that
    would have done might have been in time, and the moment of the signal is a choice.
    """
    ops = [event for event in outcome.trace if isinstance(event, Op)]
    ended = {rank for rank, _ in _failures(outcome)}
    is_whole = all(isinstance(each, Returned) or rank in ended for rank, each in enumerate(outcome.results))
    is_whole &= not any(map(is_of_launcher, ops))
    is_known = not outcome.coverage.untried and all(op.alone for op in ops)
    return bool(ended) and is_whole and is_known and not candidates(outcome.trace, Relation(outcome.world))


def _failures(outcome: Outcome) -> list[tuple[int, Raised | Died]]:
    return [(rank, each) for rank, each in failures(outcome) if isinstance(each, (Raised, Died))]


def _failure(outcome: Outcome) -> str:
    rank, first = _failures(outcome)[0]
    frame = next(iter(user_frames(first.stack)), None) if isinstance(first, Raised) else None
    at = f" ({os.path.relpath(frame.file)}:{frame.line})" if frame is not None else ""
    return f"{describe(rank, first)}{at}"
