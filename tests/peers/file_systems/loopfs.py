"""A file system on a loop device, in a process with a mount namespace of its own, that can be crashed.

For `tests.peers.file_systems.realfs`, which runs this in a process of its own: with the process the mounts go, with
these the loop device.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

FILE_SYSTEMS = ("ext4", "xfs", "btrfs")

_MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-b", "4096"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}
_SIZES = {"ext4": 64 << 20, "xfs": 320 << 20, "btrfs": 256 << 20}

_CLONE_NEWNS = 0x00020000
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18
_LOOP_SET_FD, _LOOP_SET_STATUS64, _LOOP_CTL_GET_FREE = 0x4C00, 0x4C04, 0x4C82
_LO_FLAGS_AUTOCLEAR, _LO_FLAGS_OFFSET, _LOOP_INFO64 = 4, 52, 232
_SHUTDOWN, _NO_LOG_FLUSH = 0x8004587D, 2
_BTRFS_START_SYNC, _BTRFS_WAIT_SYNC = 0x80089418, 0x40089416
_SYNC_FILE_RANGE_ALL = 7

_libc = ctypes.CDLL(None, use_errno=True)


def why_not(fs: str) -> str:
    """Return why ``fs`` cannot be crashed here, or "" if nothing speaks against a try."""
    if os.geteuid() != 0:
        return "mounting file systems needs root"
    if shutil.which(_MAKE[fs][0]) is None:
        return f"{_MAKE[fs][0]} is not installed"
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        return "no loop devices (/dev/loop-control)"
    return ""


def own_mounts() -> None:
    """Give this process mounts of its own; raises `OSError`."""
    _checked(_libc.unshare(_CLONE_NEWNS))
    _checked(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))


class LoopFs:
    """Yield a fresh, mounted file system of a kind below ``place``.

    Raises `OSError` where the kernel or a device does not play along, `subprocess.CalledProcessError` where mkfs fails.
    """

    def __init__(self, fs: str, place: Path) -> None:
        self.fs = fs
        self.mount = place / "mount"
        self._image, self._copy = place / "image", place / "copy"
        self._commits = 0
        self.mount.mkdir()
        with self._image.open("wb") as file:
            file.truncate(_SIZES[fs])
        subprocess.run([*_MAKE[fs], str(self._image)], check=True, capture_output=True, stdin=subprocess.DEVNULL)
        self._device, self._kept = _loop(self._image)
        self._mount()

    def crash(self) -> None:
        """Lose power, and mount the file system again."""
        if self.fs == "btrfs":
            _copy(self._image, self._copy)
            self._unmount()
            _copy(self._copy, self._image)
        else:
            descriptor = os.open(self.mount, os.O_RDONLY)
            try:
                fcntl.ioctl(descriptor, _SHUTDOWN, _NO_LOG_FLUSH.to_bytes(4, "little"))
            finally:
                os.close(descriptor)
            self._unmount()
        self._mount()

    def flush(self, descriptor: int) -> None:
        """See `tests.peers.file_systems.litmus.Special`."""
        _checked(_libc.sync_file_range(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_ALL))

    def sync(self) -> None:
        """See `tests.peers.file_systems.litmus.Special`."""
        descriptor = os.open(self.mount, os.O_RDONLY)
        try:
            _checked(_libc.syncfs(descriptor))
        finally:
            os.close(descriptor)

    def commit(self) -> None:
        """See `tests.peers.file_systems.litmus.Special`: a transaction of btrfs, elsewhere an fsync of another file."""
        if self.fs == "btrfs":
            descriptor = os.open(self.mount, os.O_RDONLY)
            try:
                number = fcntl.ioctl(descriptor, _BTRFS_START_SYNC, bytes(8))
                fcntl.ioctl(descriptor, _BTRFS_WAIT_SYNC, number)
            finally:
                os.close(descriptor)
            return
        self._commits += 1
        descriptor = os.open(self.mount / f"commit{self._commits}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.write(descriptor, b"\0")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Unmount it and let the device go."""
        with suppress(OSError):
            self._unmount()
        os.close(self._kept)

    def _mount(self) -> None:
        arguments = (self._device.encode(), os.fsencode(self.mount), self.fs.encode(), 0, None)
        _checked(_libc.mount(*arguments))

    def _unmount(self) -> None:
        _checked(_libc.umount2(os.fsencode(self.mount), 0))


def _checked(result: int) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _loop(image: Path) -> tuple[str, int]:
    """Return a loop device for an image, and a descriptor that keeps it: device and mounts go with the last one."""
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        while True:
            device = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
            descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            backing = os.open(image, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, _LOOP_SET_FD, backing)
            except OSError:  # another process was faster
                os.close(descriptor)
                continue
            finally:
                os.close(backing)
            info = bytearray(_LOOP_INFO64)
            info[_LO_FLAGS_OFFSET : _LO_FLAGS_OFFSET + 4] = _LO_FLAGS_AUTOCLEAR.to_bytes(4, "little")
            fcntl.ioctl(descriptor, _LOOP_SET_STATUS64, bytes(info))
            return device, descriptor
    finally:
        os.close(control)


def _copy(source: Path, target: Path) -> None:
    """Copy an image with its holes."""
    with source.open("rb", buffering=0) as one, target.open("r+b" if target.exists() else "wb", buffering=0) as other:
        size = one.seek(0, os.SEEK_END)
        other.truncate(0)
        other.truncate(size)
        place = 0
        while True:
            try:
                place = os.lseek(one.fileno(), place, os.SEEK_DATA)
            except OSError:  # nothing but a hole from here on
                return
            end = os.lseek(one.fileno(), place, os.SEEK_HOLE)
            while place < end:
                place += os.pwrite(other.fileno(), os.pread(one.fileno(), min(end - place, 1 << 20), place), place)
