"""Opening, descriptors and their flags, masks and modes."""

from __future__ import annotations

import fcntl
import itertools
import os
import resource
import socket
import stat
import struct
from typing import Any

from tests.programs.fidelity_raw import (
    AT_FDCWD,
    AT_SYMLINK_FOLLOW,
    attempt,
    descriptor,
    opened,
    program,
    raw,
    room,
    status,
    tree,
    write,
)

RESOLVE = {"NO_XDEV": 1, "NO_MAGICLINKS": 2, "NO_SYMLINKS": 4, "BENEATH": 8, "IN_ROOT": 16}


def how(flags: int = 0, mode: int = 0, resolve: int = 0, more: bytes = b"") -> bytes:
    return struct.pack("QQQ", flags, mode, resolve) + more


@program()
def flags_of_opening() -> Any:
    """Every pair of flags, by each of the opening calls; what the descriptor says of it."""
    flags = {name: getattr(os, name) for name in (
        "O_CREAT", "O_EXCL", "O_TRUNC", "O_APPEND", "O_NONBLOCK", "O_SYNC", "O_DSYNC", "O_DIRECT", "O_DIRECTORY",
        "O_NOFOLLOW", "O_NOATIME", "O_CLOEXEC", "O_PATH", "O_NOCTTY", "O_ASYNC",
    )}  # fmt: skip
    write("file", b"content")
    os.mkdir("directory")
    answers: dict[str, Any] = {}
    for (one, first), (two, second) in itertools.combinations_with_replacement(flags.items(), 2):
        for path, access in (("file", os.O_RDWR), ("new", os.O_RDWR), ("directory", os.O_RDONLY)):
            answers[f"{one} {two} {path}"] = opened("openat", AT_FDCWD, path, first | second | access, 0o640)
            attempt(os.unlink, "new")
    for bits in (3, os.O_WRONLY | os.O_TRUNC, 0o100000000, 1 << 30, os.O_WRONLY | os.O_APPEND, os.O_TRUNC):
        answers[f"open {bits:o}"] = opened("open", "file", bits, 0)
        answers[f"openat2 {bits:o}"] = opened("openat2", AT_FDCWD, "file", how(bits), 24)
    answers["creat"] = opened("creat", "file", 0o600)
    return answers, tree()


