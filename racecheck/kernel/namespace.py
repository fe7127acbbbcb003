"""A private mount namespace, in which a path leads to another directory than elsewhere."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from racecheck.kernel import capabilities, libc, syscalls

_NEWNS, _NEWUSER = 0x20000, 0x10000000
BIND, REC = 4096, 16384
NO_DEVICES = 4
_PRIVATE = 1 << 18
_HERE = -100 & 0xFFFF_FFFF_FFFF_FFFF
_OPEN_TREE_CLONE, _MOVE_MOUNT_FROM_DESCRIPTOR, _AT_EMPTY_PATH, _AT_RECURSIVE = 1, 4, 0x1000, 0x8000
_ATTR_READ_ONLY, _ATTR_NO_DEVICES = 1, 4

_libc = ctypes.CDLL(None, use_errno=True)


def stand_in(directory: Path, path: Path, kept: Sequence[str] = ()) -> bool:
    """Show ``directory`` at ``path`` to this process and all that it starts; returns whether that worked.

    The entries ``kept`` of the path are seen there as well.  It takes root, or user namespaces that anybody may have
    (unshare(2), mount_namespaces(7)); and one thread.
    """
    try:
        enter()
        for name in kept:
            _show(path / name, directory / name)
        mount(str(directory), path, BIND | REC)
    except OSError:
        return False
    finally:
        if os.geteuid() != 0:
            capabilities.give_up()
    return True


def _show(path: Path, at: Path) -> None:
    """Show a file or directory at another path, too; a symbolic link leads there as well."""
    if path.is_symlink():
        at.symlink_to(path.readlink())
    elif path.exists():
        at.mkdir() if path.is_dir() else at.touch()
        mount(str(path), at, BIND | REC)


def enter() -> None:
    """Give this process mounts of its own, which no other process sees; raises `OSError`."""
    user, group = os.geteuid(), os.getegid()
    unshare(_NEWNS if user == 0 else _NEWNS | _NEWUSER)
    if user != 0:
        _stay(user, group)
    mount("none", Path("/"), REC | _PRIVATE)


def unshare(flags: int) -> None:
    """Enter new namespaces (unshare(2)); raises `OSError`."""
    _check(_libc.unshare(flags))


def mount(source: str, target: Path, flags: int, *, kind: str = "", options: str = "") -> None:
    """Mount something (mount(2)); raises `OSError`."""
    words = [os.fsencode(each) if each else None for each in (kind, options)]
    _check(_libc.mount(os.fsencode(source), bytes(target), words[0], ctypes.c_ulong(flags), words[1]))


def unmount(target: Path, flags: int) -> None:
    """Unmount what is at a path (umount2(2)); raises `OSError`."""
    _check(_libc.umount2(bytes(target), flags))


def show_read_only(source: str, path: Path) -> None:
    """Show a file or directory at a path so that nothing can be written there, nor to devices; raises `OSError`.

    Mounts below it are shown as well.
    """
    copy = _call("open_tree", _HERE, os.fsencode(source), _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE)
    try:
        _set(copy, b"", _ATTR_READ_ONLY | _ATTR_NO_DEVICES, 0)
        _call("move_mount", copy, b"", _HERE, bytes(path), _MOVE_MOUNT_FROM_DESCRIPTOR)
    finally:
        os.close(copy)


def seal(path: Path, *, lift: bool = False) -> None:
    """Let nothing be written in the mount at a path, or ``lift`` that; raises `OSError`."""
    _set(_HERE, bytes(path), 0 if lift else _ATTR_READ_ONLY, _ATTR_READ_ONLY if lift else 0, recursive=False)


def _set(directory: int, path: bytes, added: int, removed: int, *, recursive: bool = True) -> None:
    """Change attributes of mounts, and no other attribute (mount_setattr(2)): an ordinary user must keep those."""
    flags = (0 if path else _AT_EMPTY_PATH) | (_AT_RECURSIVE if recursive else 0)
    _call("mount_setattr", directory, path, flags, struct.pack("QQQQ", added, removed, 0, 0), 32)


def _call(name: str, *arguments: libc.Argument) -> int:
    number = syscalls.number(name, libc.MACHINE)
    assert number is not None
    value, error = libc.syscall(number, *arguments)
    if error:
        raise libc.os_error(error)
    return value


def _stay(user: int, group: int) -> None:
    """In the new user namespace, keep our user and group (user_namespaces(7))."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _check(result: int) -> None:
    if result != 0:
        raise libc.os_error(ctypes.get_errno())
