"""The machine's real files, for a process that a layer shows others (`racecheck.kernel.layer`)."""

from __future__ import annotations

import errno
import os
from pathlib import Path, PurePosixPath

_MOST_LINKS = 40
_kept: list[int] = []
"""A descriptor of the root directory, from before this process saw a layer; none if it never has."""


def keep() -> None:
    """Keep a way to the files that this process sees now.

    A descriptor of the root directory leads through the mounts of the namespace in which it was opened, also from
    another one (mount_namespaces(7)).
    """
    if not _kept:
        _kept.append(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))


def real(path: Path) -> Path:
    """Return a path at which this process reaches the real file at ``path``, whatever a layer shows there.

    Without a layer that is the same path.  Raises `OSError` for links that lead in a circle.
    """
    return _followed(path) if _kept else path


def _followed(path: Path) -> Path:
    """Follow links in the real tree: the kernel would look up an absolute one among the files that are shown."""
    root = Path(f"/proc/self/fd/{_kept[0]}")
    done, ahead, links = root, [*reversed(Path(os.path.abspath(path)).parts[1:])], 0
    while ahead:
        part = ahead.pop()
        if part == "..":
            done = done.parent if done != root else root
            continue
        try:
            target = PurePosixPath(os.readlink(done / part))
        except OSError:  # no link, or nothing is there yet
            done /= part
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if target.is_absolute():
            done = root
        ahead += reversed([each for each in target.parts if each != "/"])
    return done
