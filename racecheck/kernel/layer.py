"""A layer over the machine's files: what this process and its children write goes there, and is thrown away.

In a private mount namespace an overlay covers every directory that can be written to, at its own path, so all paths
stay true: absolute and relative ones, getcwd(2), links, programs.  The kernel copies a file to the layer when it is
first changed.  ``/dev/shm`` is an empty one, and the root directory itself is read-only.  Some directories stay real:
racecheck's own.  As an ordinary user, rename(2) of a directory from below the layer fails with EXDEV (overlayfs,
"Renaming directories").
"""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from racecheck.kernel import namespace

_DETACH, _READ_ONLY, _REMOUNT = 2, 1, 32
_MEMORY = Path("/dev/shm")  # noqa: S108  (a place to cover: no file with a guessable name is made there)
_TEMPORARY = Path("/var/tmp")  # noqa: S108  (a place to cover, likewise)
_KERNEL = frozenset({
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
    "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "ramfs", "rpc_pipefs", "securityfs", "selinuxfs",
    "sysfs", "tracefs",
})  # fmt: skip
"""File systems that are the kernel's own: nobody's files are there."""
_CAPABILITIES, _ADMIN = 0x20080522, 1 << 21


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of ``/proc/self/mountinfo`` (proc(5)): where something is mounted, its kind, whether read-only."""

    path: Path
    kind: str
    read_only: bool


def mounts() -> list[Mount]:
    """Return what is mounted in this namespace; of several at one path the last one is seen."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        path = fields[4].encode().decode("unicode_escape").encode("latin-1")
        found[path] = Mount(Path(os.fsdecode(path)), after.split()[0], "ro" in fields[5].split(","))
    return [*found.values()]


def writable(every: Iterable[Mount]) -> list[Path]:
    """Return the directories to cover: mounts with people's files, and the directories of the root file system."""
    known = {each.path for each in every}
    found = [each.path for each in every if each.kind not in _KERNEL and not each.read_only and each.path != Path("/")]
    found += [Path(each.path) for each in os.scandir("/") if each.is_dir(follow_symlinks=False)]
    found = [each for each in found if each == _MEMORY or each.parts[1] not in {"dev", "proc", "sys"}]
    return sorted({each for each in found if each.is_dir() and (each in known or len(each.parts) == 2)})


