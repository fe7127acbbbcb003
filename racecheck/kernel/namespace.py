"""A private mount namespace, in which a path leads to another directory than elsewhere."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_NEWNS, _NEWUSER = 0x20000, 0x10000000
_BIND, _REC, _PRIVATE = 4096, 16384, 1 << 18
_CAPABILITIES = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def stand_in(directory: Path, path: Path) -> bool:
    """Show ``directory`` at ``path`` to this process and all that it starts; returns whether that worked.

    It takes root, or user namespaces that anybody may have (unshare(2), mount_namespaces(7)); and one thread.
    """
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(_NEWNS if user == 0 else _NEWNS | _NEWUSER) != 0:
        return False
    try:
        if user != 0:
            _stay(user, group)
        _mount(b"none", b"/", _REC | _PRIVATE)
        _mount(bytes(directory), bytes(path), _BIND)
    except OSError:
        return False
    finally:
        if user != 0:
            _give_up_capabilities()
    return True


def _stay(user: int, group: int) -> None:
    """In the new user namespace, keep our user and group (user_namespaces(7))."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _mount(source: bytes, target: bytes, flags: int) -> None:
    if _libc.mount(source, target, None, ctypes.c_ulong(flags), None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _give_up_capabilities() -> None:
    """Drop the namespace's privileges, which would let an ordinary user read his own unreadable files (capset(2))."""
    _libc.capset(struct.pack("Ii", _CAPABILITIES, 0), bytes(24))
