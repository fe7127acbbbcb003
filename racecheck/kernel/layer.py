"""A layer over the machine's files: what this process and its children write goes there, and is thrown away.

In a private mount namespace an overlay covers every directory that can be written to, at its own path, so all paths
stay true: absolute and relative ones, getcwd(2), links, programs.  The kernel copies a file to the layer when it is
first changed.  ``/dev/shm`` is an empty one, the root directory itself is read-only, and a file that is a mount point
is replaced by a copy.  Only racecheck's own directory stays real; findings and pages are written through
`racecheck.kernel.real_files`.  As an ordinary user, rename(2) of a directory from below the layer fails with EXDEV
(overlayfs, "Renaming directories").
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from racecheck.kernel import capabilities, devices, namespace, own_processes, real_files

_DETACH = 2
_MEMORY = Path("/dev/shm")  # noqa: S108  (a place to cover: no file with a guessable name is made there)
_TEMPORARY = Path("/var/tmp")  # noqa: S108  (a place to cover, likewise)
_KERNEL = frozenset({
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
    "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs",
    "sysfs", "tracefs",
})  # fmt: skip
"""File systems that are the kernel's own: nobody's files are there."""
_SETTINGS = (Path("/sys"), *(Path("/proc", each) for each in ("bus", "fs", "irq", "sys", "sysrq-trigger")))
"""Where the machine is told what to do."""
_EVERYONE = ["0", "0", "4294967295"]
"""The map of users in the first namespace, which has them all (user_namespaces(7))."""
_LARGEST = 64 << 20
"""The most bytes of a file that is a mount point, and copied; a larger one is read-only."""
_WRITTEN = frozenset({stat.S_IFREG, stat.S_IFCHR})


@dataclass(frozen=True, slots=True)
class OverlayMount:
    """A line of ``/proc/self/mountinfo`` (proc(5)): where something is mounted, its kind, whether read-only."""

    path: Path
    kind: str
    read_only: bool


def mounts() -> list[OverlayMount]:
    """Return what is mounted in this namespace; of several at one path the last one is seen."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        path = fields[4].encode().decode("unicode_escape").encode("latin-1")
        found[path] = OverlayMount(Path(os.fsdecode(path)), after.split()[0], "ro" in fields[5].split(","))
    return [*found.values()]


def writable(every: Iterable[OverlayMount]) -> list[Path]:
    """Return the directories to cover: mounts with people's files, and the directories of the root file system."""
    known = {each.path for each in every}
    found = [each.path for each in every if each.kind not in _KERNEL and not each.read_only and each.path != Path("/")]
    found += [Path(each.path) for each in os.scandir("/") if each.is_dir(follow_symlinks=False)]
    found = [each for each in found if each == _MEMORY or each.parts[1] not in {"dev", "proc", "sys"}]
    return sorted({each for each in found if _is_directory(each) and (each in known or len(each.parts) == 2)})


