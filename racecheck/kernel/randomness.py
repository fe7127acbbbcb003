"""The C library's random numbers, from a seeded generator for a while.

What draws them once and keeps them, as Rust's hash maps do when a module is imported, is then the same in every process
that imports the same.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from racecheck.kernel import libc

_DRAW = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)


@contextmanager
def repeatable(seed: str) -> Iterator[None]:
    """Make getrandom(3) of this process and its forks return numbers from a seed, as long as this lasts.

    (Linux's system call still returns real ones.)  Raises `OSError` if the kernel does not let a process write
    to its own code through /proc.
    """
    generator = Random(seed)

    def draw(buffer: int, length: int, flags: int) -> int:
        del flags
        ctypes.memmove(buffer, generator.randbytes(length), length)
        return length

    callback = _DRAW(draw)
    target = ctypes.cast(callback, ctypes.c_void_p).value
    place = ctypes.cast(ctypes.CDLL(None).getrandom, ctypes.c_void_p).value
    assert target is not None
    assert place is not None
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(place)
        original = memory.read(len(jump(target, libc.MACHINE)))
        memory.seek(place)
        memory.write(jump(target, libc.MACHINE))
        try:
            yield
        finally:
            memory.seek(place)
            memory.write(original)


def jump(target: int, machine: str) -> bytes:
    """Instructions that jump to an address."""
    if machine == "x86_64":
        return b"\x48\xb8" + struct.pack("<Q", target) + b"\xff\xe0"  # mov rax, target; jmp rax
    return struct.pack("<IIQ", 0x58000050, 0xD61F0200, target)  # ldr x16, target; br x16
