"""The disk after a run."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from racecheck.model.nouns import DiskEntry
from racecheck.model.package import PLACE
from racecheck.processes.file_digests import Digest, plain

_OURS = (f'  File "{PLACE}', '  File "<string>", line 1 in <module>', "Extension modules: ")


def read(disks: Mapping[str, Path]) -> dict[str, DiskEntry]:
    """Return everything below some directories: by the directory's prefix and the path relative to it, in order."""
    return {
        f"{prefix}{path}": _entry(root / path) for prefix, root in disks.items() for path in sorted(_paths(root, ""))
    }


def _paths(root: Path, below: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(root / below))
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
