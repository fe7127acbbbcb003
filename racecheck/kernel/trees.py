"""Trees of files: remove them, and set their times before a run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from racecheck.model.epoch import EPOCH, GRANULARITY

_SETUP = 3_600 * 10**9
"""How long before the run its setup is taken to have been."""


def age(tree: Path, since: int) -> None:
    """Give files that a setup made since a time of day (nanoseconds) times before the run, equal in every session."""
    paths = _paths(tree)
    made = {path: stamp for path in paths if (stamp := path.lstat().st_mtime_ns) >= since - GRANULARITY}
    order = {stamp: number for number, stamp in enumerate(sorted(set(made.values())))}
    for path, stamp in made.items():
        before = EPOCH - _SETUP + order[stamp] * 10**6
        os.utime(path, ns=(before, before), follow_symlinks=False)


def grow_old(tree: Path) -> None:
    """Make what a run has left an hour older: the next run starts at the same virtual time, and must come later."""
    for path in _paths(tree):
        before = path.lstat().st_mtime_ns - _SETUP
        os.utime(path, ns=(before, before), follow_symlinks=False)


def _paths(tree: Path) -> list[Path]:
    """Return a directory and everything below it; nothing if it does not exist."""
    below = [Path(below) / name for below, *names in os.walk(tree) for name in itertools.chain(*names)]
    return [tree, *below] if tree.exists() else []


def wipe(path: Path) -> None:
    """Remove a file or a tree, also one whose directories have lost their permissions."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    with suppress(OSError):
        path.chmod(0o700)
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            wipe(Path(entry.path))
        else:
            os.unlink(entry.path)
    path.rmdir()


def empty(directory: Path, kept: Collection[str]) -> None:
    """Remove all that is in a directory, but for the entries with these names.

    The directory stays, for it may be somebody's working directory.
    """
    for entry in os.scandir(directory):
        if entry.name not in kept:
            wipe(Path(entry.path))
