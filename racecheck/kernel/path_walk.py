"""Follow a path name by name: where it turns, and where it crosses to a node's own disk."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass

MAX_LINKS = 40
OPEN_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_OPEN = os.O_PATH | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Mount:
    """On this node the directory ``at`` is the one at ``disk``: what a mount would do, without the privilege."""

    at: str
    disk: str

    def is_at(self, descriptor: int) -> bool:
        return _is(descriptor, self.at)

    def is_disk(self, descriptor: int) -> bool:
        return _is(descriptor, self.disk)


def _is(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


@dataclass(slots=True)
class Way:
    """Follows a path name by name, and notes its turns and where it crosses to the node's disk that is mounted there.

    The kernel would do it in one call, but not say by which links, and knows nothing of the mount.  ``current`` is
    how far it has come, ``todo`` are the names to come, the next one last.  ``turns`` are the canonical paths of the
    links followed and of the directories that ".." left, ``crossings`` those from which it has crossed over.
    """

    current: int
    todo: list[str]
    mount: Mount | None
    crossings: list[str]
    turns: list[str]
    _links: int = 0

    def go(self) -> None:
        """Follow the path to its end; raises `OSError` at a name that leads nowhere, which is then still to come."""
        self.cross()
        while self.todo:
            self.enter(self.todo[-1])
            self.cross()

    def cross(self) -> None:
        """Cross over to the node's disk where that is mounted."""
        if self.mount is not None and self.mount.is_at(self.current):
            self.crossings.append(self.mount.at)
            self.current = instead(self.current, os.open(self.mount.disk, _OPEN))

    def enter(self, name: str) -> None:
        """Follow the next name; raises `OSError` if it leads nowhere."""
        if name == "..":
            self.turns.append(real_path(self.current))
            if self.mount is not None and self.mount.is_disk(self.current):
                self.current = instead(self.current, os.open(self.mount.at, _OPEN))
        found = os.open(name or ".", _OPEN | os.O_NOFOLLOW, dir_fd=self.current)
        if stat.S_ISLNK(os.fstat(found).st_mode):
            self._follow(name, found)
        else:
            self.current = instead(self.current, found)
            self.todo.pop()

    def _follow(self, name: str, link: int) -> None:
        try:
            target = os.readlink("", dir_fd=link)
        finally:
            os.close(link)
        self._links += 1
        if self._links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        directory = real_path(self.current)
        if directory.startswith("/proc/"):  # such a link may lead to an object without a name: the kernel follows it
            self.current = instead(self.current, os.open(name, _OPEN, dir_fd=self.current))
            self.todo.pop()
            return
        self.turns.append(joined(directory, name))
        self.todo[-1:] = target.split("/")[::-1]
        if target.startswith("/"):
            self.current = instead(self.current, os.open("/", OPEN_DIRECTORY))


def instead(old: int, new: int) -> int:
    """Close ``old``, and return ``new``."""
    os.close(old)
    return new


def joined(directory: str, *names: str) -> str:
    """Return a path below a directory, which may be the root."""
    return "/".join([directory.rstrip("/"), *names]) or "/"


def real_path(descriptor: int) -> str:
    """Return the canonical path of one of our descriptors' objects; the last known one if it was deleted."""
    link = f"/proc/self/fd/{descriptor}"
    try:
        return undeleted(os.readlink(link), link)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
    return _deep_path(descriptor)


def _deep_path(directory: int) -> str:
    """Return the path of a directory that is longer than the kernel reports: go up until it reports one."""
    above = os.open("..", OPEN_DIRECTORY, dir_fd=directory)
    try:
        number = os.fstat(directory).st_ino
        with os.scandir(f"/proc/self/fd/{above}") as entries:
            name = next((each.name for each in entries if each.inode() == number), "?")
        return f"{real_path(above)}/{name}"
    finally:
        os.close(above)


def undeleted(path: str, link: str) -> str:
    """Return a path without the mark that the kernel appends for a deleted object."""
    mark = " (deleted)"
    if path.endswith(mark):
        with suppress(OSError):
            if os.stat(link).st_nlink == 0 or not os.path.lexists(path):
                return path.removesuffix(mark)
    return path