@program()
def openat2_flags() -> Any:
    """Every resolve flag on every way."""
    os.makedirs("root/sub/deep")
    write("root/sub/file", b"content")
    write("outside", b"outside")
    os.symlink("sub/file", "root/link")
    os.symlink("sub", "root/sublink")
    os.symlink("../outside", "root/escape")
    os.symlink(os.path.abspath("outside"), "root/absolute")
    os.symlink("/sub/file", "root/rooted")
    os.symlink("/proc/self/fd", "root/magic")
    root = os.open("root", os.O_PATH)
    file = os.open("root/sub/file", os.O_RDONLY)
    paths = (
        "sub/file", "link", "sublink/file", "escape", "absolute", "rooted", "../outside", "sub/../../outside", "/sub/file",
        "missing/x", "link/x", "sub/missing", ".", "..", "sub/..", "/", "/..", "/proc/self/exe", "/dev/null", "sub/../sub/file",
        os.path.abspath("outside"), "", "sublink/../link",
    )  # fmt: skip
    answers: dict[str, Any] = {}
    for names in [(), *itertools.combinations(RESOLVE, 1), *itertools.combinations(RESOLVE, 2)]:
        bits = sum(RESOLVE[each] for each in names)
        for path in paths:
            key = f"{' '.join(names)} {path}"
            answers[key] = opened("openat2", root, path, how(os.O_NONBLOCK, 0, bits), 24)
    for bits in (0, 4, 8, 16):
        made = how(os.O_CREAT | os.O_WRONLY, 0o640, bits)
        answers[f"made {bits}"] = [
            opened("openat2", root, path, made, 24)
            for path in (f"new{bits}", f"sublink/{bits}", f"../up{bits}", f"/abs{bits}")
        ]
        answers[f"magic {bits}"] = opened("openat2", AT_FDCWD, f"/proc/self/fd/{file}", how(0, 0, bits), 24)
        answers[f"own {bits}"] = opened("openat2", AT_FDCWD, "root/sub/file", how(0, 0, bits), 24)
    answers["magic"] = opened("openat2", AT_FDCWD, f"/proc/self/fd/{file}", how(0, 0, 2), 24)
    answers["unknown"] = opened("openat2", root, "sub/file", how(0, 0, 1 << 20), 24)
    answers["both"] = opened("openat2", root, "sub/file", how(0, 0, 24), 24)
    answers["mode"] = opened("openat2", root, "sub/file", how(0, 0o600, 0), 24)
    answers["wide mode"] = opened("openat2", root, "z", how(os.O_CREAT, 0o1777777, 0), 24)
    answers["flags"] = opened("openat2", root, "sub/file", how(1 << 40, 0, 0), 24)
    answers["path"] = opened("openat2", root, "sub/file", how(os.O_PATH, 0, 0), 24)
    answers["path, following none"] = opened("openat2", root, "link", how(os.O_PATH | os.O_NOFOLLOW, 0, 0), 24)
    answers["path, more"] = opened("openat2", root, "link", how(os.O_PATH | os.O_NONBLOCK, 0, 0), 24)
    answers["tmpfile"] = str(opened("openat2", root, "sub", how(os.O_TMPFILE | os.O_RDWR, 0o600, 8), 24))[:20]
    answers["cloexec"] = opened("openat2", root, "sub/file", how(os.O_CLOEXEC, 0, 8), 24)
    for size in (0, 8, 23, 24, 32):
        answers[f"size {size}"] = opened("openat2", root, "sub/file", how(0, 0, 0, bytes(8)), size)
    answers["more"] = opened("openat2", root, "sub/file", how(0, 0, 0, b"\x01" + bytes(7)), 32)
    answers["pointers"] = [raw("openat2", root, "sub/file", None, 24), raw("openat2", root, None, how(), 24)]
    answers["bad start"] = raw("openat2", 9999, "sub/file", how(0, 0, 8), 24)
    answers["file start"] = raw("openat2", file, "sub/file", how(0, 0, 8), 24)
    os.close(root)
    os.close(file)
    return answers, tree()


@program()
def masks_and_modes() -> Any:
    """What the mask takes from a mode, also in a directory that hands its group on."""
    os.mkdir("group")
    os.chown("group", -1, 4242)
    os.chmod("group", 0o2775)
    for where in ("", "group/"):
        for mask in (0, 0o002, 0o022, 0o027, 0o077, 0o777):
            os.umask(mask)
            here = f"{where}{mask:o}"
            os.mkdir(f"{here}d", 0o2777)
            os.mkdir(f"{here}s", 0o7000)
            write(f"{here}f")
            os.mkfifo(f"{here}p", 0o666)
            raw("mknod", f"{here}n", 0o104755, 0)
            raw("mknodat", AT_FDCWD, f"{here}m", 0o777, 0)
            raw("creat", f"{here}c", 0o6777)
            raw("open", f"{here}o", os.O_CREAT, 0o17777)
            raw("openat2", AT_FDCWD, f"{here}2", how(os.O_CREAT | os.O_RDWR, 0o7777), 24)
            os.symlink("target", f"{here}l")
            temporary = os.open(f"./{where}", os.O_TMPFILE | os.O_RDWR, 0o666)
            raw("linkat", AT_FDCWD, f"/proc/self/fd/{temporary}", AT_FDCWD, f"{here}t", AT_SYMLINK_FOLLOW)
            os.close(temporary)
    os.umask(0o022)
    return (
        tree(),
        raw("mknod", "bad", 0o040755, 0),
        raw("mknod", "worse", 0o120777, 0),
        raw("mknod", "socket", 0o140755, 0),
    )


