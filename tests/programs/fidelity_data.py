"""Reading, writing, copying, listing, attributes."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import shutil
import struct
from typing import Any

from tests.programs.fidelity_raw import (
    AT_EACCESS,
    AT_FDCWD,
    AT_SYMLINK_NOFOLLOW,
    attempt,
    program,
    raw,
    room,
    status,
    tree,
    write,
)

_PAGE = mmap.PAGESIZE


class Pages:
    """Two pages of memory before one that is not there."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, 3 * _PAGE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.end = self.start + 2 * _PAGE
        assert raw("munmap", self.end, _PAGE) == 0

    def fill(self, data: bytes) -> int:
        """Put the bytes right before the end; returns their address."""
        ctypes.memmove(self.end - len(data), data, len(data))
        return self.end - len(data)


PAGES = Pages()


def vector(*buffers: Any) -> Any:
    """``struct iovec`` of buffers, which it keeps, or of (address, length)."""
    spans = [each if isinstance(each, tuple) else (ctypes.addressof(each), len(each)) for each in buffers]
    packed = b"".join(struct.pack("QQ", address & (1 << 64) - 1, length & (1 << 64) - 1) for address, length in spans)
    vectors = ctypes.create_string_buffer(packed, len(packed))
    vectors.kept = buffers  # type: ignore[attr-defined]
    return vectors


def digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


@program()
def reading() -> Any:
    """Every way to read, up to and behind the end."""
    write("file", bytes(range(200)))
    file = os.open("file", os.O_RDONLY)
    answers: list[Any] = []
    for size in (0, 1, 10, 500, 0):
        buffer = room(600)
        answers += [raw("read", file, buffer, size), repr(buffer.raw[:20]), os.lseek(file, 0, os.SEEK_CUR)]
    for offset in (0, 100, 199, 200, 1 << 40, -1, -(1 << 63)):
        buffer = room(600)
        answers += [raw("pread64", file, buffer, 50, offset), repr(buffer.raw[:10])]
    os.lseek(file, 5, os.SEEK_SET)
    parts = [room(3), room(0), room(7), room(500)]
    answers += [raw("readv", file, vector(*parts), 4), [repr(each.raw[:12]) for each in parts]]
    parts = [room(3), room(300)]
    answers += [
        raw("preadv", file, vector(*parts), 2, 10, 0),
        repr(parts[1].raw[:4]),
        os.lseek(file, 0, os.SEEK_CUR),
    ]
    for offset, flags in ((10, 0), (-1, 0), (-2, 0), (0, 8), (0, 0x10), (0, 1 << 20), (-1, 1)):
        os.lseek(file, 20, os.SEEK_SET)
        answers += [raw("preadv2", file, vector(*parts), 2, offset, 0, flags), os.lseek(file, 0, os.SEEK_CUR)]
    answers += [raw("readv", file, vector(*parts), count) for count in (0, -1, 1025)]
    answers += [raw("readv", file, vector((0, 0)), 1), raw("readv", file, vector((PAGES.start, -1)), 1)]
    answers += [raw("read", file, room(10), size) for size in (-1, 1 << 63)]
    os.close(file)
    return answers


@program()
def writing() -> Any:
    """Every way to write, with holes, appended, and nothing at all."""
    file = os.open("file", os.O_CREAT | os.O_RDWR)
    answers: list[Any] = [
        raw("write", file, b"0123456789", 10),
        raw("write", file, b"", 0),
        raw("write", file, None, 0),
    ]
    answers += [raw("pwrite64", file, b"ab", 2, offset) for offset in (3, 20, -1)]
    answers += [
        os.lseek(file, 0, os.SEEK_CUR),
        raw("writev", file, vector(*map(ctypes.create_string_buffer, (b"x", b"yz"))), 2),
    ]
    for offset, flags in (
        (0, 0),
        (-1, 0),
        (-2, 0),
        (5, 2),
        (5, 4),
        (0, 0x10),
        (-1, 0x10),
        (0, 0x30),
        (0, 1 << 20),
    ):
        parts = vector(room(3, b"u"), room(0), room(4, b"v"))
        answers += [
            raw("pwritev2", file, parts, 3, offset, 0, flags),
            os.lseek(file, 0, os.SEEK_CUR),
            digest("file"),
        ]
    answers += [
        raw("pwritev", file, parts, 3, 40, 0),
        raw("writev", file, parts, 0),
        raw("writev", file, parts, 2000),
    ]
    answers += [raw("write", file, b"x", -1)]
    os.close(file)
    appending = os.open("file", os.O_WRONLY | os.O_APPEND)
    answers += [
        os.lseek(appending, 0, os.SEEK_SET),
        raw("write", appending, b"end", 3),
        os.lseek(appending, 0, os.SEEK_CUR),
    ]
    answers += [
        raw("pwrite64", appending, b"END", 3, 0),
        raw("pwritev2", appending, vector(room(2, b"n")), 1, 1, 0, 0x20),
    ]
    os.truncate("file", 2)
    answers += [
        raw("write", appending, b"+", 1),
        raw("ftruncate", appending, 30),
        raw("write", appending, b"-", 1),
    ]
    os.close(appending)
    return answers, tree()


