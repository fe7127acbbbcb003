"""Put states of a disk on real files, one after the other, fast."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from racecheck.kernel.trees import wipe


class DiskItem(NamedTuple):
    """An object to put under a path; as JSON data a list.

    ``spans`` are the bytes of a file but zeros: (offset, length, place in the spool).  ``age`` is how long before the
    newest it was changed, in nanoseconds.
    """

    path: str
    kind: str
    target: str = ""
    size: int = 0
    age: int = 0
    spans: Sequence[Sequence[int]] = ()


@dataclass(slots=True)
class Placed:
    """A directory and its last state: an unchanged item need not be written again.

    ``spool`` is the file with the bytes; ``newest`` the modification time of the newest change.  The
    directory's entries ``kept`` are left alone.
    """

    root: Path
    spool: Path
    newest: int
    kept: frozenset[str] = frozenset()
    _items: dict[str, tuple[DiskItem, tuple[int, ...]]] = field(default_factory=dict)

    def place(self, raw: Sequence[Sequence[Any]]) -> None:
        """Make the directory hold these items and nothing else; raises `OSError`."""
        self.root.mkdir(exist_ok=True)
        wanted = {item.path: item for item in (DiskItem(*each) for each in raw)}
        kept = set(self._clear("", wanted))
        with _mapped(self.spool) as blobs:
            for path in sorted(wanted.keys() - kept):
                _put(self.root / path, wanted[path], blobs)
        for path in sorted(wanted, reverse=True):  # the times of a directory change when an entry is added
            item = wanted[path]
            if path not in kept or item.kind == "directory":
                when = self.newest - item.age
                os.utime(self.root / path, ns=(when, when), follow_symlinks=False)
        self._items = {path: (item, _look(self.root / path)) for path, item in wanted.items()}

    def _clear(self, below: str, wanted: Mapping[str, DiskItem]) -> Iterator[str]:
        """Remove wrong entries; returns the rest."""
        for entry in list(os.scandir(self.root / below)):
            path = f"{below}/{entry.name}" if below else entry.name
            if path in self.kept:
                continue
            if not self._is_right(path, wanted.get(path), is_directory=entry.is_dir(follow_symlinks=False)):
                wipe(Path(entry.path))
                continue
            yield path
            if entry.is_dir(follow_symlinks=False):
                yield from self._clear(path, wanted)

    def _is_right(self, path: str, item: DiskItem | None, *, is_directory: bool) -> bool:
        before = self._items.get(path)
        if item is None or before is None:
            return False
        look = _look(self.root / path)
        if is_directory:
            return item.kind == "directory" and before[1][0] == look[0]
        return before == (item, look)


def _look(path: Path) -> tuple[int, ...]:
    """Return what changes when somebody changes a file.  We set its age, so a change cannot go unnoticed."""
    found = path.lstat()
    return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_nlink


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    """Yield a file's bytes in memory."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            yield memoryview(b"")
            return
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as blobs, memoryview(blobs) as view:
            yield view


def _put(path: Path, item: DiskItem, blobs: memoryview) -> None:
    if item.kind == "directory":
        path.mkdir()
    elif item.kind == "symlink":
        path.symlink_to(item.target)
    else:
        with path.open("xb", buffering=0) as file:
            file.truncate(item.size)
            for offset, length, start in item.spans:
                with blobs[start : start + length] as data:
                    _write(file.fileno(), data, offset)


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        with data[done:] as rest:
            done += os.pwrite(descriptor, rest, offset + done)
