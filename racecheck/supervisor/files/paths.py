"""Where a path leads: whether it is below a watched directory, and its canonical name there.

"Below" is decided on the resolved parent directory, never on the string: ``..``, symbolic links, ``/x`` against
``/xy`` and paths relative to a descriptor all end at one answer.  Symbolic links in the last component are followed
here, one by one, where the call would follow them, so that the performed call is about the object itself.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from racecheck.kernel import libc
from racecheck.kernel.memory import PATH_MAX
from racecheck.kernel.path_walk import MAX_LINKS, OPEN_DIRECTORY, Mount, Way, instead, joined, real_path, undeleted
from racecheck.model.errors import CannotRun

AT_FDCWD = -100
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_DOTS = frozenset({".", ".."})

FileKind = Literal["", "file", "directory", "symlink", "other"]


def check_ours(number: int) -> None:
    """Raise `CannotRun` for an errno that says that racecheck, not the code under test, has run out of something."""
    if number in _OURS:
        raise CannotRun(f"racecheck ran out of open files or memory ({libc.errno_name(number)}): raise ulimit -n")


@dataclass(frozen=True, slots=True)
class Watched:
    """The directories under control: ``roots`` maps each real path to how places below it are shown.

    The entries ``kept`` of a root that is shown as "." are not under control.
    """

    roots: dict[str, str]
    kept: frozenset[str] = frozenset()

    def shown(self, path: str) -> str | None:
        """Return a canonical absolute path as a place's path; None if it is not below a root."""
        for root, prefix in self.roots.items():
            if path == root:
                return prefix or "."
            if path.startswith(root) and path[len(root)] == "/":
                if self.kept and not prefix and path[len(root) + 1 :].partition("/")[0] in self.kept:
                    return None
                return f"{prefix}{'/' if prefix else ''}{path[len(root) + 1 :]}"
        return None


@dataclass(slots=True)
class Identities:
    """Numbers file system objects in the order in which a run meets them.

    A raw inode number differs between runs and is used again once its object is gone; so a created object gets
    a new number whatever its inode number was.  What is there at the start gets its number then: else it would depend
    on the order of ops, and facts about an op of one run would not hold in another.
    """

    _known: dict[tuple[int, int], int] = field(default_factory=dict)
    _last: int = 0

    def meet(self, watched: Watched) -> None:
        """Give a number to everything below the watched directories, in the order of paths."""
        for root in watched.roots:
            for below, directories, files in os.walk(root):
                directories[:] = sorted(each for each in directories if watched.shown(f"{below}/{each}") is not None)
                for name in (".", *sorted(files), *directories):
                    with suppress(OSError):
                        self.of(os.lstat(f"{below}/{name}"))

    def of(self, status: os.stat_result) -> int:
        key = status.st_dev, status.st_ino
        if key not in self._known:
            self._last += 1
            self._known[key] = self._last
        return self._known[key]

    def created(self, status: os.stat_result) -> int:
        self._known.pop((status.st_dev, status.st_ino), None)
        return self.of(status)


@dataclass(frozen=True, slots=True)
class Located:
    """A path that ends at ``name`` in the directory that ``handle`` (an O_PATH descriptor) refers to.

    Where a directory on the way is missing ``error`` is the errno, ``handle`` as far as the way leads (-1: nowhere) and
    ``name`` the rest of it.  ``path`` is canonical and absolute; ``shown`` is None outside the watched directories.
    ``status`` is of the object with the name, if there is one; ``crossed``: the way leads over a node's own disk, of
    which the kernel knows nothing.  ``through`` are the watched symbolic links that were followed and directories that
    ".." left again, as places show them: a change of one of those may change where the path leads.
    """

    handle: int
    name: str
    path: str
    shown: str | None
    status: os.stat_result | None = None
    error: int = 0
    crossed: bool = False
    through: tuple[str, ...] = ()

    @property
    def via(self) -> str:
        """Return a path to the object for the supervisor's own calls."""
        return f"/proc/self/fd/{self.handle}/{self.name}"

    @property
    def has_failed(self) -> bool:
        """Return whether there is no path with which the call would fail as it should."""
        return self.error != 0 and (self.handle < 0 or len(os.fsencode(self.via)) >= PATH_MAX)

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)