@program()
def temporary_files() -> Any:
    """A file without a name gets one, or none."""
    os.mkdir("directory")
    file = os.open("directory", os.O_TMPFILE | os.O_RDWR, 0o640)
    os.write(file, b"content")
    answers: list[Any] = [
        status(os.fstat(file)),
        os.listdir("directory"),
        os.readlink(f"/proc/self/fd/{file}")[-10:],
    ]
    answers[2] = answers[2].endswith(" (deleted)")
    answers += [raw("linkat", AT_FDCWD, f"/proc/self/fd/{file}", AT_FDCWD, "named", AT_SYMLINK_FOLLOW)]
    answers += [raw("linkat", file, b"", AT_FDCWD, "named too", 0x1000), status(os.fstat(file))]
    os.lseek(file, 0, os.SEEK_SET)
    answers += [os.read(file, 20).decode()]
    os.close(file)
    kept = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o640)
    answers += [raw("linkat", AT_FDCWD, f"/proc/self/fd/{kept}", AT_FDCWD, "never", AT_SYMLINK_FOLLOW)]
    os.close(kept)
    answers += [
        raw("open", "directory", os.O_TMPFILE, 0o600),
        raw("open", "named", os.O_TMPFILE | os.O_RDWR, 0o600),
    ]
    answers += [raw("open", "missing", os.O_TMPFILE | os.O_RDWR, 0o600)]
    return answers, tree()


