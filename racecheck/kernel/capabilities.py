"""The capabilities of this process (capabilities(7)): which it uses, and which its programs can never have."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from racecheck.kernel import libc

_HEAD = struct.pack("Ii", 0x20080522, 0)
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _RAISE, _CLEAR_ALL = 24, 47, 2, 4
_MOUNTING = 21
"""CAP_SYS_ADMIN."""
_OF_THE_MACHINE = (
    2,  # CAP_DAC_READ_SEARCH opens files by a handle that no path led to
    12, 16, 17,  # CAP_NET_ADMIN, SYS_MODULE, SYS_RAWIO
    19,  # CAP_SYS_PTRACE opens the descriptors of a more capable process: ours lead to real files
    20, 22,  # CAP_SYS_PACCT, SYS_BOOT
    25, 26, 27,  # CAP_SYS_TIME, SYS_TTY_CONFIG, MKNOD
    29, 30, 32, 33, 34, 35, 37, 38, 39, 40,  # CAP_AUDIT_*, MAC_*, SYSLOG, WAKE_ALARM, PERFMON, BPF, CHECKPOINT_RESTORE
)  # fmt: skip
"""What no layer covers, and no training script needs: the devices, the kernel and the network of the machine."""

_libc = ctypes.CDLL(None, use_errno=True)


def use(*, effective: bool) -> None:
    """Make the capabilities that this process may have effective, or none of them (capget(2)); none are inherited."""
    permitted = _permitted()
    _set(permitted if effective else 0, permitted)


def give_up() -> None:
    """Drop all, which in a user namespace would let an ordinary user read his own unreadable files (capset(2))."""
    _set(0, 0)


def give_up_mounting() -> None:
    """Drop the right to mount anything, or to unmount a layer, for this process and all that it starts."""
    deny_mounting()
    left = _permitted() & ~(1 << _MOUNTING)
    _set(left, left)


def deny_machine() -> None:
    """Let no program that this process starts have a capability over the machine; this process keeps them."""
    _deny(_OF_THE_MACHINE)


def deny_mounting() -> None:
    """Let no program that this process starts mount anything, or unmount a layer; this process keeps the right."""
    _deny((_MOUNTING,))


@contextmanager
def inherited() -> Iterator[None]:
    """Let a program that an ordinary user starts meanwhile have his namespace's right to mount; root's have theirs."""
    try:
        if os.geteuid() != 0:
            _set(0, _permitted(), 1 << _MOUNTING)
            with suppress(OSError):  # there is no namespace of this user's
                libc.prctl(_PR_CAP_AMBIENT, _RAISE, _MOUNTING)
        yield
    finally:
        if os.geteuid() != 0:
            libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)
            _set(0, _permitted())


def _permitted() -> int:
    data = ctypes.create_string_buffer(24)
    _libc.capget(_HEAD, data)
    words: tuple[int, ...] = struct.unpack("6I", data.raw)
    return words[1] | words[4] << 32


def _set(effective: int, permitted: int, inheritable: int = 0) -> None:
    every = (effective, permitted, inheritable)
    _libc.capset(_HEAD, struct.pack("6I", *(each & 0xFFFF_FFFF for each in every), *(each >> 32 for each in every)))


def _deny(capabilities: tuple[int, ...]) -> None:
    """Drop capabilities from the bounding set.  An ordinary user may not, and his programs get none anyway."""
    for each in capabilities:
        try:
            libc.prctl(_PR_CAPBSET_DROP, each)
        except OSError as error:
            if error.errno not in {errno.EPERM, errno.EINVAL}:  # EINVAL: this kernel does not have it
                raise
