"""The system call table: complete by the kernel's headers, consistent in itself."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from racecheck.kernel import ignored, signature
from racecheck.kernel import syscalls as table
from racecheck.kernel.numbers import NUMBERS
from racecheck.kernel.syscalls import (
    HIGHEST,
    TABLE,
    UNTOUCHED,
    Arg,
    Call,
    Notify,
    Role,
    Treatment,
    calls,
    flag_names,
    number,
)
from racecheck.model.errors import CannotRun, InternalError

ARCHES = ["x86_64", "aarch64"]

WELL_KNOWN = {
    "x86_64": """
        read 0 write 1 open 2 close 3 stat 4 fstat 5 lstat 6 lseek 8 mmap 9 ioctl 16 pread64 17
        pwrite64 18 access 21 dup2 33 nanosleep 35 sendfile 40 bind 49 clone 56 fork 57 vfork 58
        execve 59 fcntl 72 flock 73 fsync 74 truncate 76 ftruncate 77 getdents 78 chdir 80 rename 82
        mkdir 83 rmdir 84 creat 85 link 86 unlink 87 symlink 88 readlink 89 chmod 90 fchown 93 utime 132
        mknod 133 statfs 137 sync 162 mount 165 setxattr 188 removexattr 197 io_submit 209
        getdents64 217 fadvise64 221 clock_nanosleep 230 openat 257 mkdirat 258 newfstatat 262
        unlinkat 263 linkat 265 utimensat 280 fallocate 285 dup3 292 preadv 295 syncfs 306 renameat2 316
        seccomp 317 getrandom 318 execveat 322 copy_file_range 326 pwritev2 328 statx 332 uretprobe 335
        uprobe 336 io_uring_setup 425 clone3 435 openat2 437""",
    "aarch64": """
        io_setup 0 io_submit 2 setxattr 5 fremovexattr 16 getcwd 17 dup 23 dup3 24 fcntl 25 ioctl 29
        flock 32 mknodat 33 mkdirat 34 unlinkat 35 symlinkat 36 linkat 37 renameat 38 statfs 43
        truncate 45 ftruncate 46 fallocate 47 faccessat 48 chdir 49 fchmod 52 fchownat 54 openat 56
        close 57 getdents64 61 lseek 62 read 63 write 64 pread64 67 pwritev 70 sendfile 71 readlinkat 78
        newfstatat 79 fstat 80 sync 81 fsync 82 fdatasync 83 sync_file_range 84 utimensat 88
        nanosleep 101 clock_nanosleep 115 bind 200 clone 220 execve 221 mmap 222 fadvise64 223
        accept4 242 wait4 260 name_to_handle_at 264 open_by_handle_at 265 syncfs 267 renameat2 276
        seccomp 277 getrandom 278 copy_file_range 285 statx 291 kexec_file_load 294 io_uring_setup 425
        clone3 435 openat2 437""",
}

NEWER_THAN_MOST_HEADERS = """
    cachestat 451 fchmodat2 452 map_shadow_stack 453 futex_wake 454 futex_wait 455 futex_requeue 456
    statmount 457 listmount 458 lsm_get_self_attr 459 lsm_set_self_attr 460 lsm_list_modules 461 mseal 462
    setxattrat 463 getxattrat 464 listxattrat 465 removexattrat 466 open_tree_attr 467 file_getattr 468
    file_setattr 469"""

HEADERS = {
    "x86_64": [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")],
    "aarch64": [Path("/usr/include/asm-generic/unistd.h")],
}

FAMILIES = """
    open close read write fsync sync stat statfs access list mkdir rmdir unlink rename link symlink
    readlink mknod truncate allocate chmod chown utime getxattr setxattr listxattr removexattr copy mmap
    flock fcntl dup seek chdir exec watch clone clock sleep wait connect select reap exit kill getcwd timer random bind
    mount submit handle ioctl advise admin landlock channel credentials"""

RELATIVES = """
    open openat, mkdir mkdirat, mknod mknodat, unlink unlinkat, rename renameat renameat2, link linkat,
    symlink symlinkat, readlink readlinkat, stat newfstatat, access faccessat faccessat2,
    chmod fchmodat fchmodat2, chown fchownat, utimes futimesat, listxattr listxattrat,
    removexattr removexattrat, read pread64, write pwrite64, readv preadv preadv2,
    writev pwritev pwritev2, dup2 dup3"""

NONSENSE = """
    paths; path:; path:x; fd:up; int; int:; int:Mode; long:7; flags; flags:nosuch; out; out:144;
    in:nosuch; inbuf; inbuf:x; inbuf:6; inbuf:1; inbuf:1 fd; fd outbuf:0; inbuf:1 flags:open; how:0;
    dirfd; dirfd fd; path dirfd; dirfd target link; int:a int:a; int:a long:a; - - - - - - -; -:x"""


def well_known(arch: str) -> dict[str, int]:
    words = [*WELL_KNOWN[arch].split(), *NEWER_THAN_MOST_HEADERS.split()]
    return {name: int(known) for name, known in zip(words[::2], words[1::2], strict=True)}


def header_numbers(header: Path) -> dict[str, int]:
    """What a kernel header says of 64-bit machines, as far as the table claims to go.

    The generic one gives some numbers by way of ``__NR3264_``, and 403 to 423 to 32-bit machines.
    """
    text = header.read_text()
    found = {name: int(known) for name, known in re.findall(r"#define __NR_(\w+)\s+(\d+)\s", text)}
    names: dict[str, str] = {}
    for name, alias in re.findall(r"#define __NR_(\w+) __NR3264_(\w+)", text):
        names.setdefault(alias, name)  # 64-bit machines come first
    for alias, known in re.findall(r"#define __NR3264_(\w+)\s+(\d+)\s", text):
        found[names[alias]] = int(known)
    for name in ("syscalls", "arch_specific_syscall", "sync_file_range2"):
        found.pop(name, None)
    assert len(found) > 280, f"{header} was not understood"
    return {name: known for name, known in found.items() if known <= 469 and not 403 <= known <= 423}


@pytest.mark.parametrize("arch", ARCHES)
def test_every_call_of_the_kernel_is_known_by_its_number(arch: str) -> None:
    # The lists above are asserted in any case, so that a machine without headers does not pass unseen.
    expected = well_known(arch)
    for header in filter(Path.exists, HEADERS[arch]):
        expected |= header_numbers(header)
    assert len(expected) >= 60
    assert {name: number(name, arch) for name in expected} == expected


def test_every_number_has_one_row_or_one_reason() -> None:
    named = [*TABLE, *(name for names in ignored._REASONS.values() for name in names.split())]
    assert Counter(named) == Counter({*NUMBERS["x86_64"], *NUMBERS["aarch64"]})
    assert set(UNTOUCHED) == set(named) - set(TABLE)
    for arch in ARCHES:
        assert len(set(NUMBERS[arch].values())) == len(NUMBERS[arch])


def test_numbers_by_architecture() -> None:
    assert number("open", "aarch64") is None
    assert set(calls("x86_64")) == {number(name, "x86_64") for name in TABLE}
    assert calls("aarch64")[63] is TABLE["read"]
    assert 22 not in calls("x86_64"), "pipe is untouched"
    assert HIGHEST == {"x86_64": 469, "aarch64": 469}
    with pytest.raises(InternalError, match="opeanat"):
        number("opeanat", "x86_64")
    with pytest.raises(CannotRun, match="riscv64"):
        calls("riscv64")
    with pytest.raises(CannotRun, match="this machine"):
        number("read", "")


def test_families_are_the_ones_that_ops_are_called_by() -> None:
    assert {row.family for row in TABLE.values()} == set(FAMILIES.split())
    assert TABLE["unlinkat"].family_with(flag_names("unlink", 0x200)) == "rmdir"
    assert TABLE["unlinkat"].family_with(()) == "unlink"


def test_what_has_a_path_or_is_refused_always_stops() -> None:
    for row in TABLE.values():
        if row.treatment is Treatment.REFUSE or any(arg.role in (Role.PATH, Role.LINK) for arg in row.args):
            assert row.notify is Notify.ALWAYS, row.name


def test_what_the_supervisor_performs_is_described_to_the_last_argument() -> None:
    # The ignored one is the upper half of an offset, which a 64-bit kernel ignores too.
    vectors = {"preadv", "preadv2", "pwritev", "pwritev2"}
    performed = [row for row in TABLE.values() if row.treatment is Treatment.PERFORM]
    assert {row.name for row in performed if any(arg.role is Role.IGNORED for arg in row.args)} == vectors
    assert [TABLE[name].args[4].role for name in vectors] == [Role.IGNORED] * 4


@pytest.mark.parametrize("names", RELATIVES.split(","))
def test_relatives_differ_by_directory_flags_and_offset_alone(names: str) -> None:
    def core(row: Call) -> tuple[object, ...]:
        added = (Role.DIRFD, Role.FLAGS, Role.IGNORED)
        kept = [(arg.role, arg.name) for arg in row.args if arg.role not in added and arg.name != "offset"]
        return row.family, row.treatment, row.notify, kept

    first, *others = (TABLE[name] for name in names.split())
    assert [core(other) for other in others] == [core(first)] * len(others)


def test_signatures_are_read_as_they_are_written() -> None:
    assert TABLE["pwrite64"].args == (
        Arg(Role.FD),
        Arg(Role.INBUF, length=2),
        Arg(Role.LONG, "length"),
        Arg(Role.LONG, "offset"),
    )
    assert TABLE["openat"].args[2] == Arg(Role.FLAGS, "open")
    assert [arg.name for arg in TABLE["sendfile"].args[:2]] == ["to", "from"]
    assert [arg.role for arg in TABLE["mmap"].args].index(Role.FD) == 4
    assert TABLE["sync"].args == ()
    assert Arg(Role.OUT, "stat").size("aarch64") == 128


@pytest.mark.parametrize("wrong", NONSENSE.split(";"))
def test_a_signature_that_makes_no_sense_is_our_bug(wrong: str) -> None:
    with pytest.raises(InternalError):
        signature.parse(wrong)


@pytest.mark.parametrize(
    ("treatment", "notify", "words", "error"),
    [
        (Treatment.REFUSE, Notify.ALWAYS, "path", ""),
        (Treatment.REFUSE, Notify.ALWAYS, "path", "EPREM"),
        (Treatment.CONTINUE, Notify.ALWAYS, "path", "EPERM"),
        (Treatment.PERFORM, Notify.DESCRIPTOR, "dirfd path", ""),
    ],
)
def test_a_row_that_makes_no_sense_is_our_bug(treatment: Treatment, notify: Notify, words: str, error: str) -> None:
    with pytest.raises(InternalError, match="made_up"):
        Call("made_up", "read", treatment, notify, signature.parse(words), error)


def test_two_rows_for_one_call_are_our_bug() -> None:
    with pytest.raises(InternalError, match="two rows"):
        table._table(TABLE["read"], TABLE["write"], TABLE["read"])
