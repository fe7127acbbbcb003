"""Files that a script makes and removes outside the watched directory before its ranks: each run finds them so.

An archive in which a character device stands for a path that is gone, as in an overlay (overlayfs.rst in the kernel's
documentation).
"""

from __future__ import annotations

import base64
import io
import lzma
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

from racecheck.model.errors import UsageError

_MOST_BYTES, _MOST_FILES = 64 << 20, 20_000


def pack(changes: Iterable[tuple[Path, bool]]) -> str:
    """Return an archive of paths, as text, "" if they are too much for a finding, or a socket or the like is there.

    Each comes with whether it hides a directory that was there before; a path at which nothing is has been removed.
    """
    total, data = 0, io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz", format=tarfile.PAX_FORMAT) as archive:
        for number, (path, hides) in enumerate(changes):
            mode = path.lstat().st_mode if os.path.lexists(path) else stat.S_IFCHR
            if hides or stat.S_ISCHR(mode):
                gone = tarfile.TarInfo(str(path).lstrip("/"))
                gone.type = tarfile.CHRTYPE
                archive.addfile(gone)
            if stat.S_ISCHR(mode):
                continue
            total += path.lstat().st_size if stat.S_ISREG(mode) else 0
            if total > _MOST_BYTES or number >= _MOST_FILES or not _is_plain(mode):
                return ""
            archive.add(path, arcname=str(path).lstrip("/"), recursive=False)
    return base64.b64encode(data.getvalue()).decode()


def _is_plain(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def paths(archive: str) -> list[tuple[Path, bool]]:
    """Return the paths of an archive in order, each with whether it is a file, or a link to one.

    Raises `ValueError` for text that is no archive.
    """
    try:
        with _opened(archive) as members:
            return [(Path("/", each.name), each.isreg() or each.issym()) for each in members]
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise ValueError(str(error)) from None


def put_back(archive: str, may_write: Callable[[Path], bool]) -> None:
    """Make and remove the paths of an archive.

    ``may_write`` is asked about each path before.  Raises `UsageError` if it does not allow one, and `OSError`.
    """
    with _opened(archive) as members:
        for each in members:
            path = Path("/", each.name)
            if ".." in path.parts or not may_write(path):
                raise UsageError(f"cannot put {path} where the script had put it: no layer covers it here")
            _put(members, each, path)


def _put(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    if member.ischr() or not member.isdir() or path.is_symlink():
        _remove(path)
    if member.ischr():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        path.symlink_to(member.linkname)
        return
    if member.isdir():
        path.mkdir(exist_ok=True)
    else:
        content = archive.extractfile(member)
        assert content is not None
        path.write_bytes(content.read())
    path.chmod(member.mode & 0o1777)
    os.utime(path, (member.mtime, member.mtime))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _opened(archive: str) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive)), mode="r:xz")