@program()
def bad_memory() -> Any:
    """Memory that is not there, or ends too early: EFAULT, or what fits."""
    write("file", b"0123456789" * 30)
    os.symlink("file", "link")
    file = os.open("file", os.O_RDWR)
    directory = os.open(".", os.O_RDONLY)
    gone, edge = PAGES.end, PAGES.end - 5
    answers: list[Any] = []
    for address in (0, 1, gone, -1):
        answers += [
            raw("open", address, os.O_RDONLY, 0), raw("stat", address, room(144)), raw("stat", b"file", address),
            raw("stat", b"missing", address), raw("fstat", file, address), raw("statx", AT_FDCWD, b"file", 0, 0, address),
            raw("statfs", b".", address), raw("mkdir", address, 0o700), raw("rename", b"file", address),
            raw("rename", address, b"x"), raw("symlink", address, b"x"), raw("symlink", b"x", address), raw("link", b"file", address),
            raw("readlink", b"link", address, 10), raw("readlink", address, room(10), 10), raw("unlink", address),
            raw("read", file, address, 10), raw("pread64", file, address, 10, 0), raw("write", file, address, 10),
            raw("readv", file, address, 1), raw("readv", file, vector((address, 10)), 1),
            raw("writev", file, vector((address, 10)), 1), raw("getdents64", directory, address, 1000),
            raw("getxattr", b"file", address, room(10), 10), raw("setxattr", b"file", b"user.x", address, 10, 0),
            raw("utimensat", AT_FDCWD, b"file", 0 if not address else address, 0), raw("utime", b"file", address),
            raw("openat2", AT_FDCWD, b"file", address, 24), raw("truncate", address, 1), raw("access", address, 0),
            raw("execve", address, None, None), raw("chdir", address), raw("fcntl", file, 5, address),
            raw("fcntl", file, 6, address), raw("sendfile", file, file, address, 0) if address else None,
            raw("copy_file_range", file, address, file, None, 1, 0) if address else None,
            raw("nanosleep", address, None), raw("getrandom", address, 10, 0) , os.lseek(file, 0, os.SEEK_CUR),
        ]  # fmt: skip
    os.setxattr("file", "user.x", b"0123456789")
    answers += [
        raw("stat", b"file", edge), raw("readlink", b"link", edge, 10), raw("readlink", b"link", PAGES.end - 4, 10),
        raw("getxattr", b"file", b"user.x", edge, 10), raw("setxattr", b"file", b"user.x", edge, 10, 0),
        raw("openat2", AT_FDCWD, b"file", edge, 24), raw("getdents64", directory, PAGES.end - 30, 1000),
        raw("open", PAGES.fill(b"file"), os.O_RDONLY, 0), raw("stat", PAGES.fill(b"file\0"), room(144)),
    ]  # fmt: skip
    for _ in range(2):
        answers += [
            raw("read", file, edge, 10),
            os.lseek(file, 0, os.SEEK_CUR),
            repr(ctypes.string_at(edge, 5)),
        ]
    os.lseek(file, 0, os.SEEK_SET)
    answers += [raw("write", file, PAGES.fill(b"ABCDE"), 10), os.lseek(file, 0, os.SEEK_CUR)]
    answers += [
        raw("writev", file, vector(room(2, b"w"), (PAGES.fill(b"FGH"), 9), room(3)), 3),
        os.lseek(file, 0, os.SEEK_CUR),
    ]
    answers += [raw("readv", file, vector(room(2), (edge, 9), room(3)), 3), os.lseek(file, 0, os.SEEK_CUR)]
    os.close(file)
    os.close(directory)
    return answers, tree()


