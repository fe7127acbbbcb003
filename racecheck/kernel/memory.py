"""Reading and writing the memory of a stopped thread (process_vm_readv(2))."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable

from racecheck.kernel import libc

PATH_MAX = 4096
_PAGE = 4096
_HIGHEST = (1 << 63) - 1
_ABSENT = frozenset({errno.EFAULT, errno.EIO, errno.ESRCH})

_libc = ctypes.CDLL(None, use_errno=True)
_read, _write = _libc.process_vm_readv, _libc.process_vm_writev
for _call in (_read, _write):
    _call.restype = ctypes.c_ssize_t
    _call.argtypes = (
        ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong,
    )  # fmt: skip


class _Area(ctypes.Structure):
    """A struct iovec."""

    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Memory:
    """The memory of a process, as its threads see it: pages that they may not read or write are as if not there."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ours, self._theirs = _Area(), _Area()

    def _move(self, call: Callable[..., int], ours: int, theirs: int, length: int) -> int:
        """Copy between our memory and the process's; returns how much there was, or the process had."""
        self._ours.start, self._ours.length = ours, length
        self._theirs.start, self._theirs.length = theirs, length
        moved = call(self._pid, ctypes.byref(self._ours), 1, ctypes.byref(self._theirs), 1, 0)
        if moved < 0 and (number := ctypes.get_errno()) not in _ABSENT:
            raise libc.os_error(number)
        return max(0, moved)

    def read(self, address: int, length: int) -> bytes:
        """Return ``length`` bytes; raises `OSError` (EFAULT) where the process has no such memory."""
        data = self.part(address, length)
        if len(data) < length:
            raise _fault()
        return data

    def part(self, address: int, length: int) -> bytes:
        """Return as many of ``length`` bytes as the process has from ``address`` on."""
        if length <= 0 or not 0 < address <= _HIGHEST:
            return b""
        buffer = ctypes.create_string_buffer(length)
        start, done = ctypes.addressof(buffer), 0
        while done < length and (moved := self._move(_read, start + done, address + done, length - done)):
            done += moved
        return buffer.raw[:done]

    def write(self, address: int, data: bytes) -> None:
        """Write bytes; raises `OSError` (EFAULT) where the process has no such memory."""
        if self.fill(address, data) < len(data):
            raise _fault()

    def fill(self, address: int, data: bytes) -> int:
        """Write as much of ``data`` as there is memory for; returns how much."""
        if not data or not 0 < address <= _HIGHEST:
            return 0
        buffer = ctypes.create_string_buffer(data, len(data))
        start, done = ctypes.addressof(buffer), 0
        while done < len(data) and (moved := self._move(_write, start + done, address + done, len(data) - done)):
            done += moved
        return done

    def string(self, address: int, limit: int = PATH_MAX) -> bytes | None:
        """Return the NUL-terminated string, without the NUL; None if it and the NUL take more than ``limit`` bytes.

        Read page by page: the string may end right before memory that is not there.  Raises `OSError` (EFAULT) if
        such memory comes before its end.
        """
        found = b""
        while len(found) < limit:
            room = min(_PAGE - address % _PAGE, limit - len(found))
            chunk = self.part(address, min(room, 256) if not found else room)
            if not chunk:
                raise _fault()
            head, nul, _ = chunk.partition(b"\0")
            found += head
            if nul:
                return found
            address += len(chunk)
        return None


def _fault() -> OSError:
    return OSError(errno.EFAULT, os.strerror(errno.EFAULT))