@program()
def duplicates() -> Any:
    """dup in all its forms: one offset, flags of their own."""
    write("file", b"0123456789")
    write("second", b"abc")
    first = os.open("file", os.O_RDWR)
    answers: list[Any] = []
    copies = [raw("dup", first), raw("dup2", first, 700), raw("dup3", first, 701, os.O_CLOEXEC)]
    copies += [raw("fcntl", first, fcntl.F_DUPFD, 600), raw("fcntl", first, fcntl.F_DUPFD_CLOEXEC, 0)]
    for each in copies:
        answers += [
            os.read(each, 1).decode(),
            fcntl.fcntl(each, fcntl.F_GETFD),
            os.lseek(first, 0, os.SEEK_CUR),
        ]
    answers += [copies[3] >= 600, copies[1:3]]
    fcntl.fcntl(copies[0], fcntl.F_SETFL, os.O_APPEND)
    fcntl.fcntl(copies[0], fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    os.write(first, b"!")
    answers += [
        fcntl.fcntl(first, fcntl.F_GETFL),
        fcntl.fcntl(first, fcntl.F_GETFD),
        raw("dup2", first, first),
    ]
    answers[-1] = answers[-1] == first
    other = os.open("second", os.O_RDONLY)
    answers += [
        raw("dup2", other, 700),
        os.read(700, 9).decode(),
        raw("dup2", 9999, 700),
        os.pread(700, 9, 0).decode(),
    ]
    answers += [
        raw("dup3", other, 701, 1),
        os.pread(701, 2, 0).decode(),
        raw("dup3", other, other, 0),
        raw("dup2", other, -1),
    ]
    answers += [raw("dup2", other, 1 << 30), raw("dup", 9999), raw("dup", -1)]
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    answers += [
        raw("dup2", other, limit),
        raw("fcntl", other, fcntl.F_DUPFD, limit),
        raw("fcntl", other, fcntl.F_DUPFD, -1),
    ]
    for each in (*copies, first, other):
        os.close(each)
    answers += [
        raw("close", first),
        raw("read", first, room(1), 1),
        raw("close", -1),
        raw("fstat", copies[0], room(144)),
    ]
    return answers, tree()


@program()
def standard_descriptors() -> Any:
    """A watched file as standard output, and back."""
    saved = os.dup(1)
    file = os.open("out", os.O_CREAT | os.O_RDWR)
    os.dup2(file, 1)
    os.close(file)
    os.write(1, b"said\n")
    answers = [status(os.fstat(1)), os.lseek(1, 0, os.SEEK_CUR), os.pread(1, 9, 0).decode()]
    os.dup2(saved, 1)
    os.close(saved)
    return answers, tree()


@program()
def closing_ranges() -> Any:
    write("file", b"content")
    files = [os.dup2(os.open("file", os.O_RDONLY), number) for number in (800, 801, 802, 803)]
    answers = [raw("close_range", 801, 802, 0), [attempt(os.read, each, 2) == b"" for each in files][1:3]]
    answers += [raw("read", each, room(3), 3) for each in files]
    answers += [
        raw("close_range", 800, 810, 4),
        fcntl.fcntl(800, fcntl.F_GETFD),
        fcntl.fcntl(803, fcntl.F_GETFD),
    ]
    answers += [
        raw("close_range", 803, 800, 0),
        raw("close_range", 800, 803, 64),
        raw("close_range", 803, 0xFFFFFFFF, 0),
    ]
    answers += [raw("read", each, room(3), 3) for each in files]
    os.close(800)
    again = os.dup2(os.open("file", os.O_RDONLY), 801)
    answers += [os.read(again, 4).decode(), raw("close", 801), raw("close", 801)]
    for number in range(256, 300):
        attempt(os.close, number)
    return answers


@program()
def running_out() -> Any:
    """The limit on open files, where all numbers below those of watched files are taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (280, hard))
    others = [os.open("/dev/null", os.O_RDONLY)]
    while others[-1] < 255:
        others.append(os.open("/dev/null", os.O_RDONLY))
    files: list[int] = []
    for number in range(400):
        found = raw("open", f"file{number}", os.O_CREAT | os.O_RDWR, 0o600)
        if isinstance(found, str):
            break
        files.append(found)
    copied = raw("dup", files[0])
    answers = [found, copied, raw("open", "missing", 0, 0), raw("open", None, 0, 0), len(files)]
    for each in [*files, *others]:
        os.close(each)
    answers += [os.path.exists(f"file{len(files)}"), opened("open", "file0", os.O_RDONLY, 0)]
    for name in os.listdir("."):
        os.unlink(name)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return answers


@program()
def inherited() -> Any:
    """A forked child has the same files with the same offsets, and its own table."""
    write("file", b"0123456789")
    file = os.open("file", os.O_RDWR)
    directory = os.open(".", os.O_RDONLY)
    os.read(file, 2)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = [
                os.read(file, 2),
                sorted(os.listdir(directory)),
                attempt(os.close, file),
                attempt(os.read, file, 1),
            ]
            os.write(writing, repr(told).encode())
            os.chdir("/")
            opened("openat", directory, "of the child", os.O_CREAT | os.O_WRONLY, 0o600)
        finally:
            os._exit(7)
    os.close(writing)
    _, ended = os.waitpid(child, 0)
    with open(reading) as pipe:
        told = pipe.read()
    answers = [
        told,
        os.waitstatus_to_exitcode(ended),
        os.read(file, 2).decode(),
        os.lseek(file, 0, os.SEEK_CUR),
    ]
    os.close(file)
    os.close(directory)
    return answers, os.path.basename(os.getcwd()), tree()


@program()
def passed_on() -> Any:
    """A descriptor through a socket, to oneself."""
    write("file", b"0123456789")
    ours, theirs = socket.socketpair()
    file = os.open("file", os.O_RDWR)
    socket.send_fds(ours, [b"x"], [file])
    _, (received,), _, _ = socket.recv_fds(theirs, 1, 1)
    os.read(file, 3)
    answers = [os.read(received, 3).decode(), status(os.fstat(received))]
    os.close(file)
    answers += [os.write(received, b"!"), os.lseek(received, 0, os.SEEK_CUR)]
    os.close(received)
    ours.close()
    theirs.close()
    return answers, tree()


@program()
def special_files() -> Any:
    """FIFOs, sockets and devices below the directory."""
    os.mkfifo("fifo")
    answers: list[Any] = [opened("open", "fifo", os.O_WRONLY | os.O_NONBLOCK, 0)]
    reading = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open("fifo", os.O_WRONLY | os.O_NONBLOCK)
    answers += [raw("read", reading, room(5), 5), os.write(writing, b"hello"), os.read(reading, 9).decode()]
    copy = fcntl.fcntl(reading, fcntl.F_DUPFD, 500)
    answers += [attempt(os.read, copy, 1), os.write(writing, b"again"), os.read(copy, 9).decode()]
    saved = os.dup(0)
    os.dup2(reading, 0)
    answers += [
        os.write(writing, b"more"),
        os.read(0, 9).decode(),
        attempt(os.read, 0, 1),
        status(os.fstat(0)),
    ]
    os.dup2(saved, 0)
    for each in (saved, copy, reading, writing):
        os.close(each)
    answers += [opened("open", "fifo", os.O_RDWR | os.O_NONBLOCK, 0), opened("open", "fifo", os.O_PATH, 0)]
    answers += [opened("open", "fifo", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0), raw("truncate", "fifo", 0)]
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("socket")
        server.listen()
        answers += [
            attempt(server.getsockname),
            attempt(client.connect, "socket"),
            attempt(client.send, b"x"),
        ]
        with socket.socket(socket.AF_UNIX) as second:
            answers += [
                attempt(second.bind, "socket"),
                attempt(second.bind, "missing/socket"),
                attempt(second.bind, "\0abstract"),
            ]
    answers += [
        opened("open", "socket", os.O_RDWR, 0),
        opened("open", "socket", os.O_PATH, 0),
        status(os.stat("socket")),
    ]
    answers += [
        raw("mknod", "null", stat.S_IFCHR | 0o666, os.makedev(1, 3)),
        raw("mknod", "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5)),
    ]
    null, zero = os.open("null", os.O_RDWR), os.open("zero", os.O_RDONLY)
    answers += [
        os.write(null, b"gone"),
        os.read(null, 5).decode(),
        len(os.read(zero, 5)),
        status(os.fstat(null)),
    ]
    for each in (null, zero):
        os.close(each)
    os.rename("fifo", "pipe")
    os.link("socket", "socket2")
    os.unlink("socket")
    os.unlink("zero")
    return answers, [name for name in tree()], [kind[0] for kind in tree_of_specials()]


def tree_of_specials() -> list[list[Any]]:
    return [status(os.lstat(each)) for each in sorted(os.listdir())]


@program()
def bad_descriptors() -> Any:
    """Files that are not open, and open for something else."""
    write("file", b"content")
    closed = os.dup2(os.open("file", os.O_RDONLY), 900)
    os.close(closed)
    path, reading, writing = (
        os.open("file", os.O_PATH),
        os.open("file", os.O_RDONLY),
        os.open("file", os.O_WRONLY),
    )
    directory = os.open(".", os.O_RDONLY)
    calls: dict[str, tuple[Any, ...]] = {
        "read": (room(4), 4), "pread64": (room(4), 4, 0), "readv": (None, 0), "write": (b"new", 3), "pwrite64": (b"new", 3, 0),
        "writev": (None, 0), "lseek": (0, 0), "fstat": (room(144),), "fstatfs": (room(120),), "ftruncate": (7,),
        "fallocate": (0, 0, 7), "fsync": (), "fdatasync": (), "syncfs": (), "sync_file_range": (0, 7, 0), "fchmod": (0o644,),
        "fchown": (-1, -1), "fgetxattr": (b"user.x", None, 0), "fsetxattr": (b"user.x", b"1", 1, 0), "flistxattr": (None, 0),
        "fremovexattr": (b"user.x",), "getdents64": (room(1000), 1000), "getdents": (room(1000), 1000), "flock": (1,),
        "fadvise64": (0, 0, 0), "readahead": (0, 10),
        "fcntl": (fcntl.F_GETFL, 0), "ioctl": (0x5401, room(100)), "sendfile": (reading, None, 0), "fchdir": (), "dup": (),
        "execveat": (b"x", None, None, 0), "mkdirat": (b"file/x", 0o700), "unlinkat": (b"missing", 0),
    }  # fmt: skip
    answers: dict[str, Any] = {}
    kinds = {
        "closed": closed,
        "path": path,
        "reading": reading,
        "writing": writing,
        "directory": directory,
        "negative": -1,
        "high": 99999,
    }
    for name, arguments in calls.items():
        for kind, number in kinds.items():
            if (name, kind) in {
                ("fchdir", "directory"),
                ("getdents64", "directory"),
                ("getdents", "directory"),
            }:
                continue
            found = raw(name, number, *arguments)
            if name == "dup" and isinstance(found, int):
                found = descriptor(found)
            answers[f"{name} {kind}"] = found
    for each in (path, reading, writing, directory):
        os.close(each)
    return answers, tree()
