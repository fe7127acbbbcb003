"""Which threads sleep.  This is asked often, so the files of ``/proc`` stay open: opening one costs most."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterable
from contextlib import suppress

from racecheck.kernel import proc

Sleep = tuple[tuple[int, bytes], ...]
"""Sleeping threads, each with its scheduling statistics, which change whenever it runs."""

_SHARE = 8
"""One thread is kept for this many descriptors that this process may have open: it takes three of them."""
_GONE = frozenset({errno.ENOENT, errno.ESRCH})


class Sleepers:
    """Threads that are looked at repeatedly."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE

    def look(
        self,
        pids: Iterable[int],
        stopped: frozenset[int] = frozenset(),
        awaited: frozenset[int] = frozenset(),
    ) -> Sleep | None:
        """Return a snapshot of all threads of some processes if every one of them sleeps, else None.

        Threads that are known to be ``stopped`` are not looked at.  Two equal snapshots in a row mean that nothing ran
        in between.  A process that has just ended is not asleep if its end is ``awaited``: news of it is on the way.
        """
        found: list[tuple[int, bytes]] = []
        for pid in pids:
            threads = self._threads(pid)
            if not threads and pid in awaited:
                return None
            for thread in threads:
                if thread in stopped:
                    continue
                try:
                    how = self._how(pid, thread)
                except OSError as error:
                    if error.errno not in _GONE:
                        raise
                    return None
                if how is None or (not how and thread in awaited):
                    return None
                if how:
                    found.append((thread, how))
        return tuple(found)

    def _how(self, pid: int, thread: int) -> bytes | None:
        """Return how a thread sleeps: None if it does not, empty if it has ended.  Raises `OSError` if it is gone."""
        base = f"/proc/{pid}/task/{thread}/"
        # The kernel tells the call only of a thread that has left the run queue (proc_pid_syscall(5)), and not of a
        # program that its user may not read: there the state has to do.  The state alone says too little: a thread
        # takes the state "sleeping" before it has looked whether there is anything to sleep for, and may be preempted
        # there for as long as others have more right to the processor.  So does the call alone: one that has been woken
        # counts as running, but has left the run queue until its processor takes it up (TASK_WAKING).
        with suppress(PermissionError):
            if self._read(f"{base}syscall") == b"running\n":
                return None
        ran = self._read(f"{base}schedstat")
        stat = self._read(f"{base}stat")
        state = stat[stat.rindex(b")") + 2 :][:1]
        if state in b"ZX":
            return b""
        is_asleep = state == b"S" or (state == b"D" and proc.awaits_its_child(pid, thread))
        return ran if is_asleep else None

    def _threads(self, pid: int) -> list[int]:
        try:
            return sorted(map(int, os.listdir(self._open(f"/proc/{pid}/task", os.O_DIRECTORY))))
        except OSError as error:
            if error.errno not in _GONE:
                raise
            self._forget(f"/proc/{pid}/task")
            return []

    def _read(self, path: str) -> bytes:
        try:
            return os.pread(self._open(path), 4096, 0)
        except OSError:
            self._forget(path)
            raise

    def _open(self, path: str, flags: int = 0) -> int:
        found = self._files.get(path)
        if found is None:
            if len(self._files) >= 3 * self._most:
                self.close()
            found = self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
        return found

    def _forget(self, path: str) -> None:
        if path in self._files:
            os.close(self._files.pop(path))

    def close(self) -> None:
        """Close the descriptors; a later look opens others."""
        for each in self._files.values():
            os.close(each)
        self._files.clear()