@dataclass(frozen=True, slots=True)
class Walked:
    """A path that was followed as far as the name ``path``, a link with this ``text`` or a directory.

    ``rest`` is still to be followed, from ``handle``; ``status`` is of the name.
    """

    handle: int
    rest: str
    path: str
    status: os.stat_result
    text: str = ""


@dataclass(frozen=True, slots=True)
class ThreadView:
    """How a thread sees the file system."""

    pid: int
    tid: int
    mount: Mount | None = None

    def start(self, start: int) -> str:
        """Return the path of a descriptor; AT_FDCWD stands for the working directory."""
        return f"/proc/{self.pid}/cwd" if start == AT_FDCWD else f"/proc/{self.pid}/fd/{start}"

    def own(self, path: str) -> str:
        """Return ``/proc/self`` as the process means it, not as we do."""
        if not path.startswith(("/proc/", "/dev/fd", "//")):
            return path
        plain = "/" + path.lstrip("/")
        for own, other in (
            ("/proc/self", f"/proc/{self.pid}"),
            ("/proc/thread-self", f"/proc/{self.pid}/task/{self.tid}"),
            ("/dev/fd", f"/proc/{self.pid}/fd"),
        ):
            if plain == own or plain.startswith(f"{own}/"):
                return other + plain[len(own) :]
        return path

    def shown(self, path: str) -> str:
        """Return a canonical path that is the same in every run: without the process's number."""
        own = f"/proc/{self.pid}"
        return f"/proc/self{path[len(own) :]}" if path == own or path.startswith(f"{own}/") else path