class Layer:
    """Covers the machine's files for this process, and for all that it starts.

    ``place`` is a directory for the layer, in one of the directories ``real`` that stay as they are.  ``used`` are
    directories in which the program is likely to write: an ordinary user can write in others only where all owners on
    the way are his.
    Raises `OSError` if the kernel does not allow it: that takes root, or user namespaces that anybody may have, and
    one thread.
    """

    def __init__(self, place: Path, real: Sequence[Path], used: Sequence[Path] = ()) -> None:
        self._real = [each.resolve() for each in real]
        self._use(used)
        self._times, self._here = 0, Path.cwd()
        real_files.keep()
        namespace.enter()
        self.is_apart = own_processes.enter()
        self._limit()
        self._is_root = os.geteuid() == 0
        self._is_trusted = self._is_root and Path("/proc/self/uid_map").read_text().split() == _EVERYONE
        every = mounts()
        place.mkdir(exist_ok=True)
        for each in self._real:  # mounts of their own stay as they are, whatever is around them
            namespace.mount(str(each), each, namespace.BIND)
        self._place = Path(f"/proc/self/fd/{_handle(place)}")  # an overlay may cover the way to it
        self._covered = writable(every)
        self._seals_root = os.access("/", os.W_OK)
        # Another /proc would show the processes of others: it is left out.
        shown = [each for each in every if each.kind != "proc"]
        below = [each for each in shown if any(each.path.is_relative_to(path) for path in self._covered)]
        self._copied = {
            each.path for each in below if each.kind not in _KERNEL and not each.read_only and _is_file(each.path)
        }
        self._below = dict(_handles({*self._covered, *(each.path for each in below), *self._real}))
        self._base: int | None = None
        self._mounted: list[Path] = []
        self._overlays: set[str] = set()
        self._cover()

    def holds(self, path: Path) -> bool:
        """Return whether a write at a path goes to the layer: the file, or its nearest directory, is in an overlay.

        The kernel is asked which mount that is (``mnt_id`` in ``/proc/self/fdinfo``, proc(5)).
        """
        nearest = next(each for each in (path, *path.parents) if os.path.lexists(each))
        around = _mount_id(path.parent, 0) if nearest == path else _mount_id(nearest, 0)
        return {around, _mount_id(nearest, os.O_NOFOLLOW)} <= self._overlays

    def _limit(self) -> None:
        """Take out of reach what no layer can cover: the devices and the settings of the machine."""
        capabilities.deny_machine()
        devices.limit()
        for path in filter(Path.exists, _SETTINGS):
            namespace.show_read_only(str(path), path)

    def _cover(self) -> None:
        with self._privileged():
            self._mount_all()

    @contextmanager
    def _privileged(self) -> Iterator[None]:
        """Use the privileges of an ordinary user's namespace to mount, and for nothing else.

        This process performs the program's ops, and the kernel has to refuse them the same as elsewhere.
        """
        if self._is_root:
            yield
            return
        capabilities.use(effective=True)
        try:
            yield
        finally:
            capabilities.use(effective=False)

    def _mount_all(self) -> None:
        upper = self._place / str(self._times)
        for number, (path, handle) in enumerate(self._below.items()):
            source = self._source(number, path, handle)
            if path == _MEMORY:
                namespace.mount("tmpfs", path, namespace.NO_DEVICES, kind="tmpfs", options="mode=1777")
            elif path in self._covered:
                own = upper / str(number)
                for each in ("upper", "work"):
                    (own / each).mkdir(parents=True)
                shutil.copystat(path, own / "upper")
                if not self._is_trusted:
                    self._prepare(path, own / "upper")
                self._overlay(path, source, own, number)
            elif path in self._copied:
                self._replace(path, source, upper / str(number))
            else:
                _make_point(path, source)
                self._bind(path, source)
            self._mounted.append(path)
        if self._seals_root:
            namespace.seal(Path("/"))
        os.chdir(self._here)  # not in what is below the layer

    def _source(self, number: int, path: Path, handle: int) -> str:
        """Return the source of a mount: the place below the layer, or the copy of a file that `keep` has kept."""
        kept = self._place / str(self._base) / str(number)
        return str(kept) if path in self._copied and kept.is_file() else f"/proc/self/fd/{handle}"

    def _bind(self, path: Path, source: str) -> None:
        if path in self._real:
            namespace.mount(source, path, namespace.BIND | namespace.REC)
        else:  # what is read-only already, or the kernel's
            namespace.show_read_only(source, path)

    def _prepare(self, path: Path, upper: Path) -> None:
        """Make the directories that lead to those in use: the kernel cannot copy one of another user's (EOVERFLOW)."""
        for each in self._used:
            if each.is_relative_to(path) and each.is_dir():
                for directory in reversed([each, *each.parents]):
                    if directory.is_relative_to(path):
                        made = upper / directory.relative_to(path)
                        made.mkdir(exist_ok=True)
                        shutil.copystat(directory, made)

    def _overlay(self, path: Path, source: str, own: Path, number: int) -> None:
        """Mount an overlay, above the changes that `keep` has kept.

        Descriptors stand for the paths, which may have commas and colons.
        """
        handles = [_handle(own)]
        lower, upper = source, f"/proc/self/fd/{handles[0]}"
        if self._base is not None:
            handles.append(_handle(self._place / str(self._base) / str(number) / "upper"))
            lower = f"/proc/self/fd/{handles[1]}:{source}"
        options = [f"lowerdir={lower}", f"upperdir={upper}/upper", f"workdir={upper}/work"]
        options += ["redirect_dir=on"] if self._is_trusted else ["userxattr"]  # else a directory cannot be renamed
        try:
            namespace.mount("overlay", path, namespace.NO_DEVICES, kind="overlay", options=",".join(options))
            self._overlays.add(_mount_id(path, 0))
        except OSError:
            # An ordinary user cannot cover a directory in which something is mounted: there nothing can be written.
            namespace.show_read_only(source, path)
        finally:
            for each in handles:
                os.close(each)

    def _replace(self, path: Path, source: str, own: Path) -> None:
        """Show a copy of a file that is a mount point: an overlay covers directories only."""
        try:
            own.parent.mkdir(parents=True, exist_ok=True)
            if os.stat(source).st_size > _LARGEST:
                raise OSError
            shutil.copyfile(source, own)
            shutil.copystat(source, own)
            if self._is_root:
                status = os.stat(source)
                os.chown(own, status.st_uid, status.st_gid)
            _make_point(path, source)
            namespace.mount(str(own), path, namespace.BIND)
        except OSError:
            namespace.show_read_only(source, path)

    def changed(self, within: Path, kept: Collection[str] = ()) -> list[str]:
        """Return the paths outside of the directory ``within`` that have been written, made or removed.

        Its entries with the names ``kept`` count as outside.
        """
        inside = _Inside(within, frozenset(kept))
        found: list[str] = []
        for number, (path, handle) in enumerate(self._below.items()):
            if path == _MEMORY:
                found += [each.path for each in os.scandir(path) if not self._leads_to_real(Path(each.path))]
            elif path in self._covered:
                made = [] if self._is_trusted else self._used
                _changes(self._place / str(self._times) / str(number) / "upper", path, inside, made, found)
            elif path in self._copied and _stamp(path) != _stamp(Path(self._source(number, path, handle))):
                found.append(str(path))
        return found

    def written(self, within: Path) -> list[Path]:
        """Return the paths outside of the directory ``within`` of files written, directories made, and what is gone.

        An overlay keeps a character device in place of what is gone (overlayfs.rst in the kernel's documentation).
        """
        found: list[Path] = []
        for number, path in enumerate(self._below):
            if path in self._covered and path != _MEMORY:
                upper = self._place / str(self._times) / str(number) / "upper"
                for folder, below, names in os.walk(upper):
                    shown = path / os.path.relpath(folder, upper)
                    found += [shown] if not (below or names or shown == path or shown in self._used) else []
                    found += [shown / name for name in names if stat.S_IFMT(_mode(Path(folder, name))) in _WRITTEN]
        return [each for each in found if not each.is_relative_to(within)]

    def difference(self) -> Iterator[tuple[Path, bool]]:
        """Yield the paths made, written or removed, in order, each with whether it hides a directory of before.

        At a path that was removed nothing is.  Not told are ``/dev/shm``, and other modes of directories.
        """
        opaque = "trusted.overlay.opaque" if self._is_trusted else "user.overlay.opaque"
        for number, (path, handle) in enumerate(self._below.items()):
            if path in self._covered and path != _MEMORY:
                upper = self._place / str(self._times) / str(number) / "upper"
                yield from _differences(upper, Path(f"/proc/self/fd/{handle}"), path, opaque)
            elif path in self._copied and _stamp(path) != _stamp(Path(self._source(number, path, handle))):
                yield path, False

    def _leads_to_real(self, path: Path) -> bool:
        return any(each.is_relative_to(path) for each in self._real)

    def _use(self, directories: Sequence[Path]) -> None:
        self._used = [each.resolve() for each in (*directories, Path.home(), _TEMPORARY)]

    def renew(self) -> None:
        """Forget what has been written.  No process may write meanwhile."""
        self._unmount()
        self._cover()

    def keep(self) -> None:
        """Have `renew` go back to the files as they are now.  No process may write meanwhile."""
        assert self._base is None
        self._base = self._times
        self.renew()

    def forget(self) -> None:
        """Forget all changes, the kept ones too.  No process may write meanwhile."""
        self._unmount()
        self._drop_kept()
        self._cover()

    def _drop_kept(self) -> None:
        if self._base is not None:
            with self._privileged():
                shutil.rmtree(self._place / str(self._base), ignore_errors=True)
        self._base = None

    def lift(self) -> None:
        """Drop the changes, and show the real files until `cover`.  No process may write until then."""
        self._unmount()
        self._drop_kept()
        if self._seals_root:
            with self._privileged():
                namespace.seal(Path("/"), lift=True)
        os.chdir(self._here)

    def cover(self, used: Sequence[Path]) -> None:
        """Cover the files again, as they are now, for a program that is likely to write in ``used`` directories."""
        self._use(used)
        self._here = Path.cwd()
        self._cover()

    def _unmount(self) -> None:
        old = self._place / str(self._times)
        with self._privileged():
            for path in reversed(self._mounted):
                namespace.unmount(path, _DETACH)
            if self._times != self._base:
                shutil.rmtree(old, ignore_errors=True)  # overlayfs has a directory there that its owner may not read
        self._mounted.clear()
        self._overlays.clear()
        self._times += 1


