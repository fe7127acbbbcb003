"""The disk after a run."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from racecheck.model.nouns import DiskEntry
from racecheck.model.package import PLACE
from racecheck.sessions.file_digests import Digest, plain

_HOUR = 3600 * 10**9

_OURS = (f'  File "{PLACE}', '  File "<string>", line 1 in <module>', "Extension modules: ")


def read(disks: Mapping[str, Path], kept: Collection[str]) -> dict[str, DiskEntry]:
    """Return everything below some directories: by the directory's prefix and the path relative to it, in order.

    But for the entries of these directories with the names ``kept``.
    """
    return {
        f"{prefix}{path}": _entry(root / path)
        for prefix, root in disks.items()
        for path in sorted(_paths(root, "", kept))
    }


def _paths(root: Path, below: str, kept: Collection[str] = ()) -> Iterator[str]:
    try:
        entries = [each for each in os.scandir(root / below) if each.name not in kept]
    except OSError:
        return
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        yield path
        if entry.is_dir(follow_symlinks=False):
            yield from _paths(root, path)


def _entry(path: Path) -> DiskEntry:
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        return DiskEntry("directory")
    if stat.S_ISLNK(status.st_mode):
        return DiskEntry("symlink", target=os.fsdecode(plain(os.readlink(os.fsencode(path)))))
    if not stat.S_ISREG(status.st_mode):
        return DiskEntry("other")
    return DiskEntry("file", status.st_size, digest_of(path))


def state(roots: Iterable[Path], kept: Collection[str]) -> str:
    """Return a hash of all below some directories that a program can tell apart: names, kinds, modes, times, contents.

    A time that the kernel has set, and not virtual time, is left out: ranks do not see it.  So are the entries of these
    directories with the names ``kept``.
    """
    found, links, now = hashlib.sha256(), dict[tuple[int, int], int](), time.time_ns()
    for root in roots:
        for each in sorted(_paths(root, "", kept)):
            path, entry = root / each, _entry(root / each)
            status = path.lstat()
            link = links.setdefault((status.st_dev, status.st_ino), len(links))
            when = 0 if now - _HOUR < status.st_mtime_ns <= now else status.st_mtime_ns
            found.update(
                repr((each, entry, status.st_mode, link, when, _attributes(path))).encode(errors="surrogateescape")
            )
        found.update(b"\0")
    return found.hexdigest()


def _attributes(path: Path) -> list[tuple[str, bytes]]:
    try:
        names = sorted(os.listxattr(path, follow_symlinks=False))
        return [(name, os.getxattr(path, name, follow_symlinks=False)) for name in names]
    except OSError:
        return []


def digest_of(path: Path) -> str:
    """Return the digest of a file, "" for one that cannot be read."""
    digest = Digest()
    try:
        with path.open("rb") as file:
            while data := file.read(1 << 20):
                digest.update(data)
    except OSError:
        return ""
    return digest.hexdigest()


def tail(path: Path, most: int = 2000) -> str:
    """Return the end of a process's output, "" for none.

    It leaves out faulthandler's lines about racecheck's own frames and about modules.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8 * most))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(line for line in lines if not line.startswith(_OURS))[-most:].strip()
