"""Flags of system calls by name.  Pure data, from the kernel's headers (``include/uapi``).

Most flags have the same value on every architecture; of those here only some of ``open`` do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

_ALL = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class FlagSet:
    """Names for the bits of an argument.

    Where a name stands for several bits it comes before those of its parts.  ``choices`` are the values
    of the bits in ``mask``, of which an argument has exactly one (an access mode, a command).
    """

    bits: Mapping[str, int] = field(default_factory=dict)
    choices: Mapping[str, int] = field(default_factory=dict)
    mask: int = 0


def _one_of(**choices: int) -> FlagSet:
    return FlagSet(choices=choices, mask=_ALL)


def _open(*, direct: int, largefile: int, directory: int, nofollow: int) -> FlagSet:
    bits = {
        "O_CREAT": 0o100, "O_EXCL": 0o200, "O_NOCTTY": 0o400, "O_TRUNC": 0o1000, "O_APPEND": 0o2000,
        "O_NONBLOCK": 0o4000, "O_SYNC": 0o4010000, "O_DSYNC": 0o10000, "O_ASYNC": 0o20000,
        "O_TMPFILE": 0o20000000 | directory, "O_DIRECT": direct, "O_LARGEFILE": largefile,
        "O_DIRECTORY": directory, "O_NOFOLLOW": nofollow, "O_NOATIME": 0o1000000, "O_CLOEXEC": 0o2000000,
        "O_PATH": 0o10000000,
    }  # fmt: skip
    return FlagSet(bits, choices={"O_RDONLY": 0, "O_WRONLY": 1, "O_RDWR": 2}, mask=3)


_OPEN = {
    "x86_64": _open(direct=0o40000, largefile=0o100000, directory=0o200000, nofollow=0o400000),
    "aarch64": _open(direct=0o200000, largefile=0o400000, directory=0o40000, nofollow=0o100000),
}

_AT = {"AT_SYMLINK_NOFOLLOW": 0x100, "AT_NO_AUTOMOUNT": 0x800, "AT_EMPTY_PATH": 0x1000}
_AT_LINK = {"AT_SYMLINK_FOLLOW": 0x400, "AT_EMPTY_PATH": 0x1000}

FLAGS: Mapping[str, FlagSet] = {
    "open": _OPEN["x86_64"],
    "cloexec": FlagSet({"O_CLOEXEC": 0o2000000}),
    "resolve": FlagSet({
        "RESOLVE_NO_XDEV": 1, "RESOLVE_NO_MAGICLINKS": 2, "RESOLVE_NO_SYMLINKS": 4, "RESOLVE_BENEATH": 8,
        "RESOLVE_IN_ROOT": 0x10, "RESOLVE_CACHED": 0x20,
    }),
    "at": FlagSet(_AT),
    # The same bit, 0x200, has a different meaning in each of the next four.
    "statx": FlagSet({**_AT, "AT_STATX_FORCE_SYNC": 0x2000, "AT_STATX_DONT_SYNC": 0x4000}),
    "faccess": FlagSet({**_AT, "AT_EACCESS": 0x200}),
    "unlink": FlagSet({"AT_REMOVEDIR": 0x200}),
    "handle": FlagSet({
        **_AT_LINK, "AT_HANDLE_FID": 0x200, "AT_HANDLE_MNT_ID_UNIQUE": 1, "AT_HANDLE_CONNECTABLE": 2,
    }),
    "link": FlagSet(_AT_LINK),
    "exec": FlagSet({**_AT, "AT_EXECVE_CHECK": 0x10000}),
    "access": FlagSet({"R_OK": 4, "W_OK": 2, "X_OK": 1}),
    "rename": FlagSet({"RENAME_NOREPLACE": 1, "RENAME_EXCHANGE": 2, "RENAME_WHITEOUT": 4}),
    "seek": _one_of(SEEK_SET=0, SEEK_CUR=1, SEEK_END=2, SEEK_DATA=3, SEEK_HOLE=4),
    "rwf": FlagSet({
        "RWF_HIPRI": 1, "RWF_DSYNC": 2, "RWF_SYNC": 4, "RWF_NOWAIT": 8, "RWF_APPEND": 0x10,
        "RWF_NOAPPEND": 0x20, "RWF_ATOMIC": 0x40, "RWF_DONTCACHE": 0x80, "RWF_NOSIGNAL": 0x100,
    }),
    "fallocate": FlagSet({
        "FALLOC_FL_KEEP_SIZE": 1, "FALLOC_FL_PUNCH_HOLE": 2, "FALLOC_FL_NO_HIDE_STALE": 4,
        "FALLOC_FL_COLLAPSE_RANGE": 8, "FALLOC_FL_ZERO_RANGE": 0x10, "FALLOC_FL_INSERT_RANGE": 0x20,
        "FALLOC_FL_UNSHARE_RANGE": 0x40, "FALLOC_FL_WRITE_ZEROES": 0x80,
    }),
    "sync_file_range": FlagSet({
        "SYNC_FILE_RANGE_WAIT_BEFORE": 1, "SYNC_FILE_RANGE_WRITE": 2, "SYNC_FILE_RANGE_WAIT_AFTER": 4,
    }),
    "fadvise": _one_of(
        POSIX_FADV_NORMAL=0, POSIX_FADV_RANDOM=1, POSIX_FADV_SEQUENTIAL=2, POSIX_FADV_WILLNEED=3,
        POSIX_FADV_DONTNEED=4, POSIX_FADV_NOREUSE=5,
    ),
    "xattr": FlagSet({"XATTR_CREATE": 1, "XATTR_REPLACE": 2}),
    "splice": FlagSet({"SPLICE_F_MOVE": 1, "SPLICE_F_NONBLOCK": 2, "SPLICE_F_MORE": 4, "SPLICE_F_GIFT": 8}),
    "flock": FlagSet({"LOCK_SH": 1, "LOCK_EX": 2, "LOCK_NB": 4, "LOCK_UN": 8}),
    "fcntl": _one_of(
        F_DUPFD=0, F_GETFD=1, F_SETFD=2, F_GETFL=3, F_SETFL=4, F_GETLK=5, F_SETLK=6, F_SETLKW=7, F_SETOWN=8,
        F_GETOWN=9, F_SETSIG=10, F_GETSIG=11, F_SETOWN_EX=15, F_GETOWN_EX=16, F_GETOWNER_UIDS=17,
        F_OFD_GETLK=36, F_OFD_SETLK=37, F_OFD_SETLKW=38, F_SETLEASE=1024, F_GETLEASE=1025, F_NOTIFY=1026,
        F_DUPFD_QUERY=1027, F_CREATED_QUERY=1028, F_CANCELLK=1029, F_DUPFD_CLOEXEC=1030, F_SETPIPE_SZ=1031,
        F_GETPIPE_SZ=1032, F_ADD_SEALS=1033, F_GET_SEALS=1034, F_GET_RW_HINT=1035, F_SET_RW_HINT=1036,
        F_GET_FILE_RW_HINT=1037, F_SET_FILE_RW_HINT=1038,
    ),
    "close_range": FlagSet({"CLOSE_RANGE_UNSHARE": 2, "CLOSE_RANGE_CLOEXEC": 4}),
    "prot": FlagSet({
        "PROT_READ": 1, "PROT_WRITE": 2, "PROT_EXEC": 4, "PROT_GROWSDOWN": 0x100_0000,
        "PROT_GROWSUP": 0x200_0000,
    }),
    "mmap": FlagSet(
        {
            "MAP_FIXED": 0x10, "MAP_ANONYMOUS": 0x20, "MAP_32BIT": 0x40, "MAP_GROWSDOWN": 0x100,
            "MAP_DENYWRITE": 0x800, "MAP_EXECUTABLE": 0x1000, "MAP_LOCKED": 0x2000, "MAP_NORESERVE": 0x4000,
            "MAP_POPULATE": 0x8000, "MAP_NONBLOCK": 0x1_0000, "MAP_STACK": 0x2_0000, "MAP_HUGETLB": 0x4_0000,
            "MAP_SYNC": 0x8_0000, "MAP_FIXED_NOREPLACE": 0x10_0000,
        },
        choices={"MAP_SHARED": 1, "MAP_PRIVATE": 2, "MAP_SHARED_VALIDATE": 3, "MAP_DROPPABLE": 8},
        mask=0xF,
    ),
    "clone": FlagSet(
        {
            "CLONE_VM": 0x100, "CLONE_FS": 0x200, "CLONE_FILES": 0x400, "CLONE_SIGHAND": 0x800,
            "CLONE_PIDFD": 0x1000, "CLONE_PTRACE": 0x2000, "CLONE_VFORK": 0x4000, "CLONE_PARENT": 0x8000,
            "CLONE_THREAD": 0x1_0000, "CLONE_NEWNS": 0x2_0000, "CLONE_SYSVSEM": 0x4_0000,
            "CLONE_SETTLS": 0x8_0000, "CLONE_PARENT_SETTID": 0x10_0000, "CLONE_CHILD_CLEARTID": 0x20_0000,
            "CLONE_DETACHED": 0x40_0000, "CLONE_UNTRACED": 0x80_0000, "CLONE_CHILD_SETTID": 0x100_0000,
            "CLONE_NEWCGROUP": 0x200_0000, "CLONE_NEWUTS": 0x400_0000, "CLONE_NEWIPC": 0x800_0000,
            "CLONE_NEWUSER": 0x1000_0000, "CLONE_NEWPID": 0x2000_0000, "CLONE_NEWNET": 0x4000_0000,
            "CLONE_IO": 0x8000_0000,
        },
        choices={"SIGCHLD": 17},
        mask=0xFF,
    ),
}  # fmt: skip
"""The names by kind: the word that the table's signatures use (``flags:open``); ``resolve`` belongs to `openat2`.

For x86-64; `flag_names` knows what differs elsewhere.
"""


@lru_cache(4096)
def flag_names(kind: str, value: int, arch: str = "x86_64") -> tuple[str, ...]:
    """Return the names of the flags in an argument; bits without a name come last, in hexadecimal.

    Of ``value`` the low 32 bits count: the kernel ignores the rest of the register.
    """
    flags = _OPEN[arch] if kind == "open" else FLAGS[kind]
    rest, names = value & _ALL, []
    for name, bits in flags.choices.items():
        if rest & flags.mask == bits:
            names.append(name)
            rest -= bits
            break
    for name, bits in flags.bits.items():
        if rest & bits == bits:
            names.append(name)
            rest &= ~bits
    return (*names, hex(rest)) if rest else tuple(names)
