"""Reading and writing the memory of a stopped thread, through ``/proc/<pid>/mem`` (proc(5))."""

from __future__ import annotations

import os

PATH_MAX = 4096
_PAGE = 4096


class Memory:
    """The memory of a process, as its threads see it.

    The handle dies when the process executes another program: call `forget` then.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._handle = -1

    def _open(self) -> int:
        if self._handle < 0:
            self._handle = os.open(f"/proc/{self._pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        return self._handle

    def forget(self) -> None:
        """Close the handle; the next access opens another."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def read(self, address: int, length: int) -> bytes:
        """``length`` bytes; raises `OSError` (EFAULT, EIO) where the process has no such memory."""
        if length == 0:
            return b""
        data = os.pread(self._open(), length, address)
        if len(data) == length:
            return data
        rest = self.read(address + len(data), length - len(data)) if data else b""
        if not data:
            raise OSError(14, "Bad address")
        return data + rest

    def write(self, address: int, data: bytes) -> None:
        """Raises `OSError` where the process has no such memory."""
        while data:
            done = os.pwrite(self._open(), data, address)
            address, data = address + done, data[done:]

    def string(self, address: int, limit: int = PATH_MAX) -> bytes | None:
        """The NUL-terminated string, without the NUL; None if it is longer than ``limit``.

        Read page by page: the string may end right before memory that is not there.
        """
        found = b""
        while len(found) < limit:
            room = min(_PAGE - address % _PAGE, limit - len(found))
            chunk = os.pread(self._open(), min(room, 256) if not found else room, address)
            if not chunk:
                raise OSError(14, "Bad address")
            head, nul, _ = chunk.partition(b"\0")
            found += head
            if nul:
                return found
            address += len(chunk)
        return None
