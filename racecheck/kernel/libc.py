"""The C library, called directly: system calls by number, with the result and errno as values."""

from __future__ import annotations

import ctypes
import errno
import os
import platform

Argument = int | bytes | ctypes.Array[ctypes.c_char] | None

_libc = ctypes.CDLL(None, use_errno=True)
_syscall, _syscall_with_gil = _libc.syscall, ctypes.PyDLL(None, use_errno=True).syscall
_ioctl = _libc.ioctl
_ioctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)
_syscall.restype = _syscall_with_gil.restype = ctypes.c_long

MACHINE = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}.get(platform.machine(), "")


def syscall(number: int, *arguments: Argument, keep_gil: bool = False) -> tuple[int, int]:
    """Make a system call; returns its value and 0, or -1 and the errno.

    Integers are passed as 64-bit registers, ``bytes`` and ctypes buffers as pointers.  ``keep_gil``: no other thread
    runs Python code meanwhile.

    A call that a signal to this process interrupts is made again, as Python's own functions do (PEP 475).
    """
    call = _syscall_with_gil if keep_gil else _syscall
    registers = [ctypes.c_ulong(each & 0xFFFF_FFFF_FFFF_FFFF) if isinstance(each, int) else each for each in arguments]
    while True:
        value: int = call(ctypes.c_long(number), *registers)
        if value != -1:
            return value, 0
        if (error := ctypes.get_errno()) != errno.EINTR:
            return -1, error


def prctl(option: int, *arguments: int) -> None:
    """``prctl(2)``; raises `OSError`."""
    padded = [*arguments, 0, 0, 0, 0][:4]
    if _libc.prctl(ctypes.c_int(option), *(ctypes.c_ulong(each) for each in padded)) < 0:
        raise os_error(ctypes.get_errno())


def ioctl(descriptor: int, request: int, argument: object) -> int:
    """``ioctl(2)`` with a pointer or a number; returns 0 or a positive value, or minus the errno."""
    value: int = _ioctl(descriptor, request, argument)
    return value if value >= 0 else -ctypes.get_errno()


def madvise(address: int, length: int, advice: int) -> int:
    """``madvise(2)``; returns 0 or the errno."""
    value: int = _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), ctypes.c_int(advice))
    return 0 if value == 0 else ctypes.get_errno()


def personality(flags: int) -> int:
    """``personality(2)``; returns the old flags, or -1."""
    value: int = _libc.personality(ctypes.c_ulong(flags))
    return value


def os_error(number: int) -> OSError:
    """Return the exception that Python would raise for this errno."""
    return OSError(number, os.strerror(number))


def errno_name(number: int) -> str:
    """Return "EEXIST" for 17, "" for 0."""
    if number == errno.EDEADLK:  # Python has another name for it, EDEADLOCK
        return "EDEADLK"
    return errno.errorcode.get(number, f"errno {number}") if number else ""
