"""Every way of changing files that a record has to know.  Not collected by pytest."""

import ctypes
import mmap
import os
import shutil
from pathlib import Path
from typing import Any

import racecheck
from racecheck import Rank


def fill(path: Path) -> None:
    (path / "old").mkdir()
    (path / "old" / "kept").write_bytes(b"kept" * 100)
    (path / "old" / "twice").write_bytes(b"two names")
    os.link(path / "old" / "twice", path / "old" / "again")
    (path / "link").symlink_to("old/kept")
    (path / "gone").write_bytes(b"gone")


@racecheck.scenario(ranks=1)
def everything(rank: Rank) -> None:
    """One after the other."""
    os.chdir(rank.path)
    writing()
    sizes()
    copying()
    naming()


everything.setup(fill)


def writing() -> None:
    with open("plain", "wb") as file:
        file.write(b"a" * 10_000)
        file.seek(5)
        file.write(b"bbb")
    with open("plain", "ab") as file:
        file.write(b"appended")
    with open("old/kept", "r+b") as file:
        file.seek(200)
        file.write(b"in the middle")
    with open("old/again", "wb") as file:
        file.write(b"by its other name")
    descriptor = os.open("placed", os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, b"later", 5000)
    os.pwritev(descriptor, [b"one", b"two"], 100)
    os.lseek(descriptor, 300, os.SEEK_SET)
    os.writev(descriptor, [b"three", b"four"])
    os.close(descriptor)
    descriptor = os.open("placed", os.O_WRONLY | os.O_APPEND)
    os.pwrite(descriptor, b"at the end all the same", 0)  # pwrite(2), BUGS
    os.close(descriptor)
    descriptor = os.open("unreadable", os.O_WRONLY | os.O_CREAT, 0o200)
    os.write(descriptor, b"secret")
    os.close(descriptor)
    descriptor = os.open("unnamed", os.O_WRONLY | os.O_CREAT)
    os.unlink("unnamed")
    os.write(descriptor, b"never to be seen")
    os.close(descriptor)
    with open("large", "wb", buffering=0) as file:
        file.write(b"0123456789abcdef" * 200_000)
        file.write(bytes(3_000_000))


def sizes() -> None:
    with open("sized", "wb") as file:
        file.write(b"x" * 100)
        file.flush()
        file.truncate(40)
        os.ftruncate(file.fileno(), 4000)
    os.truncate("sized", 3000)
    with open("sized", "r+b") as file:
        os.posix_fallocate(file.fileno(), 0, 9000)
        punch(file.fileno(), 10, 20)
    open("emptied", "wb").close()
    with open("emptied", "wb") as file:
        file.write(b"once more")
    open("emptied", "wb").close()


def punch(descriptor: int, offset: int, length: int) -> None:
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    assert fallocate(descriptor, 3, ctypes.c_long(offset), ctypes.c_long(length)) == 0


def copying() -> None:
    shutil.copyfile("plain", "copied")
    with open("plain", "rb") as source, open("ranged", "wb") as target:
        os.copy_file_range(source.fileno(), target.fileno(), 100, offset_src=3)
        os.copy_file_range(source.fileno(), target.fileno(), 50, offset_src=0, offset_dst=1000)
        os.sendfile(target.fileno(), source.fileno(), 9_990, 100)


def naming() -> None:
    os.mkdir("made")
    os.mkdir("made/below")
    os.rename("plain", "made/below/moved")
    os.rename("copied", "gone")
    os.link("ranged", "made/linked")
    os.symlink("../old", "made/shortcut")
    with open("made/shortcut/through", "w") as file:
        file.write("by a link")
    os.rename("made", "renamed")
    os.mkdir("empty")
    os.rmdir("empty")
    os.unlink("link")
    os.rename("old/twice", "old/again")
    descriptor = os.open(".", os.O_WRONLY | os.O_TMPFILE)
    os.write(descriptor, b"named late")
    name = f"/proc/self/fd/{descriptor}".encode()
    assert ctypes.CDLL(None).linkat(-100, name, -100, b"late", 0x400) == 0  # os.link does not follow
    os.close(descriptor)
    temporary = Path(os.environ["TMPDIR"]) / "staged"
    temporary.write_bytes(b"from elsewhere")
    os.rename(temporary, "staged")


@racecheck.scenario(ranks=1)
def synchronous(rank: Rank) -> None:
    """What is durable when it returns, and what asks for it."""
    os.chdir(rank.path)
    descriptor = os.open("file", os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
    os.write(descriptor, b"lasts")
    os.close(descriptor)
    descriptor = os.open("file", os.O_WRONLY)
    os.pwritev(descriptor, [b"lasts, too"], 0, os.RWF_DSYNC)
    os.write(descriptor, b"does not")
    os.fdatasync(descriptor)
    os.close(descriptor)
    directory = os.open(".", os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    descriptor = os.open("file", os.O_WRONLY | os.O_SYNC)
    os.pwrite(descriptor, b"part", 5)
    assert ctypes.CDLL(None).sync_file_range(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), 7) == 0
    os.close(descriptor)


@racecheck.scenario(ranks=1)
def mapped(rank: Rank) -> None:
    with open(rank.path / "mapped", "w+b") as file:
        file.truncate(4096)
        with mmap.mmap(file.fileno(), 4096) as memory:
            memory[:5] = b"bytes"


@racecheck.scenario(ranks=2, nodes=2, storage="node-local")
def per_node(rank: Rank) -> None:
    """Every node its own disk, under the same path."""
    (rank.path / "name").write_text(f"node {rank.node}")
    (rank.path / "old").rename(rank.path / f"new{rank.node}")


per_node.setup(fill)


def exchange(one: str, other: str) -> Any:
    """renameat2 with RENAME_EXCHANGE."""
    done = ctypes.CDLL(None, use_errno=True).renameat2(-100, one.encode(), -100, other.encode(), 2)
    assert done == 0


@racecheck.scenario(ranks=1)
def exchanging(rank: Rank) -> None:
    os.chdir(rank.path)
    exchange("gone", "old")


exchanging.setup(fill)