@program()
def large_writes() -> Any:
    """Megabytes, in one piece and in many."""
    data = bytes(range(256)) * 20480
    file = os.open("file", os.O_CREAT | os.O_RDWR)
    answers: list[Any] = [raw("write", file, data, len(data)), os.lseek(file, 0, os.SEEK_CUR)]
    parts = [ctypes.create_string_buffer(bytes([number % 256]) * 1000, 1000) for number in range(1024)]
    answers += [
        raw("writev", file, vector(*parts), 1024),
        raw("pwritev", file, vector(*parts[:7]), 7, 100, 0),
    ]
    back = room(6 << 20)
    os.lseek(file, 0, os.SEEK_SET)
    answers += [raw("read", file, back, 6 << 20), hashlib.sha256(back.raw).hexdigest()]
    answers += [
        raw("preadv", file, vector(*parts), 1024, 50, 0),
        hashlib.sha256(b"".join(each.raw for each in parts)).hexdigest(),
    ]
    os.close(file)
    return answers, status(os.stat("file")), digest("file")


@program()
def direct() -> Any:
    """O_DIRECT, where the file system knows it."""
    file = raw("open", "file", os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
    if isinstance(file, str):
        return file, tree()
    with mmap.mmap(-1, 16384) as pages:
        pages[:] = b"d" * 16384
        answers = [os.writev(file, [pages]), os.preadv(file, [pages], 4096), os.lseek(file, 0, os.SEEK_CUR)]
    os.close(file)
    return answers, status(os.stat("file"))


@program()
def seeking() -> Any:
    file = os.open("file", os.O_CREAT | os.O_RDWR)
    os.pwrite(file, b"data", 100_000)
    seeks = [
        (0, 0),
        (10, 1),
        (-5, 1),
        (-100, 1),
        (0, 2),
        (-4, 2),
        (10, 2),
        (-1 << 40, 2),
        (0, 3),
        (0, 4),
        (99_999, 3),
        (200_000, 3),
    ]
    seeks += [(100_001, 4), (5, 9), (-1, 0), (1 << 62, 0), (-1, 3)]
    answers = [raw("lseek", file, offset, whence) for offset, whence in seeks]
    os.close(file)
    return answers


@program()
def truncating() -> Any:
    write("file", b"0123456789")
    os.mkdir("directory")
    file, other = os.open("file", os.O_RDWR), os.open("file", os.O_RDONLY)
    answers = [raw("truncate", "file", size) for size in (5, 20, -1, 1 << 62)] + [
        raw("ftruncate", file, size) for size in (3, 8, -1)
    ]
    answers += [raw("truncate", "directory", 0), raw("ftruncate", other, 1), raw("truncate", "missing", 0)]
    for mode, offset, length in (
        (0, 0, 100), (1, 0, 9000), (0, 50, 0), (0, -1, 5), (0, 0, -1), (3, 2, 3), (2, 0, 5), (16, 0, 10), (8, 0, 4096), (32, 0, 4096),
        (64, 0, 10), (1 << 20, 0, 5), (0, 1 << 62, 1 << 62),
    ):  # fmt: skip
        answers += [raw("fallocate", file, mode, offset, length), os.fstat(file).st_size]
    answers += [raw("fallocate", other, 0, 0, 5)]
    os.close(file)
    os.close(other)
    return answers, tree()


@program()
def copying() -> Any:
    """copy_file_range and sendfile, with and without offsets, within the directory, in and out of it."""
    write("source", bytes(range(256)) * 40)
    source, target = os.open("source", os.O_RDONLY), os.open("target", os.O_CREAT | os.O_RDWR)
    answers: list[Any] = []
    positions = lambda: [os.lseek(each, 0, os.SEEK_CUR) for each in (source, target)]  # noqa: E731
    for one, two, length in (
        (None, None, 100),
        (50, None, 10),
        (None, 500, 10),
        (7, 900, 20000),
        (None, None, 0),
        (1 << 40, None, 5),
        (-1, None, 5),
    ):
        offsets = [
            None if each is None else ctypes.create_string_buffer(struct.pack("q", each), 8) for each in (one, two)
        ]
        answers += [raw("copy_file_range", source, offsets[0], target, offsets[1], length, 0), positions()]
        answers += [each and struct.unpack("q", each.raw[:8])[0] for each in offsets]
        offset = None if one is None else ctypes.create_string_buffer(struct.pack("q", one), 8)
        answers += [
            raw("sendfile", target, source, offset, length),
            positions(),
            offset and struct.unpack("q", offset.raw[:8])[0],
        ]
    answers += [
        raw("copy_file_range", source, None, target, None, 5, 1),
        raw("copy_file_range", target, None, target, None, 5, 0),
    ]
    answers += [
        raw("copy_file_range", target, None, source, None, 5, 0),
        raw("sendfile", source, target, None, 5),
        positions(),
    ]
    reading, writing = os.pipe()
    os.lseek(source, 0, os.SEEK_SET)
    answers += [raw("sendfile", writing, source, None, 50), os.read(reading, 100).hex()]
    answers += [
        raw("splice", source, None, writing, None, 30, 0),
        raw("splice", reading, None, target, None, 30, 0),
        positions(),
    ]
    answers += [
        raw("copy_file_range", source, None, writing, None, 5, 0),
        raw("sendfile", target, reading, None, 5),
    ]
    outside = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR, 0o600)
    answers += [
        raw("sendfile", outside, source, None, 40),
        os.lseek(outside, 0, os.SEEK_SET),
        raw("sendfile", target, outside, None, 40),
    ]
    answers += [
        raw("copy_file_range", outside, ctypes.create_string_buffer(8), target, None, 9, 0),
        positions(),
    ]
    for each in (source, target, reading, writing, outside):
        os.close(each)
    for copy in (shutil.copyfile, shutil.copy, shutil.copy2):
        copy("source", copy.__name__)
    return answers, tree(), digest("target")


