"""The open files of ranks: which descriptor of which process refers to which file.

Files are identified by the open file description, not by number.  The supervisor keeps a duplicate of each
description that it has handed out; a descriptor that it meets for the first time (inherited, duplicated, received
from a peer) is adopted: it is compared with the kept ones (kcmp(2)), and only if it is none of them is it fetched
with pidfd_getfd(2), which some container profiles forbid.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from racecheck.kernel import libc, syscalls
from racecheck.kernel.path_walk import undeleted
from racecheck.kernel.seccomp import FIRST_DESCRIPTOR
from racecheck.model.errors import CannotRun
from racecheck.supervisor.files.paths import Watched, check_ours

_STANDARD = 3
"""The number of descriptors for standard input, output and errors."""
_KCMP_FILE = 0


@dataclass(slots=True, eq=False)
class OpenFile:
    """An open file description that ranks share with us through ``descriptor``, our duplicate.

    ``listing`` has the entries of a directory stream, once it has been read; ``keeps_listing``: it is not read again.
    """

    number: int
    descriptor: int
    holders: int = 0
    listing: list[bytes] | None = None
    keeps_listing: bool = False
    position: int = 0

    def path(self) -> str:
        """Return where the file is now, or last was; "" for one that is deeper than the kernel can report."""
        link = f"/proc/self/fd/{self.descriptor}"
        try:
            return undeleted(os.readlink(link), link)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            return ""

    def status(self) -> os.stat_result:
        return os.fstat(self.descriptor)

    def duplicate(self) -> int:
        """Return another descriptor of ours for it; raises `CannotRun` if we may not have one."""
        try:
            return os.dup(self.descriptor)
        except OSError as error:
            check_ours(error.errno or 0)
            raise


@dataclass(slots=True)
class OpenFiles:
    """All open file descriptions of a run."""

    watched: Watched
    _files: list[OpenFile] = field(default_factory=list)
    _last: int = 0

    def add(self, descriptor: int) -> OpenFile:
        """Keep ``descriptor``, which is ours, as a new open file."""
        self._last += 1
        file = OpenFile(self._last, descriptor)
        self._files.append(file)
        return file

    def release(self, file: OpenFile) -> bool:
        """Drop a descriptor of the file; returns True if it was the last, and ours is closed now."""
        file.holders -= 1
        if file.holders > 0:
            return False
        self._files.remove(file)
        os.close(file.descriptor)
        return True

    def same(self, pid: int, number: int) -> OpenFile | None:
        """Return the kept file that a descriptor of another process refers to."""
        kcmp = syscalls.number("kcmp", libc.MACHINE)
        assert kcmp is not None
        for file in self._files:
            if libc.syscall(kcmp, pid, os.getpid(), _KCMP_FILE, number, file.descriptor) == (0, 0):
                return file
        return None

    def close(self) -> None:
        for file in self._files:
            os.close(file.descriptor)
        self._files.clear()


class Descriptors:
    """The descriptors of one process that refer to watched files."""

    def __init__(self, pid: int, files: OpenFiles) -> None:
        self._pid = pid
        self._files = files
        self._table: dict[int, OpenFile] = {}

    def free_number(self, minimum: int = 0) -> int:
        """Return the lowest unused number of the process that the filter sees and that is not below ``minimum``."""
        for number in range(minimum, _STANDARD):
            if number not in self._table and not self.is_open(number):
                return number
        number = max(FIRST_DESCRIPTOR, minimum)
        while number in self._table or self.is_open(number):
            number += 1
        return number

    def has_room(self) -> bool:
        """Return whether the process may have another one.

        Raises `CannotRun` if that is only because of the numbers that watched files get.
        """
        if self.free_number() < self.limit:
            return True
        if len(os.listdir(f"/proc/{self._pid}/fd")) < self.limit:
            raise CannotRun(
                f"a rank may have {self.limit} open files; watched files get numbers from {FIRST_DESCRIPTOR} on: "
                "raise RLIMIT_NOFILE"
            )
        return False

    @property
    def limit(self) -> int:
        """Return the limit of the process's numbers: all are below it."""
        return resource.prlimit(self._pid, resource.RLIMIT_NOFILE)[0]

    def is_open(self, number: int) -> bool:
        """Return whether the process has a descriptor of this number, of whatever kind."""
        return os.path.lexists(f"/proc/{self._pid}/fd/{number}")

    def set(self, number: int, file: OpenFile) -> None:
        """Let ``number`` refer to ``file`` from now on, whatever it referred to before."""
        file.holders += 1
        self.drop(number)
        self._table[number] = file

    def drop(self, number: int) -> OpenFile | None:
        """Close ``number``; returns the file if that was its last descriptor."""
        file = self._table.pop(number, None)
        return file if file is not None and self._files.release(file) else None

    def between(self, first: int, last: int) -> list[int]:
        """Return the numbers in a range, both ends included."""
        return sorted(number for number in self._table if first <= number <= last)

    def among(self, first: int, last: int) -> list[OpenFile]:
        """Return the files of a range's numbers, in the same order."""
        return [self._table[number] for number in self.between(first, last)]

    def alone_with(self) -> list[OpenFile]:
        """Return the files that no other process has open."""
        counts = Counter(file.number for file in self._table.values())
        files = {file.number: file for file in self._table.values()}
        return [file for number, file in sorted(files.items()) if file.holders == counts[number]]

    def files(self) -> list[OpenFile]:
        """Return each watched file that the process has open, once."""
        return [file for _, file in sorted({file.number: file for file in self._table.values()}.items())]

    def drop_all(self) -> list[OpenFile]:
        """End the process; returns the files of which it had the last descriptors."""
        dropped = (self.drop(number) for number in tuple(self._table))
        return [file for file in dropped if file is not None]

    def inherit(self, parent: Descriptors) -> None:
        """Take over the files that a forked process shares with its parent: each keeps them open."""
        for number, file in [*parent._table.items()]:
            if self.where(number) is not None and self._files.same(self._pid, number) is file:
                self.set(number, file)

    def look_up(self, number: int) -> OpenFile | None:
        """Return the watched file that a descriptor refers to; None if it refers to something else.

        Raises `PermissionError` if it is watched but cannot be had.
        """
        if number in self._table and _is_seen(number):
            return self._table[number]
        if self.where(number) is None:
            self.drop(number)
            return None
        file = self._files.same(self._pid, number) or self._files.add(self.fetch(number))
        self.set(number, file)
        return file

    def where(self, number: int) -> str | None:
        """Return the path that a descriptor refers to, as places show it; None if it is no storage.

        That is a file outside the watched directories, and a FIFO, which passes data on, and waits.
        """
        try:
            link = f"/proc/{self._pid}/fd/{number}"
            shown = self._files.watched.shown(undeleted(os.readlink(link), link))
            return shown if shown is not None and not _is_channel(os.stat(link).st_mode) else None
        except OSError:
            return None

    def fetch(self, number: int) -> int:
        """Return a duplicate of a descriptor, of whatever kind; raises `PermissionError`."""
        fetch, opened = syscalls.number("pidfd_getfd", libc.MACHINE), os.pidfd_open(self._pid)
        assert fetch is not None
        try:
            descriptor, error = libc.syscall(fetch, opened, number, 0)
        finally:
            os.close(opened)
        check_ours(error)
        if error:
            raise PermissionError(error, "pidfd_getfd is not allowed")
        return descriptor

    def executed(self) -> list[OpenFile]:
        """Execute another program; returns the files whose last descriptors were close-on-exec."""
        dropped = (self.drop(number) for number in [each for each in self._table if self.where(each) is None])
        return [file for file in dropped if file is not None]

    def numbers(self) -> Iterable[int]:
        return tuple(self._table)


def _is_seen(number: int) -> bool:
    """Return whether the filter stops the calls on a descriptor; if not, it may refer to another file each time."""
    return number >= FIRST_DESCRIPTOR or number < _STANDARD


def _is_channel(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)
