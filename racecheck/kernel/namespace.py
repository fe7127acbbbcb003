"""A private mount namespace, in which a path leads to another directory than elsewhere."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_NEWNS, _NEWUSER = 0x20000, 0x10000000
BIND, REC = 4096, 16384
_PRIVATE = 1 << 18
_CAPABILITIES = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def stand_in(directory: Path, path: Path) -> bool:
    """Show ``directory`` at ``path`` to this process and all that it starts; returns whether that worked.

    It takes root, or user namespaces that anybody may have (unshare(2), mount_namespaces(7)); and one thread.
    """
    try:
        enter()
        mount(str(directory), path, BIND)
    except OSError:
        return False
    finally:
        if os.geteuid() != 0:
            _give_up_capabilities()
    return True


def enter() -> None:
    """Give this process mounts of its own, which no other process sees; raises `OSError`."""
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEWNS if user == 0 else _NEWNS | _NEWUSER))
    if user != 0:
        _stay(user, group)
    mount("none", Path("/"), REC | _PRIVATE)


def mount(source: str, target: Path, flags: int, *, kind: str = "", options: str = "") -> None:
    """Mount something (mount(2)); raises `OSError`."""
    words = [os.fsencode(each) if each else None for each in (kind, options)]
    _check(_libc.mount(os.fsencode(source), bytes(target), words[0], ctypes.c_ulong(flags), words[1]))


def unmount(target: Path, flags: int) -> None:
    """Unmount what is at a path (umount2(2)); raises `OSError`."""
    _check(_libc.umount2(bytes(target), flags))


def _stay(user: int, group: int) -> None:
    """In the new user namespace, keep our user and group (user_namespaces(7))."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _give_up_capabilities() -> None:
    """Drop the namespace's privileges, which would let an ordinary user read his own unreadable files (capset(2))."""
    _libc.capset(struct.pack("Ii", _CAPABILITIES, 0), bytes(24))
