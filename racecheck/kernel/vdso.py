"""Clock reads and randomness that come from the vDSO, turned into system calls, which a filter can stop.

The vDSO (vdso(7)) is a small library that the kernel maps into every process: it tells the time without a system call,
and (with glibc 2.41 and later) draws random numbers.  Its entries are overwritten with three instructions that
make the call.  Its pages are private, so this concerns the calling process and what it forks; a program that is
executed has a vDSO of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from racecheck.kernel import libc
from racecheck.kernel.syscalls import number

_ENTRIES: Mapping[str, tuple[str, ...]] = {
    "x86_64": ("__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time", "__vdso_getrandom"),
    "aarch64": ("__kernel_clock_gettime", "__kernel_gettimeofday", "__kernel_getrandom"),
}
_DYNAMIC_SYMBOLS = 11
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


def divert() -> list[str]:
    """Overwrite the entries of this process; returns the names of those that existed.

    Raises `OSError` if the kernel does not let a process write to its own code through /proc.
    """
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            first, last = (int(each, 16) for each in line.split()[0].split("-"))
            found = _divert(first, last)
    return found


def _divert(first: int, last: int) -> list[str]:
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(first)
        image, found = memory.read(last - first), []
        for name, offset in symbols(image):
            if name in _ENTRIES[libc.MACHINE]:
                known = number(name.rpartition("vdso_")[2].removeprefix("__kernel_"), libc.MACHINE)
                assert known is not None
                memory.seek(first + offset)
                memory.write(code(known, libc.MACHINE))
                found.append(name)
        return found


def code(call: int, machine: str) -> bytes:
    """Return instructions that make a system call with the arguments of a function call, and return its result."""
    if machine == "x86_64":
        return b"\xb8" + struct.pack("<I", call) + b"\x0f\x05\xc3"  # mov eax, call; syscall; ret
    return struct.pack("<III", 0xD2800008 | call << 5, 0xD4000001, 0xD65F03C0)  # mov x8, call; svc 0; ret


def symbols(image: bytes) -> Iterator[tuple[str, int]]:
    """Yield the dynamic symbols of a 64-bit ELF image (elf(5)): each name with its offset."""
    table, size, count = struct.unpack_from("<Q", image, 40)[0], *struct.unpack_from("<HH", image, 58)
    sections = [_SECTION.unpack_from(image, table + size * each) for each in range(count)]
    for section in sections:
        if section[1] == _DYNAMIC_SYMBOLS:
            names = sections[section[6]][4]
            for offset in range(section[4], section[4] + section[5], _SYMBOL.size):
                name, _, _, _, value, _ = _SYMBOL.unpack_from(image, offset)
                yield image[names + name : image.index(b"\0", names + name)].decode(), value
