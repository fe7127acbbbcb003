"""A bucket of objects as real directories: the store, and a mirror of it on every node, where the node's ranks work.

An object has the same inode in the store and in every mirror (hard links).  A file that is opened to be written gets an
inode of its own, which is seen in the node's mirror alone: the upload.  When it is complete it takes the object's place
everywhere.  What the storage refuses, its view says (`racecheck.storage.object_store`).
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from racecheck.kernel.trees import wipe
from racecheck.model.errors import InternalError
from racecheck.model.ops import op_kinds
from racecheck.storage.object_store import FORGOTTEN, ObjectView, writes
from racecheck.storage.views import View
from racecheck.supervisor.calls.perform import Answer, Next, OpLayer
from racecheck.supervisor.files.paths import Located
from racecheck.supervisor.run.state import RunState
from racecheck.supervisor.state.tasks import Request

_CHANGES_CONTENT = op_kinds.RESIZES - {"allocate"}
Key = tuple[int, int]


@dataclass(slots=True, eq=False)
class Upload:
    """A file that a node writes.

    It has its ``path`` (``shown`` in places) and inode, the ``generation`` of the object when it was opened, whether
    there is anything to upload, and whether the upload completed before the close.
    """

    node: int
    path: str
    shown: str
    key: Key
    generation: int
    dirty: bool
    complete: bool = False


class ObjectMirrors:
    """Made before the ranks begin; every mirror is made again from the store."""

    def __init__(self, state: RunState, view: View | None) -> None:
        if not isinstance(view, ObjectView):
            raise InternalError("mirrors are for objects")
        self._state, self._view, self._settings = state, view, view.settings
        mounts = {state.world.node(rank.number): rank.mount for rank in state.ranks if rank.mount is not None}
        self._disks = [Path(mounts[node].disk) for node in sorted(mounts)]
        self._store = Path(mounts[0].at)
        self._uploads: dict[Key, Upload] = {}
        self._generations: defaultdict[str, int] = defaultdict(int)
        self._local: set[tuple[int, str]] = set()
        for disk in self._disks:
            _copy_links(self._store, disk)
        self._performers: dict[str, OpLayer] = {
            "open": self._open, "write": self._write, "copy": self._write, "truncate": self._truncate,
            "close": self._close, "dup": self._close, "fsync": self._sync, "exec": self._close,
            "mkdir": self._mkdir, "rmdir": self._rmdir, "unlink": self._unlink, "rename": self._rename,
            "symlink": self._symlink,
        }  # fmt: skip

    def perform(self, request: Request, next_: Next) -> Answer:
        """Carry a call out on the node's mirror, and its effect on the store and the other mirrors."""
        if request.op.call in FORGOTTEN:
            return Answer()
        performer = self._performers.get(request.op.call)
        if performer is None or not self._is_mirrored(request):
            return next_(request)
        return performer(request, next_)

    def completes(self, request: Request) -> bool:
        """Return whether a call ends an upload: the last descriptor's close, or a call that completes it here."""
        found = [self._uploads.get(_key(file.status())) for file in request.files.values()]
        if not any(each is not None and not each.complete for each in found):
            return False
        if request.op.call == "fsync":
            return self._settings.sequential
        return request.op.call in op_kinds.CLOSES and all(file.holders <= 1 for file in request.files.values())

    def complete_all(self, *, everything: bool = False) -> None:
        """Complete the uploads that no process has open any more (or all: the processes are about to end)."""
        for upload in [*self._uploads.values()]:
            if everything or not self._is_open(upload):
                self._complete(upload)

    def _is_mirrored(self, request: Request) -> bool:
        if request.files:
            return any(self._uploads.get(_key(file.status())) is not None for file in request.files.values())
        return all(self._path(request, each) is not None for each in request.located.values())

    def _node(self, request: Request) -> int:
        return self._state.world.node(request.op.rank)

    def _path(self, request: Request, located: Located) -> str | None:
        """Return a path of the node's mirror, relative to it; None for one that is elsewhere."""
        root = f"{self._disks[self._node(request)]}/"
        return located.path[len(root) :] if located.path.startswith(root) else None

    def _target(self, request: Request) -> str:
        path = self._path(request, [*request.located.values()][-1])
        assert path is not None
        return path

    def _others(self, node: int) -> Iterator[tuple[int, Path]]:
        """Yield the store, as number -1, and the mirrors of the other nodes."""
        yield -1, self._store
        yield from ((number, disk) for number, disk in enumerate(self._disks) if number != node)

    # Files.

    def _open(self, request: Request, next_: Next) -> Answer:
        node, path, place = self._node(request), self._target(request), request.op.places[-1]
        if not writes(request.op) or place.kind not in {"", "file"}:
            return next_(request)
        status = _status(self._disks[node] / path)
        dirty = status is None or op_kinds.truncates(request.op)
        excludes = "O_EXCL" in request.op.flags and status is not None
        if status is not None and _key(status) not in self._uploads and not excludes:
            self._make_private(node, path, empty=dirty)
        result = next_(request)
        if result.opened >= 0:
            key = _key(os.fstat(result.opened))
            upload = self._uploads.setdefault(
                key, Upload(node, path, place.path, key, self._generations[path], dirty=False)
            )
            upload.dirty |= dirty
            self._view.writing.add((node, place.path))
        return result

    def _make_private(self, node: int, path: str, *, empty: bool) -> None:
        """Give a node a copy of an object, with an inode of its own."""
        target = self._disks[node] / path
        copy = target.with_name(f".{target.name}.upload")
        if empty:
            copy.touch()
            shutil.copymode(target, copy)
        else:
            shutil.copy2(target, copy)
        self._state.identities.created(copy.lstat())
        copy.replace(target)

    def _write(self, request: Request, next_: Next) -> Answer:
        file = [*request.files.values()][-1]
        upload = self._uploads.get(_key(file.status()))
        if upload is not None and upload.complete:
            return Answer(errno=errno.EIO)
        if upload is not None and self._settings.sequential and not self._is_next(request):
            return Answer(errno=errno.EINVAL)
        result = next_(request)
        if upload is not None and not result.errno:
            upload.dirty = True
        return result

    def _is_next(self, request: Request) -> bool:
        file = [*request.files.values()][-1]
        offset = request.op.args.get("offset", -1)
        if offset < 0:
            offset = os.lseek(file.descriptor, 0, os.SEEK_CUR)
        return "O_APPEND" in request.op.flags or offset == file.status().st_size

    def _truncate(self, request: Request, next_: Next) -> Answer:
        if request.files:
            return self._write(request, next_)
        node, path = self._node(request), self._target(request)
        status = _status(self._disks[node] / path)
        if status is None or _key(status) in self._uploads:
            return next_(request)
        if self._settings.sequential:
            return Answer(errno=errno.EPERM)
        self._make_private(node, path, empty=False)
        result, key = next_(request), _key((self._disks[node] / path).lstat())
        failed = self._complete(Upload(node, path, request.op.path, key, self._generations[path], dirty=True))
        return Answer(errno=errno.ESTALE) if failed else result

    def _close(self, request: Request, next_: Next) -> Answer:
        """Close a file.  Its descriptor is gone in any case; the close reports that the upload has failed."""
        uploads = [self._uploads.get(_key(file.status())) for file in request.files.values()]
        result, failed = next_(request), False
        for upload in uploads:
            if upload is not None and not self._is_open(upload):
                failed |= self._complete(upload)
        return Answer(errno=errno.ESTALE) if failed else result

    def _sync(self, request: Request, next_: Next) -> Answer:
        upload = self._uploads.get(_key(request.file.status()))
        if upload is not None and self._settings.sequential and not upload.complete:
            upload.dirty = True
            self._publish(upload)
            upload.complete = True
        return next_(request)

    def _is_open(self, upload: Upload) -> bool:
        ranks = [rank for rank in self._state.ranks if self._state.world.node(rank.number) == upload.node]
        processes = [process for rank in ranks for process in rank.processes.values()]
        files = [file for process in processes for file in process.descriptors.among(0, 1 << 30)]
        return any(_key(file.status()) == upload.key for file in files)

    def _complete(self, upload: Upload) -> bool:
        """Make a closed file an object; returns whether that failed, because another one was first."""
        self._uploads.pop(upload.key, None)
        self._view.writing.discard((upload.node, upload.shown))
        own = _status(self._disks[upload.node] / upload.path)
        if own is None or _key(own) != upload.key or upload.complete:
            return False
        late = self._settings.first_wins and self._generations[upload.path] != upload.generation
        if late or not upload.dirty:
            self._restore(upload.node, upload.path)
            return late and upload.dirty
        self._publish(upload)
        return False

    def _publish(self, upload: Upload) -> None:
        self._lose(upload.path, upload.node)
        source = self._disks[upload.node] / upload.path
        for number, disk in self._others(upload.node):
            target = disk / upload.path
            if number >= 0 and self._is_private(target):
                continue
            self._make_directories(disk, target.parent)
            _put(source, target)

    def _restore(self, node: int, path: str) -> None:
        """Show a node the object again, instead of its own file."""
        (self._disks[node] / path).unlink(missing_ok=True)
        if os.path.lexists(self._store / path):
            _put(self._store / path, self._disks[node] / path)

    def _lose(self, path: str, node: int) -> None:
        """Note that the object is replaced or removed: open files of others are of the old one."""
        self._generations[path] += 1
        status = _status(self._store / path)
        if status is not None:
            self._view.lost(self._state.identities.of(status), node)

    def _is_private(self, path: Path) -> bool:
        status = _status(path)
        return status is not None and _key(status) in self._uploads

    # Names.

    def _make_directories(self, disk: Path, directory: Path) -> None:
        missing = [each for each in (directory, *directory.parents) if each.is_relative_to(disk) and not each.exists()]
        for each in reversed(missing):
            each.mkdir()
            self._state.identities.created(each.lstat())

    def _mkdir(self, request: Request, next_: Next) -> Answer:
        node, path, result = self._node(request), self._target(request), next_(request)
        if result.errno:
            return result
        if self._settings.local_directories:
            self._local.add((node, path))
            return result
        for _, disk in self._others(node):
            self._make_directories(disk, disk / path)
        return result

    def _rmdir(self, request: Request, next_: Next) -> Answer:
        node, path = self._node(request), self._target(request)
        if self._settings.local_directories and (self._store / path).is_dir():
            is_empty = not any((self._disks[node] / path).iterdir())
            return Answer(errno=errno.EPERM if is_empty else errno.ENOTEMPTY)
        result = next_(request)
        if not result.errno:
            self._local.discard((node, path))
            if not self._settings.local_directories:
                for _, disk in self._others(node):
                    with suppress(OSError):
                        (disk / path).rmdir()
        return result

    def _unlink(self, request: Request, next_: Next) -> Answer:
        node, path, result = self._node(request), self._target(request), next_(request)
        if not result.errno:
            self._lose(path, node)
            self._remove_elsewhere(node, path)
        return result

    def _remove_elsewhere(self, node: int, path: str) -> None:
        for number, disk in self._others(node):
            if number >= 0 and self._is_private(disk / path):
                continue
            with suppress(OSError):
                (disk / path).unlink()
            if self._settings.local_directories:
                self._prune(number, disk, path)

    def _prune(self, number: int, disk: Path, path: str) -> None:
        """Raise ENOENT for directories without an object, except where one has just been made."""
        while path := os.path.dirname(path):
            if (number, path) in self._local:
                return
            try:
                (disk / path).rmdir()
            except OSError:
                return

    def _rename(self, request: Request, next_: Next) -> Answer:
        node = self._node(request)
        source, target = (str(self._path(request, each)) for each in request.located.values())
        if request.op.places[0].kind == "directory":
            if not self._settings.hns and any((self._disks[node] / source).iterdir()):
                return Answer(errno=errno.EMFILE)
            result = next_(request)
            if not result.errno:
                self._move_elsewhere(node, source, target)
            return result
        status = _status(self._disks[node] / source)
        upload = self._uploads.get(_key(status)) if status is not None else None
        if upload is not None and self._complete(upload):
            return Answer(errno=errno.ESTALE)
        result = next_(request)
        if not result.errno and source != target:
            self._lose(target, node)
            self._generations[source] += 1
            self._move_elsewhere(node, source, target)
        return result

    def _move_elsewhere(self, node: int, source: str, target: str) -> None:
        for number, disk in self._others(node):
            if number >= 0 and self._is_private(disk / target):
                (disk / source).unlink(missing_ok=True)
                continue
            with suppress(OSError):
                os.rename(disk / source, disk / target)

    def _symlink(self, request: Request, next_: Next) -> Answer:
        node, path, result = self._node(request), self._target(request), next_(request)
        if not result.errno:
            for _, disk in self._others(node):
                with suppress(OSError):
                    os.link(self._disks[node] / path, disk / path, follow_symlinks=False)
        return result


def _key(status: os.stat_result) -> Key:
    return status.st_dev, status.st_ino


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _put(source: Path, target: Path) -> None:
    """Link a file over the present owner of the name, in one step."""
    temporary = target.with_name(f".{target.name}.put")
    os.link(source, temporary, follow_symlinks=False)
    os.rename(temporary, target)
    temporary.unlink(missing_ok=True)  # rename(2) does nothing where both are one file


def _copy_links(store: Path, disk: Path) -> None:
    """Make a mirror: the same directories, and the same files in them."""
    wipe(disk)
    disk.mkdir(parents=True)
    for below, directories, files in os.walk(store):
        here = disk / os.path.relpath(below, store)
        for name in directories + files:
            source = Path(below) / name
            if source.is_dir() and not source.is_symlink():
                (here / name).mkdir()
            else:
                os.link(source, here / name, follow_symlinks=False)
