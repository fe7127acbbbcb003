"""Calls that are not one step: paths over links that others replace, long reads and writes, long listings."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch.distributed as dist

import racecheck
from racecheck import Rank

PAGE = 4096
_EXCHANGE = 2
_libc = ctypes.CDLL(None, use_errno=True)


def _published(rank: Rank, name: str) -> None:
    """Make a directory with a model, and have ``latest`` lead to it as people recommend: by a rename over the link."""
    (rank.path / name).mkdir()
    (rank.path / name / "model").write_text(name)
    os.symlink(name, rank.path / "link")
    os.rename(rank.path / "link", rank.path / "latest")


def _publishes_again(rank: Rank, then: Callable[[Path], object], use: Callable[[Path], object]) -> None:
    """Publish a second step on rank 0, and then do something with the first; rank 1 uses what is published."""
    if rank.rank == 0:
        _published(rank, "step_1")
    dist.barrier()
    if rank.rank == 0:
        _published(rank, "step_2")
        then(rank.path / "step_1")
    else:
        use(rank.path / "latest")


def _read(step: Path) -> None:
    (step / "model").read_text()


@racecheck.scenario(ranks=2)
def removes_the_old_step(rank: Rank) -> None:
    _publishes_again(rank, shutil.rmtree, _read)


@racecheck.scenario(ranks=2)
def keeps_the_old_step(rank: Rank) -> None:
    _publishes_again(rank, Path.exists, _read)


@racecheck.scenario(ranks=2)
def enters_the_old_step(rank: Rank) -> None:
    """The kernel walks to a working directory by itself."""
    _publishes_again(rank, lambda old: old.rename(rank.path / "old"), os.chdir)


@racecheck.scenario(ranks=2)
def removes_the_old_file(rank: Rank) -> None:
    """The link is the last name of the path."""
    if rank.rank == 0:
        (rank.path / "1.pt").touch()
        os.symlink("1.pt", rank.path / "latest")
    dist.barrier()
    if rank.rank == 0:
        (rank.path / "2.pt").touch()
        os.symlink("2.pt", rank.path / "link")
        os.rename(rank.path / "link", rank.path / "latest")
        (rank.path / "1.pt").unlink()
    else:
        assert (rank.path / "latest").exists(), "nothing is published"


@racecheck.scenario(ranks=2)
def exchanges_directories(rank: Rank) -> None:
    """There is a model at every moment, but not on the way that a reader has begun."""
    if rank.rank == 0:
        for name in ("new", "ckpt"):
            (rank.path / name).mkdir()
            (rank.path / name / "model").touch()
    dist.barrier()
    if rank.rank == 0:
        new, now = (os.fsencode(rank.path / name) for name in ("new", "ckpt"))
        assert _libc.renameat2(-100, new, -100, now, _EXCHANGE) == 0
        shutil.rmtree(rank.path / "new")
    else:
        (rank.path / "ckpt" / "model").read_text()


@racecheck.scenario(ranks=2)
def creates_in_a_published_directory(rank: Rank) -> None:
    """Rank 1 is on its way into the directory when rank 0 has listed it, and renames it."""
    if rank.rank == 0:
        (rank.path / "tmp").mkdir()
    dist.barrier()
    if rank.rank == 0:
        shards = os.listdir(rank.path / "tmp")
        os.rename(rank.path / "tmp", rank.path / "ckpt")
    else:
        with suppress(FileNotFoundError):
            (rank.path / "tmp" / "shard").touch()
    dist.barrier()
    if rank.rank == 0:
        assert shards == os.listdir(rank.path / "ckpt"), "a shard is there that nobody has counted"


def _filled(rank: Rank, pages: int) -> Path:
    path = rank.path / "model"
    if rank.rank == 0:
        path.write_bytes(b"1" * pages * PAGE)
    dist.barrier()
    return path


@racecheck.scenario(ranks=2)
def reads_while_another_writes(rank: Rank) -> None:
    path = _filled(rank, 4)
    with path.open("rb+", buffering=0) as file:
        if rank.rank == 0:
            file.write(b"2" * 4 * PAGE)
        else:
            assert len(set(file.read(4 * PAGE))) == 1, "mixed"


@racecheck.scenario(ranks=2)
def accepts_a_mixture(rank: Rank) -> None:
    path = _filled(rank, 4)
    with path.open("rb+", buffering=0) as file:
        if rank.rank == 0:
            file.write(b"2" * 4 * PAGE)
        else:
            file.read(4 * PAGE)


@racecheck.scenario(ranks=2)
def copies_while_another_writes(rank: Rank) -> None:
    _copy(rank, 4)


@racecheck.scenario(ranks=2)
def copies_much_while_another_writes(rank: Rank) -> None:
    _copy(rank, 64)


def _copy(rank: Rank, pages: int) -> None:
    path = _filled(rank, pages)
    if rank.rank == 0:
        with path.open("rb+", buffering=0) as file:
            file.write(b"2" * pages * PAGE)
    else:
        shutil.copyfile(path, rank.path / "copy")
        assert len(set((rank.path / "copy").read_bytes())) == 1, "mixed"


@racecheck.scenario(ranks=2)
def reads_what_is_not_empty(rank: Rank) -> None:
    path = _filled(rank, 0)
    if rank.rank == 0:
        with path.open("rb+", buffering=0) as file:
            file.write(b"1" * 4 * PAGE)
    elif path.stat().st_size:
        assert len(path.read_bytes()) == 4 * PAGE, "short"


@racecheck.scenario(ranks=2)
def writes_beside_a_copy(rank: Rank) -> None:
    """A copy of 64 KiB or less is one write to its target."""
    path = _filled(rank, 4)
    if rank.rank == 0:
        (rank.path / "source").write_bytes(b"2" * 4 * PAGE)
        with (rank.path / "source").open("rb") as source, path.open("rb+") as target:
            os.copy_file_range(source.fileno(), target.fileno(), 4 * PAGE)
    else:
        with path.open("rb+", buffering=0) as file:
            file.write(b"3" * 4 * PAGE)
            file.seek(0)
            file.read()
    dist.barrier()
    assert len(set(path.read_bytes())) == 1, "mixed"


@racecheck.scenario(ranks=2)
def writes_beside_a_write(rank: Rank) -> None:
    """The kernel does not mix two writes to one file."""
    path = _filled(rank, 4)
    with path.open("rb+", buffering=0) as file:
        file.write(str(rank.rank).encode() * 4 * PAGE)
    dist.barrier()
    assert len(set(path.read_bytes())) == 1, "mixed"


@racecheck.scenario(ranks=3)
def two_write_and_one_reads(rank: Rank) -> str:
    file = os.open(rank.path / "model", os.O_RDWR)
    dist.barrier()
    if rank.rank < 2:
        return str(os.pwrite(file, str(rank.rank).encode() * 2 * PAGE, 0))
    return _digest(os.pread(file, 2 * PAGE, 0))


@two_write_and_one_reads.setup
def _two_pages(path: Path) -> None:
    (path / "model").write_bytes(b"9" * 2 * PAGE)


@racecheck.scenario(ranks=3)
def two_rename_and_one_follows(rank: Rank) -> str:
    if rank.rank == 0:
        os.rename(rank.path / "link", rank.path / "latest")
        os.unlink(rank.path / "step_1" / "model")
        return ""
    if rank.rank == 1:
        os.rename(rank.path / "step_2", rank.path / "old")
        return ""
    try:
        return (rank.path / "latest" / "model").read_text()
    except OSError as error:
        return str(error.errno)


@two_rename_and_one_follows.setup
def _two_steps(path: Path) -> None:
    for name in ("step_1", "step_2"):
        (path / name).mkdir()
        (path / name / "model").write_text(name)
    os.symlink("step_1", path / "latest")
    os.symlink("step_2", path / "link")


@racecheck.scenario(ranks=2)
def writes_to_files_of_its_own(rank: Rank) -> None:
    path = rank.path / str(rank.rank)
    path.write_bytes(b"1" * 40 * PAGE)
    assert len(path.read_bytes()) == 40 * PAGE


@racecheck.scenario(ranks=2)
def lists_while_another_removes(rank: Rank) -> None:
    if rank.rank == 0:
        (rank.path / "shard_0000").unlink()
        (rank.path / "shard_1499").unlink()
    else:
        names = os.listdir(rank.path)
        assert "shard_1499" in names or "shard_0000" not in names, "the one that was removed first is there"


@lists_while_another_removes.setup
def _fill(path: Path) -> None:
    for number in range(1500):
        (path / f"shard_{number:04}").touch()


@racecheck.scenario(ranks=1)
def uses_links(rank: Rank) -> list[object]:
    """Make every kind of call over a link or into a directory, one after the other; returns the results."""
    top = rank.path
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "file").write_text("1")
    os.symlink("a", top / "first")
    os.symlink("first/b", top / "second")
    os.symlink(top / "a", top / "absolute")
    os.symlink("loop", top / "loop")
    os.symlink("nowhere", top / "broken")
    os.symlink("../first", top / "a" / "up")
    found: list[object] = []

    def tries(call: object, *arguments: object, **more: object) -> None:
        assert callable(call)
        try:
            value = call(*arguments, **more)
            found.append(value.st_size if isinstance(value, os.stat_result) else value)
        except OSError as error:
            found.append(error.errno)

    for way in (
        "first/b/file",
        "second/file",
        "absolute/b/file",
        "a/up/b/file",
        "first/../a/b/file",
        "a/b/../b/file",
    ):
        tries((top / way).read_text)
        tries(os.stat, top / way)
    for way in ("loop", "loop/file", "broken", "broken/file", "first/none/file", "first/b/file/", "second/", "first/."):
        tries(os.stat, top / way)
        tries(os.lstat, top / way)
    tries(os.readlink, top / "first" / "up")
    tries(os.mkdir, top / "first" / "made")
    tries(os.mkdir, top / "broken")
    tries(os.rename, top / "first" / "made", top / "second" / "moved")
    tries(os.link, top / "second" / "file", top / "first" / "hard")
    tries(os.unlink, top / "absolute" / "hard")
    tries((top / "broken").write_text, "made by an open over a link")
    tries(sorted, os.listdir(top / "second"))
    here = os.open(top / "second", os.O_RDONLY)
    tries(os.stat, "../up/b/file", dir_fd=here)
    tries(os.rmdir, "moved", dir_fd=here)
    os.close(here)
    os.chdir(top / "second")
    tries(os.stat, "../up/b/file")
    tries(os.stat, "../../second/file")
    return found


@racecheck.scenario(ranks=1)
def moves_bytes(rank: Rank) -> list[object]:
    """Make every kind of call that moves many bytes; returns the results."""
    data = bytes(number % 251 for number in range(11 * PAGE + 7))
    path, found = rank.path / "file", list[object]()
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    found.append(os.write(file, data))
    found.append(os.writev(file, [data[:PAGE], b"", data[PAGE : 9 * PAGE + 1], b"end"]))
    found.append(os.pwrite(file, data, 5))
    found.append(os.pwritev(file, [data[:3], data[3:]], 3 * PAGE + 1))
    found.append(os.lseek(file, 0, os.SEEK_CUR))
    found.append(os.lseek(file, 17, os.SEEK_SET))
    found.append(_digest(os.read(file, 5 * PAGE)))
    found.append(_digest(os.read(file, 1 << 20)))
    buffers = [bytearray(1), bytearray(2 * PAGE), bytearray(3)]
    found.append(os.preadv(file, buffers, 9))
    found.append(_digest(b"".join(buffers)))
    found.append(_digest(os.pread(file, 1 << 20, 1)))
    added = os.open(path, os.O_WRONLY | os.O_APPEND)
    found.append(os.write(added, data))
    for number in range(40):
        os.write(added, data + bytes([number]))
    target = os.open(rank.path / "target", os.O_CREAT | os.O_RDWR)
    found.append(os.sendfile(target, file, 3, 1 << 30))
    found.append(os.sendfile(target, file, None, 1 << 30))
    os.lseek(file, 11, os.SEEK_SET)
    found.append(os.copy_file_range(file, target, 1 << 20))
    found.append(os.copy_file_range(file, target, 200_000, 7, 9))
    found += [os.lseek(each, 0, os.SEEK_CUR) for each in (file, target)]
    found += [_digest((rank.path / name).read_bytes()) for name in ("file", "target")]
    for each in (file, added, target):
        os.close(each)
    return found


def _digest(data: bytes) -> str:
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}"
