"""The rows of the system call table against the running kernel: each is called as its signature says."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from racecheck.kernel.syscalls import FLAGS, TABLE, Arg, Call, Role, Treatment, calls, flag_names, number

MACHINE = platform.machine()
AT_FDCWD = -100
PATHS = (Role.PATH, Role.LINK)
PERFORMED = [row for row in calls(MACHINE).values() if row.treatment is Treatment.PERFORM]
NEW = 451
"""Calls from here on are newer than some kernels that racecheck runs on."""

Value = int | bytes | ctypes.Array[ctypes.c_char]
_libc = ctypes.CDLL(None, use_errno=True)


def error_of(row: Call, values: list[Value]) -> int:
    """The errno with which the kernel answers, 0 for success."""
    known = number(row.name, MACHINE)
    assert known is not None
    passed = [ctypes.c_long(value) if isinstance(value, int) else value for value in values]
    error = 0 if _libc.syscall(ctypes.c_long(known), *passed) >= 0 else ctypes.get_errno()
    assert error != errno.ENOSYS or known >= NEW
    return error


def arguments(row: Call, *, path: bytes = b"", fd: int = -1, pointer: int = 0, bits: str = "") -> list[Value]:
    """Arguments at which no kernel can take offence, but for the ones given.

    ``pointer`` goes to ``in`` and ``inout``, and ``bits`` is a flag for those that know it.
    """

    def value(arg: Arg) -> Value:
        if arg.role in PATHS:
            return path
        if arg.role is Role.FLAGS:
            return FLAGS[arg.name].bits.get(bits, 0)
        if arg.role in (Role.TARGET, Role.STRING):
            return b"user.racecheck"
        if arg.role in (Role.OUT, Role.INBUF, Role.OUTBUF, Role.HOW):
            return ctypes.create_string_buffer(512)
        fixed = {Role.DIRFD: AT_FDCWD, Role.FD: fd, Role.IN: pointer, Role.INOUT: pointer}
        return fixed.get(arg.role, {"size": 24, "uid": -1, "gid": -1}.get(arg.name, 0))

    return [value(arg) for arg in row.args]


@pytest.fixture(autouse=True)
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A symbolic link to itself: what follows it ends with ELOOP, what does not meets the link."""
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("file").write_bytes(b"content")


PROBED = [
    row.name
    for row in calls(MACHINE).values()
    if any(arg.role in PATHS for arg in row.args)
    and (row.treatment is Treatment.PERFORM or row.name in ("chdir", "execve", "name_to_handle_at"))
]


@pytest.mark.parametrize("bits", ["", "AT_SYMLINK_NOFOLLOW", "AT_SYMLINK_FOLLOW"])
@pytest.mark.parametrize("name", PROBED)
def test_the_kernel_follows_a_link_where_the_table_says_so(name: str, bits: str) -> None:
    row = TABLE[name]
    taken = {bits for arg in row.args if arg.role is Role.FLAGS and bits in FLAGS[arg.name].bits}
    follows = any(row.follows(index, taken) for index, arg in enumerate(row.args) if arg.role in PATHS)
    error = error_of(row, arguments(row, path=b"loop", bits=bits))
    if error != errno.ENOSYS:
        assert (error == errno.ELOOP) is follows


def test_opening_exclusively_does_not_follow() -> None:
    names = flag_names("open", os.O_CREAT | os.O_EXCL, MACHINE)
    assert not TABLE["openat"].follows(1, names)
    values: list[Value] = [AT_FDCWD, b"loop", os.O_CREAT | os.O_EXCL, 0]
    assert error_of(TABLE["openat"], values) == errno.EEXIST
    assert TABLE["openat"].follows(1, flag_names("open", os.O_CREAT, MACHINE))


def test_the_new_name_of_a_link_is_never_followed() -> None:
    row = TABLE["linkat"]
    assert row.follows(1, {"AT_SYMLINK_FOLLOW"})
    assert not row.follows(3, {"AT_SYMLINK_FOLLOW"})
    assert error_of(row, [AT_FDCWD, b"file", AT_FDCWD, b"loop", 0x400]) == errno.EEXIST


def rows_with(role: Role) -> list[str]:
    return [row.name for row in PERFORMED if any(arg.role is role for arg in row.args)]


@pytest.mark.parametrize("name", rows_with(Role.FD))
def test_the_kernel_finds_the_descriptor_where_the_table_says_so(name: str) -> None:
    row = TABLE[name]
    descriptor = os.open("file", os.O_RDWR)
    for index in (index for index, arg in enumerate(row.args) if arg.role is Role.FD):
        values = arguments(row, fd=descriptor, bits="LOCK_SH")
        values[index] = -1
        assert error_of(row, values) == errno.EBADF
    os.close(descriptor)


@pytest.mark.parametrize("name", [name for name in rows_with(Role.OUT) if TABLE[name].family != "sleep"])
def test_the_kernel_fills_a_struct_to_its_last_byte(name: str) -> None:
    row = TABLE[name]
    descriptor = os.open("file", os.O_RDONLY)
    for arg in (arg for arg in row.args if arg.role is Role.OUT):
        values = arguments(row, path=b"file", fd=descriptor)
        buffer = values[row.args.index(arg)] = ctypes.create_string_buffer(b"\xaa" * 512, 512)
        assert error_of(row, values) == 0
        size = arg.size(MACHINE)
        assert buffer.raw[size:] == b"\xaa" * (512 - size)
        assert buffer.raw[size - 1] != 0xAA, "the kernel pads with zeros"
    os.close(descriptor)


@pytest.fixture
def last_byte() -> Iterator[int]:
    """The address behind two pages of zeros: what reads beyond it ends with EFAULT."""
    pages = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    end = start + 2 * mmap.PAGESIZE
    assert _libc.mprotect(ctypes.c_void_p(end), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    yield end
    _libc.mprotect(ctypes.c_void_p(end), ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_WRITE)


@pytest.mark.parametrize("name", [*rows_with(Role.IN), *rows_with(Role.INOUT)])
def test_the_kernel_reads_a_struct_to_its_last_byte(name: str, last_byte: int) -> None:
    row = TABLE[name]
    (size,) = {arg.size(MACHINE) for arg in row.args if arg.role in (Role.IN, Role.INOUT)}
    descriptor = os.open("file", os.O_RDWR)
    fits = error_of(row, arguments(row, path=b"file", fd=descriptor, pointer=last_byte - size))
    juts_out = error_of(row, arguments(row, path=b"file", fd=descriptor, pointer=last_byte - size + 1))
    os.close(descriptor)
    assert (fits, juts_out) == (0, errno.EFAULT)
