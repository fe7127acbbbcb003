"""Reading and writing the memory of a stopped thread, through ``/proc/<pid>/mem`` (proc(5))."""

from __future__ import annotations

import errno
import os

PATH_MAX = 4096
_PAGE = 4096
_HIGHEST = (1 << 63) - 1


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
        """Return ``length`` bytes; raises `OSError` (EFAULT) where the process has no such memory."""
        data = self.part(address, length)
        if len(data) < length:
            raise _fault()
        return data

    def part(self, address: int, length: int) -> bytes:
        """Return as many of ``length`` bytes as the process has from ``address`` on."""
        found = b""
        while len(found) < length and 0 < address <= _HIGHEST:
            try:
                data = os.pread(self._open(), length - len(found), address)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                break
            if not data:
                break
            found, address = found + data, address + len(data)
        return found

    def write(self, address: int, data: bytes) -> None:
        """Write bytes; raises `OSError` (EFAULT) where the process has no such memory."""
        if self.fill(address, data) < len(data):
            raise _fault()

    def fill(self, address: int, data: bytes) -> int:
        """Write as much of ``data`` as there is memory for; returns how much."""
        done = 0
        while done < len(data) and 0 < address + done <= _HIGHEST:
            try:
                written = os.pwrite(self._open(), data[done:] if done else data, address + done)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                break
            if not written:  # the process has ended
                break
            done += written
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
