"""Virtual time: it moves when a thread sleeps, and a little with every op.

The time of day begins in 2033, later than any clock says now: C++ waits until a time of day that it has computed from
its clock, and the kernel, which knows nothing of ours, must not find that it has passed.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from racecheck.kernel import libc
from racecheck.kernel.signature import Call, Role
from racecheck.model.epoch import EPOCH, GRANULARITY, TICK
from racecheck.model.ops import op_kinds

if TYPE_CHECKING:
    from racecheck.supervisor.state.tasks import Request, Task


_ATTRIBUTES = op_kinds.SETS | op_kinds.LINKS
_OPENS_TO_CHANGE = frozenset({"O_CREAT", "O_TRUNC"})
_ATIME, _MTIME, _CTIME, _BIRTH = range(4)
_STAT, _STATX = (72, 88, 104), (64, 112, 96, 80)
"""Where the times are in struct stat (of x86-64 and of aarch64) and struct statx."""


@dataclass(slots=True)
class VirtualTime:
    """``elapsed`` nanoseconds since the run began, which ranks read from ``page``; each rank's clock is ``ahead``.

    An op takes ``pace`` ticks.

    Files that an op has changed get a virtual modification time on disk; of the times that no call can set, ``changed``
    (the ctime) and ``born`` are kept here, by device and inode.
    """

    page: mmap.mmap
    ahead: Sequence[int] = ()
    pace: int = 1
    elapsed: int = 0
    reads: dict[str, int] = field(default_factory=dict)
    changed: dict[tuple[int, int], int] = field(default_factory=dict)
    born: dict[tuple[int, int], int] = field(default_factory=dict)
    _started: int = field(default_factory=lambda: time.time_ns() - GRANULARITY)

    def tick(self, until: int = 0) -> None:
        """Advance by an op, or to the end of a sleep."""
        self.elapsed = max(self.elapsed, until) + TICK * self.pace
        self.page[:8] = self.elapsed.to_bytes(8, "little")

    def watch_closely(self, *, is_on: bool) -> None:
        """Have ranks tell of each look at a clock, and their state whenever they sleep."""
        self.page[8] = is_on

    @property
    def now(self) -> int:
        """Return the time of day of the storage, in nanoseconds."""
        return EPOCH + self.elapsed

    def read(self, rank: int, thread: str) -> int:
        """Return the time of day that a thread's clock says."""
        self.reads[thread] = self.reads.get(thread, 0) + TICK
        return self.now + self.reads[thread] + self.ahead[rank]

    def answer(self, task: Task, call: Call, arguments: tuple[int, ...]) -> int:
        """Answer a call that asks for the time; returns its value.  Raises `OSError` if its memory cannot be used."""
        seconds, rest = divmod(self.read(task.rank.number, task.name), 10**9)
        for index, arg in enumerate(call.args):
            if arg.role is Role.OUT and arguments[index]:
                shown = {
                    "timespec": struct.pack("qq", seconds, rest),
                    "timeval": struct.pack("qq", seconds, rest // 1000),
                    "seconds": struct.pack("q", seconds),
                    "timezone": bytes(8),
                }
                task.process.memory.write(arguments[index], shown[arg.name])
        return seconds if call.name == "time" else 0

    # The times of files.

    def stamp(self, request: Request, opened: int) -> None:
        """Set the time of the objects that an op changed, over the kernel's own; ``opened`` is the op's own file."""
        changing = request.op.call in op_kinds.CHANGES or not _OPENS_TO_CHANGE.isdisjoint(request.flags)
        if not changing:
            return
        attributes = request.op.call in _ATTRIBUTES
        for located in request.located.values():
            if located.shown is not None and located.handle >= 0:
                self._stamp(f"/proc/self/fd/{located.handle}", follow=True)
                self._stamp(located.via.rstrip("/"), changed=attributes)
        for descriptor in [*(file.descriptor for file in request.files.values()), opened]:
            if descriptor >= 0:
                self._stamp(f"/proc/self/fd/{descriptor}", follow=True, changed=attributes)

    def _stamp(self, path: str, *, follow: bool = False, changed: bool = False) -> None:
        with suppress(OSError):
            status = os.stat(path, follow_symlinks=follow)
            real = self._is_real(status.st_mtime_ns)
            if real:
                os.utime(path, ns=(status.st_atime_ns, self.now), follow_symlinks=follow)
            if real or changed:
                self.changed[status.st_dev, status.st_ino] = self.now

    def created(self, status: os.stat_result) -> None:
        """Note that a file system object has been made."""
        self.born[status.st_dev, status.st_ino] = self.now

    def _is_real(self, stamp: int) -> bool:
        """Return whether the kernel, and not we, set this time of day, during this run."""
        return self._started <= stamp <= time.time_ns()

    def show(self, request: Request) -> set[int]:
        """Make the times virtual in the answer that a ``stat`` has just written into the rank's memory.

        Returns when ops gave them, in nanoseconds since the run began.
        """
        found: set[int] = set()
        for index, arg in enumerate(request.call.args):
            if arg.role is Role.OUT and arg.name in {"stat", "statx"}:
                memory, address = request.task.process.memory, request.arguments[index]
                raw = memory.read(address, arg.size(libc.MACHINE))
                shown, times = self._shown(raw) if arg.name == "stat" else self._shown_statx(raw)
                memory.write(address, shown)
                found |= {each - EPOCH for each in times[_MTIME:]}
        return found

    def _shown(self, raw: bytes) -> tuple[bytes, list[int]]:
        key = struct.unpack_from("QQ", raw)
        return self._with_times(raw, (key[0], key[1]), _STAT, "qq")

    def _shown_statx(self, raw: bytes) -> tuple[bytes, list[int]]:
        major, minor = struct.unpack_from("II", raw, 136)
        return self._with_times(raw, (os.makedev(major, minor), struct.unpack_from("Q", raw, 32)[0]), _STATX, "qI")

    def _with_times(
        self, raw: bytes, key: tuple[int, int], offsets: tuple[int, ...], form: str
    ) -> tuple[bytes, list[int]]:
        found = [seconds * 10**9 + rest for seconds, rest in (struct.unpack_from(form, raw, each) for each in offsets)]
        modified = EPOCH if self._is_real(found[_MTIME]) else found[_MTIME]
        changed = self.changed.get(key, modified)
        accessed = modified if self._is_real(found[_ATIME]) else found[_ATIME]
        shown, answer = [accessed, modified, changed, self.born.get(key, modified)], bytearray(raw)
        for offset, stamp in zip(offsets, shown, strict=False):
            struct.pack_into(form, answer, offset, *divmod(stamp, 10**9))
        return bytes(answer), shown