@dataclass(frozen=True, slots=True)
class _Inside:
    """A directory without some of its entries."""

    path: Path
    without: frozenset[str]

    def has(self, path: Path) -> bool:
        return (path == self.path and not self.without) or (path.parent == self.path and path.name not in self.without)


def _changes(upper: Path, path: Path, within: _Inside, made: list[Path], found: list[str]) -> None:
    """Add what an overlay's upper directory has, but for the directories that lead to ``within``, or were ``made``."""
    for each in sorted(os.scandir(upper), key=lambda entry: entry.name):
        shown = path / each.name
        if within.has(shown):
            continue
        if each.is_dir(follow_symlinks=False) and any(leads.is_relative_to(shown) for leads in [within.path, *made]):
            _changes(Path(each.path), shown, within, made, found)
        else:
            found.append(str(shown))


def _differences(upper: Path, lower: Path, path: Path, opaque: str) -> Iterator[tuple[Path, bool]]:
    """Yield the paths at which an overlay's upper directory differs from the ``lower`` one, shown at ``path``."""
    for each in sorted(os.scandir(upper), key=lambda entry: entry.name):
        shown, before = path / each.name, lower / each.name
        is_directory = each.is_dir(follow_symlinks=False)
        was_there = os.path.lexists(before)
        hides = is_directory and was_there and _has_attribute(each.path, opaque)
        if hides or not is_directory or not was_there:
            yield shown, hides
        if is_directory:
            yield from _differences(Path(each.path), before, shown, opaque)


