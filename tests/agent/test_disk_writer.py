"""States of a disk on real files: what was there before, and what has been done to it, does not show."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from racecheck.agent.disk_writer import DiskItem, Placed

BLOBS = b"first bytes|second bytes|" + bytes(range(256)) * 300
SECOND = 10**9

ONE = [
    DiskItem("a", "directory", age=5 * SECOND),
    DiskItem("a/file", "file", size=20, age=9 * SECOND, spans=[(0, 11, 0), (15, 5, 12)]),
    DiskItem("a/large", "file", size=90_000, age=SECOND, spans=[(100, 76_800, 25)]),
    DiskItem("a/link", "symlink", "file"),
    DiskItem("empty", "directory"),
]
OTHER = [
    DiskItem("a", "file", size=4),
    DiskItem("empty", "directory"),
    DiskItem("empty/now", "file", size=6, spans=[(0, 6, 12)]),
]


@pytest.fixture
def disk(tmp_path: Path) -> Placed:
    (tmp_path / "blobs").write_bytes(BLOBS)
    (tmp_path / "disk").mkdir()
    return Placed(tmp_path / "disk", tmp_path / "blobs", 1_700_000_000 * SECOND)


def found(root: Path) -> dict[str, object]:
    """What is below a directory."""
    return {str(path.relative_to(root)): _what(path) for path in sorted(root.rglob("*"))}


def _what(path: Path) -> object:
    if path.is_symlink():
        return f"-> {os.readlink(path)}"
    return None if path.is_dir() else path.read_bytes()


def wanted(items: list[DiskItem]) -> dict[str, object]:
    return {item.path: _wanted(item) for item in sorted(items)}


def _wanted(item: DiskItem) -> object:
    if item.kind == "symlink":
        return f"-> {item.target}"
    if item.kind == "directory":
        return None
    content = bytearray(item.size)
    for offset, length, start in item.spans:
        content[offset : offset + length] = BLOBS[start : start + length]
    return bytes(content)


def test_it_is_as_it_is_to_be(disk: Placed) -> None:
    for items in (ONE, OTHER, ONE, [], ONE):
        disk.place(items)
        assert found(disk.root) == wanted(items)


def test_times_are_as_long_ago_as_the_items_say(disk: Placed) -> None:
    disk.place(ONE)
    for item in ONE:
        assert (disk.root / item.path).lstat().st_mtime_ns == disk.newest - item.age


def test_what_is_right_already_is_left_alone(disk: Placed) -> None:
    disk.place(ONE)
    before = (disk.root / "a/large").stat()
    disk.place([*ONE, DiskItem("a/more", "file")])
    after = (disk.root / "a/large").stat()
    assert (before.st_ino, before.st_ctime_ns) == (after.st_ino, after.st_ctime_ns)


def in_place(root: Path) -> None:
    with (root / "a/file").open("r+b") as file:
        file.write(b"X")


def in_place_and_dated(root: Path) -> None:
    before = (root / "a/file").stat()
    (root / "a/file").write_bytes(b"longer than it was before")
    os.utime(root / "a/file", ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(root: Path) -> None:
    (root / "other").write_bytes(b"X" * 20)
    os.replace(root / "other", root / "a/file")


def removed(root: Path) -> None:
    (root / "a/file").unlink()
    (root / "a/link").unlink()
    (root / "empty").rmdir()


def added(root: Path) -> None:
    (root / "empty/more/and/more").mkdir(parents=True)
    (root / "a/new").write_bytes(b"new")


def linked(root: Path) -> None:
    os.link(root / "a/file", root / "a/again")


def directory_replaced(root: Path) -> None:
    os.rename(root / "a", root / "b")
    (root / "a").mkdir()


def forbidden(root: Path) -> None:
    (root / "a/file").chmod(0)
    (root / "a").chmod(0)


@pytest.mark.parametrize(
    "change",
    [in_place, in_place_and_dated, replaced, removed, added, linked, directory_replaced, forbidden],
)
def test_what_a_recovery_has_done_is_undone(disk: Placed, change: Callable[[Path], None]) -> None:
    disk.place(ONE)
    change(disk.root)
    disk.place(ONE)
    assert found(disk.root) == wanted(ONE)
    assert (disk.root / "a/file").stat().st_nlink == 1
    assert (disk.root / "a").stat().st_mode & 0o700 == 0o700


def test_entries_that_are_kept_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_bytes(BLOBS)
    (tmp_path / "disk" / "code" / "deep").mkdir(parents=True)
    disk = Placed(tmp_path / "disk", tmp_path / "blobs", 1_700_000_000 * SECOND, frozenset({"code"}))
    for items, there in ((ONE, {"a", "code", "empty"}), ([], {"code"})):
        disk.place(items)
        assert {each.name for each in (tmp_path / "disk").iterdir()} == there
    assert (tmp_path / "disk" / "code" / "deep").is_dir()