@dataclass(frozen=True, slots=True)
class Resolver:
    """Finds where the paths of a thread lead.

    ``turns`` are the canonical paths of the links that were followed and of the directories that ".." left again;
    ``crossings`` the paths that led over the node's disk.
    """

    watched: Watched
    view: ThreadView
    crossings: list[str] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)

    def locate(self, start: int, path: str, *, follow: bool, slash: bool = True, base: int = -1) -> Located:
        """Return where ``path`` leads from the descriptor ``start`` of the process (AT_FDCWD: its working directory).

        The caller closes the handle.  ``follow``: a symbolic link at the end is followed; ``slash``: also where it
        would not be, if a slash comes after it.  ``base``, if there is one, is a handle of ours in place of ``start``.
        """
        self.crossings[:], self.turns[:] = [], []
        try:
            base = self._base(start, path, base)
        except OSError as error:
            check_ours(error.errno or 0)
            return Located(-1, "", path, None, error=errno.EBADF)
        way = [self._step(base, path)]
        while _goes_on(way[-1], follow=follow, slash=slash) and len(way) <= MAX_LINKS:
            found = way[-1]
            self.turns.append(found.path)
            target = os.readlink(found.name.rstrip("/"), dir_fd=found.handle)
            if _is_magic(found):
                way.append(self._through(found, target))
                break
            way.append(self._step(found.handle, target + "/" * found.name.endswith("/")))
        if base >= 0:
            os.close(base)
        if self.crossings or self.turns:
            shown = dict.fromkeys(map(self.watched.shown, self.turns))
            through = tuple(each for each in shown if each not in {None, "."})
            way[-1] = replace(way[-1], crossed=bool(self.crossings), through=through)
        return _end_of(way, is_loop=len(way) > MAX_LINKS and _goes_on(way[-1], follow=follow, slash=slash))

    def _base(self, start: int, path: str, base: int) -> int:
        """Return a handle of where a path begins; -1 for the root."""
        if path.startswith("/"):
            return -1
        return os.dup(base) if base >= 0 else os.open(self.view.start(start), os.O_PATH | os.O_CLOEXEC)

    def walk(self, start: int, path: str, at: Callable[[str], bool], *, follow: bool, base: int = -1) -> Walked | None:
        """Follow ``path`` until it has read a link, or entered a directory, whose canonical path is one of ``at``.

        The arguments are those of `locate`.  Returns None if the path ends before, or at such a name; the caller closes
        the handle that comes back.
        """
        own = self.view.own(path)
        try:
            base = self._base(start, own, base)
        except OSError:
            return None
        way = self._set_out(base, own)
        try:
            return self._walk(way, at, follow=follow)
        except OSError as error:
            check_ours(error.errno or 0)
            return None
        finally:
            os.close(way.current)
            if base >= 0:
                os.close(base)

    def _walk(self, way: Way, at: Callable[[str], bool], *, follow: bool) -> Walked | None:
        way.cross()
        while way.todo:
            name, rest = way.todo[-1], way.todo[-2::-1]
            if not rest and not follow:
                break
            here = joined(real_path(way.current), name)
            status = status_of(name, way.current) if name not in {"", *_DOTS} and at(here) else None
            if status is not None and stat.S_ISLNK(status.st_mode):
                text = os.readlink(name, dir_fd=way.current)
                return Walked(os.dup(way.current), "/".join([text, *rest]), here, status, text)
            way.enter(name)
            way.cross()
            if status is not None and stat.S_ISDIR(status.st_mode) and any(rest):
                return Walked(os.dup(way.current), "/".join(rest), here, status)
        return None

    def _step(self, base: int, path: str) -> Located:
        """Resolve once: the last component is not followed."""
        path = self.view.own(path)
        parent, name = _split(path)
        plain = name.rstrip("/")
        try:
            handle = self._open(base, parent)
            if self.view.mount is not None:
                below = name
                handle, name, plain = _mounted(self.view.mount, handle, name, plain)
                if name != below:
                    self.crossings.append(path)
            try:
                handle, directory = self._own_directory(handle)
                self._note_turns(base, parent, plain, directory)
                canonical = joined(directory, plain) if plain not in _DOTS else _ended_in_dots(handle, plain)
            except BaseException:
                os.close(handle)
                raise
        except OSError as error:
            check_ours(error.errno or 0)
            return self._missing(base, path, error.errno or errno.ENOENT)
        return Located(handle, name, canonical, self.watched.shown(canonical), status_of(plain, handle))

    def _open(self, base: int, path: str, flags: int = OPEN_DIRECTORY) -> int:
        """Return an O_PATH handle of the object that a path leads to, all links followed."""
        if self.view.mount is None:
            return os.open(path, flags, dir_fd=base if base >= 0 else None)
        way = self._set_out(base, path)
        try:
            way.go()
            return os.open(f"/proc/self/fd/{way.current}", flags)
        finally:
            os.close(way.current)

    def _set_out(self, base: int, path: str) -> Way:
        start = os.open("/", OPEN_DIRECTORY) if path.startswith("/") else os.dup(base)
        return Way(start, path.split("/")[::-1], self.view.mount, self.crossings, self.turns)

    def _note_turns(self, base: int, parent: str, name: str, directory: str) -> None:
        """Walk the way to ``directory`` once more, name by name, if the path does not say it."""
        if name == "..":
            self.turns.append(directory)
        if parent == "." or self.view.mount is not None:
            return
        straight = parent if parent.startswith("/") else joined(real_path(base), parent)
        if straight == directory or (self.watched.shown(directory) is None and self.watched.shown(straight) is None):
            return
        self._follow(base, parent)

    def _follow(self, base: int, path: str) -> str:
        """Note the turns of a path; returns the canonical one of its end, or of the missing part."""
        way = self._set_out(base, path)
        try:
            with suppress(OSError):
                way.go()
            rest = way.todo[::-1]
            known = rest[: rest.index("..")] if ".." in rest else rest
            return joined(real_path(way.current), *(each for each in known if each not in {"", "."}))
        finally:
            os.close(way.current)

    def _own_directory(self, handle: int) -> tuple[int, str]:
        """Return a directory and its path; a path of ours below /proc becomes the process's."""
        directory = real_path(handle)
        if not directory.startswith("/proc/"):
            return handle, directory
        ours = f"/proc/{os.getpid()}"
        if directory != ours and not directory.startswith(f"{ours}/"):
            return handle, directory
        rest = directory[len(ours) :].split("/")
        if rest[1:2] == ["task"] and len(rest) > 2:
            rest[2] = str(self.view.tid)
        directory = f"/proc/{self.view.pid}{'/'.join(rest)}"
        theirs = os.open(directory, OPEN_DIRECTORY)
        os.close(handle)
        return theirs, directory

    def _through(self, found: Located, target: str) -> Located:
        """Follow a link of /proc to its object, which may have no name: the kernel has to follow it."""
        path = undeleted(target, found.via) if target.startswith("/") else found.path
        try:
            status = os.stat(found.via)
        except OSError:
            status = None
        return Located(os.dup(found.handle), found.name, path, self.watched.shown(path), status)

    def _missing(self, base: int, path: str, error: int) -> Located:
        """Find how far a path leads whose directory is missing (or is none, or closed to us)."""
        rest: list[str] = []
        parent = path.rstrip("/")
        while True:
            parent, slash, name = parent.rpartition("/")
            rest.insert(0, name)
            try:
                handle = self._open(base, parent or slash or ".", os.O_PATH | os.O_CLOEXEC)
            except OSError:
                if not parent:
                    return Located(-1, "", path, None, error=error)
                continue
            canonical = self._follow(base, path)
            return Located(handle, "/".join(rest), canonical, self.watched.shown(canonical), error=error)