def _has_attribute(path: str, name: str) -> bool:
    try:
        return bool(os.getxattr(path, name, follow_symlinks=False))
    except OSError:
        return False


def _handle(path: Path) -> int:
    return os.open(path, os.O_PATH)


def _handles(paths: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    """Yield paths in order with a descriptor each, but none that this user cannot reach: his programs cannot either."""
    for path in sorted(paths):
        with suppress(FileNotFoundError, PermissionError):
            yield path, _handle(path)


def _is_file(path: Path) -> bool:
    return stat.S_ISREG(_mode(path))


def _is_directory(path: Path) -> bool:
    return stat.S_ISDIR(_mode(path))


def _mode(path: Path) -> int:
    """Return the mode of a file, 0 if this user cannot reach it."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, PermissionError):
        return 0


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return the size, mode and time of a file, which change when a program writes to a copy of it."""
    status = os.stat(path)
    return status.st_size, status.st_mode, status.st_mtime_ns


def _make_point(path: Path, source: str) -> None:
    """Make what something is to be mounted on, where the layer has nothing."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if os.path.isdir(source) else path.touch()


def _mount_id(path: Path, flags: int) -> str:
    """Return the number of the mount that a path leads to, opened with ``flags``."""
    handle = os.open(path, os.O_PATH | flags)
    try:
        lines = Path(f"/proc/self/fdinfo/{handle}").read_text().splitlines()
    finally:
        os.close(handle)
    return next(line for line in lines if line.startswith("mnt_id:"))
