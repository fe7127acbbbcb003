"""Flags by name, against the constants of this Python and for any value at all."""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racecheck.kernel import flags
from racecheck.kernel.flags import FLAGS, flag_names

MACHINE = platform.machine()


@pytest.mark.parametrize(
    ("kind", "value", "names"),
    [
        ("open", 0, "O_RDONLY"),
        ("open", 0o102, "O_RDWR O_CREAT"),
        ("open", 0o1101 | 0o2000000, "O_WRONLY O_CREAT O_TRUNC O_CLOEXEC"),
        ("open", 3, "0x3"),
        ("open", 0o4010000, "O_RDONLY O_SYNC"),
        ("open", 0o10000, "O_RDONLY O_DSYNC"),
        ("open", 0o20200002, "O_RDWR O_TMPFILE"),
        ("open", 0o200000, "O_RDONLY O_DIRECTORY"),
        ("open", 0o40000, "O_RDONLY O_DIRECT"),
        ("at", 0x1100, "AT_SYMLINK_NOFOLLOW AT_EMPTY_PATH"),
        ("at", 0, ""),
        ("unlink", 0x200, "AT_REMOVEDIR"),
        ("faccess", 0x200, "AT_EACCESS"),
        ("rename", 1, "RENAME_NOREPLACE"),
        ("rename", 0x8000_0010, "0x80000010"),
        ("seek", 2, "SEEK_END"),
        ("seek", 9, "0x9"),
        ("fcntl", 6, "F_SETLK"),
        ("flock", 6, "LOCK_EX LOCK_NB"),
        ("mmap", 0x22, "MAP_PRIVATE MAP_ANONYMOUS"),
        ("mmap", 3, "MAP_SHARED_VALIDATE"),
        ("clone", 0x4111, "SIGCHLD CLONE_VM CLONE_VFORK"),
        ("clone", 0x10900, "CLONE_VM CLONE_SIGHAND CLONE_THREAD"),
        ("access", 5, "R_OK X_OK"),
    ],
)
def test_names(kind: str, value: int, names: str) -> None:
    assert flag_names(kind, value) == tuple(names.split())


def test_some_flags_of_open_differ_on_aarch64() -> None:
    assert flag_names("open", 0o200000, "aarch64") == ("O_RDONLY", "O_DIRECT")
    assert flag_names("open", 0o40000, "aarch64") == ("O_RDONLY", "O_DIRECTORY")
    assert flag_names("open", 0o100000, "aarch64") == ("O_RDONLY", "O_NOFOLLOW")
    assert flag_names("open", 0o20040002, "aarch64") == ("O_RDWR", "O_TMPFILE")
    assert flag_names("open", 0o2000101, "aarch64") == ("O_WRONLY", "O_CREAT", "O_CLOEXEC")


def test_only_half_of_the_register_counts() -> None:
    assert flag_names("at", 0xFFFF_FFFF_0000_0100) == ("AT_SYMLINK_NOFOLLOW",)
    assert flag_names("at", -1)[-1] == hex(0xFFFF_FFFF & ~0x1900)


def parts(kind: str, names: tuple[str, ...]) -> list[int]:
    known = {**FLAGS[kind].choices, **FLAGS[kind].bits}
    return [known[name] if name in known else int(name, 16) for name in names]


@given(st.sampled_from(sorted(FLAGS)), st.integers(0, 2**32 - 1))
def test_no_bit_is_lost_and_none_is_made_up(kind: str, value: int) -> None:
    together = 0
    for part in parts(kind, flag_names(kind, value)):
        together |= part
    assert together == value


@pytest.mark.parametrize("kind", sorted(FLAGS))
def test_every_name_can_be_said(kind: str) -> None:
    # It cannot where a part of it stands before the whole: O_SYNC would read O_DSYNC and a rest.
    for name, value in {**FLAGS[kind].choices, **FLAGS[kind].bits}.items():
        assert name in flag_names(kind, value)
        assert not any(each.startswith("0x") for each in flag_names(kind, value))


def test_values_are_those_of_this_machine() -> None:
    # O_LARGEFILE is 0 to 64-bit programs, and a bit to the kernel.
    compared = 0
    for kind, known in {**FLAGS, "open": flags._OPEN[MACHINE]}.items():
        for name, value in {**known.bits, **known.choices}.items():
            for module in (os, fcntl, mmap, signal):
                if name != "O_LARGEFILE" and hasattr(module, name):
                    assert getattr(module, name) == value, (kind, name)
                    compared += 1
    assert compared > 80