@program()
def mappings() -> Any:
    """Files in memory, private and shared."""
    write("file", b"0123456789" * 1000)
    with open("file", "r+b") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
            answers = [len(pages), pages[5:9].decode(), pages.find(b"90")]
            file.write(b"changed")
            file.flush()
            answers += [pages[:9].decode(), pages.size()]
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as pages:
            pages[:3] = b"own"
        with mmap.mmap(file.fileno(), 100) as pages:
            pages[90:93] = b"all"
            pages.flush()
        answers += [attempt(mmap.mmap, file.fileno(), 0, access=mmap.ACCESS_READ, offset=1)]
    directory = os.open(".", os.O_RDONLY)
    answers += [attempt(mmap.mmap, directory, 10), raw("mmap", None, 4096, 1, 2, 9999, 0)]
    os.close(directory)
    with open("file", "rb") as file:
        answers += [attempt(mmap.mmap, file.fileno(), 0, access=mmap.ACCESS_WRITE)]
    return answers, digest("file")


def records(data: bytes) -> list[tuple[str, int, int, int]]:
    """Name, kind, offset and length of ``struct linux_dirent64`` records."""
    found, at = [], 0
    while at < len(data):
        _, offset, length, kind = struct.unpack_from("=QqHB", data, at)
        found.append((os.fsdecode(data[at + 19 : at + length].split(b"\0")[0]), kind, offset, length))
        at += length
    return found


def listing(directory: int, size: int) -> Any:
    """All records that getdents64 gives with a buffer of some size; or its errno."""
    found = []
    while True:
        buffer = room(size)
        count = raw("getdents64", directory, buffer, size)
        if isinstance(count, str):
            return found, count
        if count == 0:
            return found, ""
        found += records(buffer.raw[:count])