def _mounted(mount: Mount, handle: int, name: str, plain: str) -> tuple[int, str, str]:
    """Return the object of ``name`` in a directory on the node: for the directory with a mount, the disk's own."""
    if plain in _DOTS:
        if plain == ".." and mount.is_disk(handle):
            handle = instead(handle, os.open(mount.at, OPEN_DIRECTORY))
        return handle, name, plain
    status = status_of(plain, handle)
    if status is None or not os.path.samestat(status, os.stat(mount.at)):
        return handle, name, plain
    above, own = os.path.split(mount.disk)
    return instead(handle, os.open(above, OPEN_DIRECTORY)), own + name[len(plain) :], own


def _end_of(way: list[Located], *, is_loop: bool) -> Located:
    """Return the last step of a way; of one that is too long the first, from where the kernel reports ELOOP."""
    first, end = way[0], way[-1]
    if is_loop:
        end = replace(end, handle=first.handle, name=first.name, status=first.status, error=errno.ELOOP)
    for each in way:
        if each.handle != end.handle:
            each.close()
    return end


def _goes_on(found: Located, *, follow: bool, slash: bool) -> bool:
    """Return whether the last component is a link to follow."""
    if found.error or found.status is None or not stat.S_ISLNK(found.status.st_mode):
        return False
    if found.name.endswith("/"):
        return slash
    return follow


def _is_magic(found: Located) -> bool:
    """Return whether a link is one of those below /proc/<pid> that are followed without being read."""
    return found.path.startswith("/proc/") and found.path.count("/") > 2


def _split(path: str) -> tuple[str, str]:
    """Return parent and last component, which keeps a trailing slash."""
    plain = path.rstrip("/")
    parent, slash, name = plain.rpartition("/")
    return parent or slash or ("/" if not plain else "."), (name or ".") + "/" * (plain != path)


def _ended_in_dots(handle: int, name: str) -> str:
    end = os.open(name, OPEN_DIRECTORY, dir_fd=handle)
    try:
        return real_path(end)
    finally:
        os.close(end)


def status_of(name: str, directory: int) -> os.stat_result | None:
    """Return ``lstat`` relative to a directory; None if nothing has the name (or it is not accessible)."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (OSError, ValueError):
        return None


def kind_of(status: os.stat_result | None) -> FileKind:
    """Return the kind of an object, "" for none."""
    if status is None:
        return ""
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(status.st_mode) else "other"