class Layer:
    """Covers the machine's files for this process, and for all that it starts.

    ``place`` is a directory for the layer, ``real`` are directories that stay as they are.  ``used`` are directories in
    which the program is likely to write: an ordinary user can write in others only where all owners on the way are his.
    Raises `OSError` where the kernel does not allow it: that takes root, or user namespaces that anybody may have, and
    one thread.
    """

    def __init__(self, place: Path, real: Sequence[Path], used: Sequence[Path] = ()) -> None:
        self._place, self._real = place.resolve(), [each.resolve() for each in real]
        self._use(used)
        self._times, self._here = 0, Path.cwd()
        self._is_root = os.geteuid() == 0
        namespace.enter()
        every = mounts()
        self._covered = writable(every)
        self._seals_root = self._is_root and not any(each.path == Path("/") and each.read_only for each in every)
        below = [each for each in every if any(each.path.is_relative_to(path) for path in self._covered)]
        kept = [each.path for each in below if each.path not in self._covered]
        self._below = {path: _handle(path) for path in sorted({*self._covered, *kept, *self._real})}
        self._mounted: list[Path] = []
        try:
            self._cover()
        finally:
            if not self._is_root:
                _keep_only(_ADMIN)

    def _cover(self) -> None:
        upper = self._place / str(self._times)
        for number, (path, handle) in enumerate(self._below.items()):
            source = f"/proc/self/fd/{handle}"
            if path == _MEMORY:
                namespace.mount("tmpfs", path, 0, kind="tmpfs", options="mode=1777")
            elif path in self._covered:
                own = upper / str(number)
                for each in ("upper", "work"):
                    (own / each).mkdir(parents=True)
                shutil.copystat(path, own / "upper")
                if not self._is_root:
                    self._prepare(path, own / "upper")
                self._overlay(path, source, own)
            else:
                if not path.exists():
                    path.mkdir(parents=True)
                namespace.mount(source, path, namespace.BIND | namespace.REC)
                if self._is_root and path in self._real:  # its source may be below the root directory
                    namespace.mount("none", path, namespace.BIND | _REMOUNT)
            self._mounted.append(path)
        if self._seals_root:  # for any other user the root directory is read-only anyway
            namespace.mount("none", Path("/"), namespace.BIND | _REMOUNT | _READ_ONLY)
        os.chdir(self._here)  # not in what is below the layer

    def _prepare(self, path: Path, upper: Path) -> None:
        """Make the directories that lead to those in use: the kernel cannot copy one of another user's (EOVERFLOW)."""
        for each in self._used:
            if each.is_relative_to(path) and each.is_dir():
                for directory in reversed([each, *each.parents]):
                    if directory.is_relative_to(path):
                        made = upper / directory.relative_to(path)
                        made.mkdir(exist_ok=True)
                        shutil.copystat(directory, made)

    def _overlay(self, path: Path, lower: str, own: Path) -> None:
        """Mount an overlay.  Descriptors stand for the paths, which may have commas and colons."""
        handle = _handle(own)
        upper = f"/proc/self/fd/{handle}"
        options = [f"lowerdir={lower}", f"upperdir={upper}/upper", f"workdir={upper}/work"]
        options += ["redirect_dir=on"] if self._is_root else ["userxattr"]  # else a directory cannot be renamed
        try:
            namespace.mount("overlay", path, 0, kind="overlay", options=",".join(options))
        except OSError:
            # An ordinary user cannot cover a directory in which something is mounted: there nothing can be written.
            namespace.mount(lower, path, namespace.BIND | namespace.REC)
            namespace.mount("none", path, namespace.BIND | _REMOUNT | _READ_ONLY)
        finally:
            os.close(handle)

    def changed(self, within: Path) -> list[str]:
        """Return the paths outside of the directory ``within`` that have been written, made or removed."""
        found: list[str] = []
        for number, path in enumerate(self._below):
            if path == _MEMORY:
                found += [each.path for each in os.scandir(path) if not self._leads_to_real(Path(each.path))]
            elif path in self._covered:
                made = [] if self._is_root else self._used
                _changes(self._place / str(self._times) / str(number) / "upper", path, within, made, found)
        return found

    def _leads_to_real(self, path: Path) -> bool:
        return any(each.is_relative_to(path) for each in self._real)

    def _use(self, directories: Sequence[Path]) -> None:
        self._used = [each.resolve() for each in (*directories, Path.home(), _TEMPORARY)]

    def renew(self) -> None:
        """Forget what has been written.  No process may write meanwhile."""
        self._unmount()
        self._cover()

    def lift(self) -> None:
        """Drop the changes, and show the real files until `cover`.  No process may write until then."""
        self._unmount()
        if self._seals_root:
            namespace.mount("none", Path("/"), namespace.BIND | _REMOUNT)
        os.chdir(self._here)

    def cover(self, used: Sequence[Path]) -> None:
        """Cover the files again, as they are now, for a program that is likely to write in ``used`` directories."""
        self._use(used)
        self._here = Path.cwd()
        self._cover()

    def _unmount(self) -> None:
        old = self._place / str(self._times)
        for path in reversed(self._mounted):
            namespace.unmount(path, _DETACH)
        self._mounted.clear()
        self._times += 1
        shutil.rmtree(old, ignore_errors=True)


def _changes(upper: Path, path: Path, within: Path, made: list[Path], found: list[str]) -> None:
    """Add what an overlay's upper directory has, but for the directories that lead to ``within``, or were ``made``."""
    for each in sorted(os.scandir(upper), key=lambda entry: entry.name):
        shown = path / each.name
        if shown == within:
            continue
        if each.is_dir(follow_symlinks=False) and any(leads.is_relative_to(shown) for leads in [within, *made]):
            _changes(Path(each.path), shown, within, made, found)
        else:
            found.append(str(shown))


def _handle(path: Path) -> int:
    return os.open(path, os.O_PATH | os.O_DIRECTORY)


def _keep_only(capabilities: int) -> None:
    """Drop the namespace's privileges but these (capset(2))."""
    data = struct.pack("6I", capabilities, capabilities, 0, 0, 0, 0)
    with suppress(OSError):
        ctypes.CDLL(None, use_errno=True).capset(struct.pack("Ii", _CAPABILITIES, 0), data)