@program()
def listings() -> Any:
    """Directories, in small pieces, again, from the middle, and gone."""
    os.mkdir("d")
    for number in range(100):
        write(f"d/{'n' * (number % 30)}{number}")
    os.mkdir("d/dir")
    os.symlink("x", "d/link")
    os.mkfifo("d/fifo")
    directory = os.open("d", os.O_RDONLY)
    answers: list[Any] = []
    for size in (64, 100, 1000, 32768):
        os.lseek(directory, 0, os.SEEK_SET)
        found, error = listing(directory, size)
        answers += [sorted((name, kind, length) for name, kind, _, length in found), error]
    answers += [raw("getdents64", directory, room(1000), 1000)]
    os.lseek(directory, 0, os.SEEK_SET)
    answers += [raw("getdents64", directory, room(100), size) for size in (0, 1, 23)]
    found, _ = listing(directory, 300)
    names = [name for name, _, _, _ in found]
    for index in (0, 1, 2, 50, len(found) - 2):
        answers += [raw("lseek", directory, found[index][2], 0) == found[index][2]]
        rest, _ = listing(directory, 500)
        answers += [[name for name, _, _, _ in rest] == names[index + 1 :]]
    os.lseek(directory, 0, os.SEEK_SET)
    first = records(room(0).raw)
    buffer = room(200)
    first = records(buffer.raw[: raw("getdents64", directory, buffer, 200)])
    answers += [os.lseek(directory, 0, os.SEEK_CUR) == first[-1][2]]
    os.lseek(directory, 0, os.SEEK_SET)
    write("d/late")
    answers += ["late" in [name for name, _, _, _ in listing(directory, 500)[0]]]
    answers += [raw("lseek", directory, -1, 0), raw("lseek", directory, 0, 9)]
    second, copy = os.open("d", os.O_RDONLY), os.dup(directory)
    answers += [len(listing(second, 500)[0]), len(listing(second, 500)[0]), len(listing(copy, 500)[0])]
    os.lseek(directory, 0, os.SEEK_SET)
    answers += [len(listing(copy, 500)[0]), len(listing(directory, 500)[0])]
    os.lseek(second, 0, os.SEEK_SET)
    buffer = room(200)
    answers += [raw("getdents64", second, buffer, 200) > 0]
    shutil.rmtree("d")
    answers += [
        raw("getdents64", second, room(200), 200),
        listing(directory, 200),
        attempt(os.lseek, directory, 0, 0),
    ]
    answers += [listing(directory, 200), attempt(os.listdir, copy)]
    file = os.open("f", os.O_CREAT | os.O_RDONLY)
    answers += [
        raw("getdents64", file, room(200), 200),
        attempt(os.scandir, "f"),
        attempt(os.listdir, "missing"),
    ]
    for each in (directory, second, copy, file):
        os.close(each)
    os.mkdir("empty")
    return answers, os.listdir("empty"), [each[0] for each in os.walk(".")]


@program()
def old_listing() -> Any:
    """getdents, which glibc has not called for twenty years."""
    for number in range(5):
        write(f"f{number}")
    directory, buffer = os.open(".", os.O_RDONLY), room(1000)
    count = raw("getdents", directory, buffer, 1000)
    os.close(directory)
    return count, sum(buffer.raw.count(f"f{number}".encode()) for number in range(5))


