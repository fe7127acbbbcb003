"""Where a path leads: is it below a watched directory, and what is its one true name there?

"Below" is decided on the resolved parent directory, never on the string: ``..``, symbolic links, ``/x`` against
``/xy`` and paths relative to a descriptor all end at one answer.  Symbolic links in the last component are followed
here, one by one, where the call would follow them, so that what is performed is about the object itself.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

_MAX_LINKS = 40
_DOTS = frozenset({".", ".."})
_OPEN_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC

Kind = Literal["", "file", "directory", "symlink", "other"]


@dataclass(frozen=True, slots=True)
class Watched:
    """The directories under control: ``roots`` maps each real path to how places below it are shown."""

    roots: dict[str, str]

    def shown(self, path: str) -> str | None:
        """A canonical absolute path as a place's path; None if it is not below a root."""
        for root, prefix in self.roots.items():
            if path == root:
                return prefix or "."
            if path.startswith(root) and path[len(root)] == "/":
                return f"{prefix}{'/' if prefix else ''}{path[len(root) + 1 :]}"
        return None


@dataclass(slots=True)
class Identities:
    """Numbers file system objects in the order in which a run meets them.

    A raw inode number differs between runs and is used again once its object is gone; so a created object gets
    a new number whatever its inode number was.
    """

    _known: dict[tuple[int, int], int] = field(default_factory=dict)
    _last: int = 0

    def of(self, status: os.stat_result) -> int:
        key = status.st_dev, status.st_ino
        if key not in self._known:
            self._last += 1
            self._known[key] = self._last
        return self._known[key]

    def created(self, status: os.stat_result) -> int:
        self._known.pop((status.st_dev, status.st_ino), None)
        return self.of(status)


@dataclass(frozen=True, slots=True)
class Located:
    """A path that ends at ``name`` in the directory that ``handle`` (an O_PATH descriptor) refers to.

    ``handle`` is -1 and ``error`` the errno where a directory on the way is missing.  ``path`` is canonical and
    absolute; ``shown`` is None outside the watched directories.  ``status`` is of what has the name, if anything.
    """

    handle: int
    name: str
    path: str
    shown: str | None
    status: os.stat_result | None = None
    error: int = 0

    @property
    def via(self) -> str:
        """A path to the object for the supervisor's own calls."""
        return f"/proc/self/fd/{self.handle}/{self.name}"

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)


def locate(watched: Watched, base: str, path: str, *, follow: bool) -> Located:
    """Where ``path`` leads from ``base``, a path that stands for the directory it is relative to.

    The caller closes what comes back.  ``follow``: a symbolic link at the end is followed.
    """
    for _ in range(_MAX_LINKS):
        found = _step(watched, base, path)
        status = found.status
        follows = follow or found.name.endswith("/")
        if status is None or not stat.S_ISLNK(status.st_mode) or not follows:
            return found
        target = os.readlink(found.name.rstrip("/"), dir_fd=found.handle)
        base, path = os.path.dirname(found.path), target + "/" * found.name.endswith("/")  # noqa: PTH120
        found.close()
    return Located(-1, "", found.path, found.shown, error=errno.ELOOP)


def _step(watched: Watched, base: str, path: str) -> Located:
    """One look: the last component is not followed."""
    whole = path if path.startswith("/") else f"{base}/{path}"
    parent, name = _split(whole)
    try:
        handle = os.open(parent, _OPEN_DIRECTORY)
    except OSError as error:
        return _missing(watched, whole, error.errno or errno.ENOENT)
    directory = real_path(handle)
    plain = name.rstrip("/")
    canonical = f"{directory.rstrip('/')}/{plain}" if plain not in _DOTS else _ended_in_dots(handle, plain)
    return Located(handle, name, canonical, watched.shown(canonical), status_of(plain, handle))


def _split(path: str) -> tuple[str, str]:
    """Parent and last component, which keeps its trailing slashes."""
    plain = path.rstrip("/")
    parent, _, name = plain.rpartition("/")
    return parent or "/", (name or ".") + path[len(plain) :]


def _ended_in_dots(handle: int, name: str) -> str:
    end = os.open(name, _OPEN_DIRECTORY, dir_fd=handle)
    try:
        return real_path(end)
    finally:
        os.close(end)


def _missing(watched: Watched, path: str, error: int) -> Located:
    """The directory is not there (or is none, or closed to us): find how far the path does lead."""
    rest: list[str] = []
    parent = path.rstrip("/")
    while parent not in {"", "/"}:
        parent, _, name = parent.rpartition("/")
        rest.insert(0, name)
        try:
            handle = os.open(parent or "/", _OPEN_DIRECTORY)
        except OSError:
            continue
        try:
            directory = real_path(handle)
            with_link = _dangling(rest[0], handle)
        finally:
            os.close(handle)
        if with_link is not None:
            start = with_link if with_link.startswith("/") else f"{directory}/{with_link}"
            directory, rest = os.path.normpath(start), rest[1:]
        canonical = os.path.normpath("/".join([directory, *rest]))
        return Located(-1, "", canonical, watched.shown(canonical), error=error)
    return Located(-1, "", path, None, error=error)


def _dangling(name: str, handle: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=handle)
    except OSError:
        return None


def status_of(name: str, directory: int) -> os.stat_result | None:
    """``lstat`` relative to a directory; None if nothing has the name (or nobody may look)."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (OSError, ValueError):
        return None


def real_path(descriptor: int) -> str:
    """The canonical path of what one of our descriptors refers to; the last known one if it was deleted."""
    return undeleted(os.readlink(f"/proc/self/fd/{descriptor}"), f"/proc/self/fd/{descriptor}")


def undeleted(path: str, link: str) -> str:
    """Without the mark that the kernel puts on the path of a deleted object."""
    mark = " (deleted)"
    if path.endswith(mark):
        with _ignored():
            if os.stat(link).st_nlink == 0 or not os.path.lexists(path):
                return path.removesuffix(mark)
    return path


@contextmanager
def _ignored() -> Iterator[None]:
    try:
        yield
    except OSError:
        pass


def kind_of(status: os.stat_result | None) -> Kind:
    """The kind of an object, "" for none."""
    if status is None:
        return ""
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(status.st_mode) else "other"