@program()
def attributes() -> Any:
    """Extended attributes: sizes asked for, too small rooms, every flag."""
    write("file")
    os.symlink("file", "link")
    os.mkdir("directory")
    file = os.open("file", os.O_RDONLY)
    answers: list[Any] = [
        raw("setxattr", "file", b"user.one", b"first", 5, 0), raw("setxattr", "file", b"user.one", b"again", 5, 1),
        raw("setxattr", "file", b"user.two", b"", 0, 2), raw("setxattr", "link", b"user.two", None, 0, 0),
        raw("fsetxattr", file, b"user.three", b"3", 1, 0), raw("setxattr", "file", b"nonsense", b"x", 1, 0),
        raw("setxattr", "file", b"", b"x", 1, 0), raw("setxattr", "file", b"user." + b"n" * 300, b"x", 1, 0),
        raw("setxattr", "file", b"user.big", bytes(70000), 70000, 0), raw("setxattr", "file", b"user.huge", b"x", -1, 0),
        raw("setxattr", "file", b"user.x", b"x", 1, 64), raw("setxattr", "missing", b"user.x", b"x", 1, 0),
        raw("setxattr", "directory/", b"user.d", b"dir", 3, 0), raw("lsetxattr", "link", b"trusted.l", b"l", 1, 0),
    ]  # fmt: skip
    for size in (0, 1, 4, 5, 100):
        buffer = room(200)
        answers += [
            raw("getxattr", "link", b"user.one", buffer, size),
            repr(buffer.raw[:8]),
            raw("fgetxattr", file, b"user.three", buffer, size),
        ]
        answers += [
            raw("listxattr", "file", buffer, size),
            raw("llistxattr", "link", buffer, size),
            raw("flistxattr", file, buffer, size),
        ]
        answers += [
            raw("lgetxattr", "link", b"trusted.l", buffer, size),
            raw("getxattr", "file", b"user.none", buffer, size),
        ]
    answers += [
        sorted(os.listxattr("file")),
        os.listxattr("link", follow_symlinks=False),
        repr(os.getxattr("directory", "user.d")),
    ]
    answers += [
        raw("getxattr", "file", b"user.one", None, 0),
        raw("getxattr", "file", b"user.one", None, 10),
        raw("listxattr", "file", None, 0),
    ]
    answers += [
        raw("getxattr", "file", b"user.one", room(10), -1),
        raw("getxattr", "file", b"user.one", room(10), 1 << 40),
    ]
    answers += [
        raw("removexattr", "file", b"user.one"),
        raw("removexattr", "file", b"user.one"),
        raw("fremovexattr", file, b"user.three"),
    ]
    answers += [
        raw("lremovexattr", "link", b"trusted.l"),
        raw("lremovexattr", "link", b"user.two"),
        sorted(os.listxattr("file")),
    ]
    arguments = ctypes.create_string_buffer(struct.pack("QII", 0, 0, 0), 16)
    answers += [
        raw("getxattrat", AT_FDCWD, "file", 0, b"user.two", arguments, 16),
        raw("removexattrat", AT_FDCWD, "file", 0, b"user.two"),
    ]
    answers += [
        raw("listxattrat", AT_FDCWD, "file", 0, room(10), 10),
        raw("listxattrat", file, b"", 0x1000, room(10), 10),
    ]
    os.close(file)
    return answers


@program()
def modes_and_owners() -> Any:
    write("file", b"x")
    os.symlink("file", "link")
    file = os.open("file", os.O_RDWR)
    answers = [
        raw("chmod", "link", 0o4711),
        raw("fchmod", file, 0o600),
        raw("fchmodat", AT_FDCWD, "file", 0o17777),
        raw("chmod", "file", -1),
    ]
    answers += [
        raw("fchmodat2", AT_FDCWD, "link", 0o640, 0),
        raw("fchmodat2", AT_FDCWD, "file", 0o640, 1),
        oct(os.stat("file").st_mode),
    ]
    os.chmod("file", 0o6755)
    answers += [
        raw("chown", "link", 1000, 1001),
        status(os.stat("file")),
        raw("lchown", "link", 7, 8),
        status(os.lstat("link")),
    ]
    answers += [
        raw("fchown", file, -1, 5),
        raw("fchownat", AT_FDCWD, "link", 9, -1, AT_SYMLINK_NOFOLLOW),
        raw("fchownat", AT_FDCWD, "file", 1, 1, 8),
    ]
    os.chmod("file", 0o4755)
    os.write(file, b"more")
    answers += [
        oct(os.stat("file").st_mode),
        raw("access", "file", 7),
        raw("access", "file", 8),
        raw("access", "missing", 0),
    ]
    answers += [
        raw("faccessat2", AT_FDCWD, "link", 4, AT_EACCESS),
        raw("faccessat2", AT_FDCWD, "link", 0, 1),
        raw("faccessat", AT_FDCWD, "file", 1),
    ]
    os.chmod("file", 0)
    answers += [os.access("file", each) for each in (os.R_OK, os.W_OK, os.X_OK)]
    os.close(file)
    return answers, tree()


@program()
def times() -> Any:
    """Times that are set; "now" and "leave it" among them."""
    write("file")
    os.symlink("file", "link")
    file = os.open("file", os.O_RDONLY)
    now, omit = (1 << 30) - 1, (1 << 30) - 2
    looked = lambda path="file": [getattr(os.lstat(path), each) for each in ("st_atime_ns", "st_mtime_ns")]  # noqa: E731
    answers: list[Any] = []
    for call in (
        lambda: raw("utime", "file", struct.pack("qq", 11, 12)),
        lambda: raw("utimes", "file", struct.pack("4q", 13, 100, 14, 200)),
        lambda: raw("futimesat", AT_FDCWD, "link", struct.pack("4q", 15, 1, 16, 2)),
        lambda: raw("utimensat", AT_FDCWD, "link", struct.pack("4q", 17, 999999999, 18, 5), 0),
        lambda: raw("utimensat", AT_FDCWD, "file", struct.pack("4q", 1, omit, 19, 5), 0),
        lambda: raw("utimensat", AT_FDCWD, "missing", struct.pack("4q", 1, omit, 1, omit), 0),
        lambda: raw("utimensat", file, None, struct.pack("4q", 20, 0, 21, 0), 0),
        lambda: raw("utimensat", AT_FDCWD, "file", struct.pack("4q", 20, 1 << 40, 21, 0), 0),
        lambda: raw("utimensat", AT_FDCWD, "file", struct.pack("4q", 20, 0, 21, 0), 1),
        lambda: raw("utimes", "file", struct.pack("4q", 13, 1 << 40, 14, 200)),
        lambda: os.utime(file, ns=(5, 6)),
        lambda: os.utime("file", (-5, 1 << 33)),
    ):
        answers += [call(), looked()]
    answers += [
        raw("utimensat", AT_FDCWD, "link", struct.pack("4q", 30, 0, 31, 0), AT_SYMLINK_NOFOLLOW),
        looked("link"),
        looked(),
    ]
    answers += [
        raw("utimensat", AT_FDCWD, "file", struct.pack("4q", 0, now, 0, now), 0),
        raw("utime", "file", None),
        raw("utimes", "file", None),
    ]
    answers += [
        all(each > 1_600_000_000_000_000_000 for each in looked()),
        raw("utimensat", AT_FDCWD, "file", None, 0),
    ]
    os.close(file)
    return answers


@program()
def statx_and_statfs() -> Any:
    """The words of a struct that do not name inodes, devices or times."""
    write("file", b"x" * 5000)
    os.mkdir("directory")
    os.chmod("directory", 0o1777)
    file = os.open("file", os.O_RDONLY)
    answers: list[Any] = []
    for start, path, flags, mask in (
        (AT_FDCWD, b"file", 0, 0x7FF), (AT_FDCWD, b"file", 0, 0), (AT_FDCWD, b"directory", 0x2000, 0x7FF), (file, b"", 0x1000, 0xFFFF),
        (AT_FDCWD, b"file", 0x6000, 1), (AT_FDCWD, b"file", 1, 1), (AT_FDCWD, b"file", 0, 1 << 31), (AT_FDCWD, b"missing", 0, 1),
    ):  # fmt: skip
        buffer = room(256)
        value = raw("statx", start, path, flags, mask, buffer)
        answers += [
            value,
            struct.unpack_from("IIQIIIH", buffer.raw) if value == 0 else "",
            struct.unpack_from("QQQ", buffer.raw, 40)[:1],
        ]
    buffer = room(144)
    answers += [
        raw("stat", "file", buffer),
        struct.unpack_from("QIIII", buffer.raw, 16),
        struct.unpack_from("qqq", buffer.raw, 48),
    ]
    buffer = room(120)
    answers += [
        raw("statfs", ".", buffer),
        struct.unpack_from("qq", buffer.raw),
        struct.unpack_from("qqq", buffer.raw, 64),
    ]
    answers += [raw("fstatfs", file, buffer), raw("statfs", "missing", buffer)]
    buffer = room(24)
    answers += [
        raw("file_getattr", AT_FDCWD, "file", buffer, 24, 0),
        buffer.raw.hex(),
        raw("file_getattr", AT_FDCWD, "missing", buffer, 24, 0),
    ]
    answers += [
        raw("file_getattr", AT_FDCWD, "file", buffer, 8, 0),
        raw("file_setattr", AT_FDCWD, "file", bytes(24), 24, 0),
    ]
    os.close(file)
    return answers


@program()
def durability() -> Any:
    write("file", b"x")
    file, directory = os.open("file", os.O_RDWR), os.open(".", os.O_RDONLY)
    answers = [raw(name, each) for name in ("fsync", "fdatasync", "syncfs") for each in (file, directory)]
    answers += [
        raw("sync_file_range", file, 0, 0, 7),
        raw("sync_file_range", file, -1, 0, 7),
        raw("sync_file_range", file, 0, 0, 64),
    ]
    answers += [
        raw("fadvise64", file, 0, 0, 4),
        raw("fadvise64", file, 0, 0, 99),
        raw("readahead", file, 0, 10),
    ]
    os.close(file)
    os.close(directory)
    return answers


@program()
def renaming() -> Any:
    """Over files, directories, itself and its own children; every flag."""
    for name in ("a", "b", "full", "full/x", "empty"):
        os.mkdir(name)
    write("f", b"f")
    write("g", b"g")
    os.link("f", "same")
    os.symlink("f", "link")
    pairs = [
        ("a", "a/x"),
        ("a", "a"),
        ("f", "same"),
        ("f", "a"),
        ("a", "f"),
        ("a", "full"),
        ("full", "a"),
        ("a", "empty"),
        ("empty", "empty/y/z"),
    ]
    pairs += [
        ("link", "g"),
        ("missing", "x"),
        ("f", "missing/x"),
        ("g", "link"),
        ("full/x", "full"),
        ("a", "."),
        (".", "a"),
        ("a/..", "b"),
    ]
    answers: list[Any] = [[pair, raw("rename", *pair)] for pair in pairs]
    answers += [tree()]
    for flags in (1, 2, 3, 4, 8, 6):
        for pair in (
            ("f", "full"),
            ("full", "f"),
            ("f", "new"),
            ("new", "f"),
            ("missing", "gone"),
            ("f", "f"),
            ("full", "full/x"),
            ("f", "missing/x"),
        ):
            answers += [[flags, pair, raw("renameat2", AT_FDCWD, pair[0], AT_FDCWD, pair[1], flags)]]
    return answers, [each for each in tree() if "#" not in each]


@program()
def hard_links() -> Any:
    write("f", b"f")
    os.symlink("f", "s")
    os.mkdir("d")
    answers = [
        raw("link", *pair)
        for pair in (
            ("f", "g"),
            ("f", "g"),
            ("s", "t"),
            ("d", "e"),
            ("missing", "h"),
            ("f", "d/f"),
            ("f", "no/f"),
            ("no/f", "no/g"),
        )
    ]
    answers += [raw("linkat", AT_FDCWD, "s", AT_FDCWD, f"u{flags}", flags) for flags in (0, 0x400, 1, 0x100)]
    descriptor = os.open("g", os.O_WRONLY)
    os.unlink("g")
    os.write(descriptor, b"through")
    answers += [
        status(os.fstat(descriptor)),
        raw("linkat", AT_FDCWD, f"/proc/self/fd/{descriptor}", AT_FDCWD, "v", 0x400),
    ]
    os.close(descriptor)
    return answers, tree()


@program()
def sleeps_and_draws() -> Any:
    """Sleeps that are refused, and randomness: as much as was asked for."""
    timespec = lambda seconds, nanoseconds: struct.pack("qq", seconds, nanoseconds)  # noqa: E731
    answers: list[Any] = [
        raw("nanosleep", timespec(*each), None) for each in ((0, 0), (0, 1000), (0, 10**9), (-1, 0), (0, -1))
    ]
    for clock in (0, 1, 7, 5, 99, -1):
        answers += [
            raw("clock_nanosleep", clock, 0, timespec(0, 0), None),
            raw("clock_nanosleep", clock, 1, timespec(1, 0), None),
        ]
        answers += [
            raw("clock_nanosleep", clock, 0, timespec(0, 10**9), None),
            raw("clock_nanosleep", clock, 0, 1, None),
        ]
    for size in (0, 1, 300, 5 << 20):
        buffer = room(max(1, size), b"\0")
        answers += [raw("getrandom", buffer, size, 0), size < 100 or len(set(buffer.raw)) > 100]
    answers += [raw("getrandom", room(9), 9, flags) for flags in (1, 2, 4, 5, 6, 7, 8, -1)]
    answers += [raw("getrandom", PAGES.end - 7, 20, 0), raw("getrandom", 1, 0, 0)]
    return answers
