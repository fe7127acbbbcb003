"""The files of a generated program's machine: inodes, names, symbolic links.  Copies share what does not change."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["", "file", "directory", "symlink", "other"]
ROOT = "root"


class Inode(NamedTuple):
    """``data`` is a file's text or a link's target; ``names`` are a directory's."""

    kind: Kind
    data: str = ""
    names: tuple[tuple[str, str], ...] = ()


class Found(NamedTuple):
    """Where a path leads: the path with its links resolved, the inode of its directory and its own, "" for none."""

    path: str
    directory: str
    name: str
    inode: str
    through: tuple[str, ...]
    problem: str = ""


class Failed(Exception):
    """With the errno's name."""


class Tree:
    """Inodes by identity: the thread that made it, and a number among those it made."""

    def __init__(self, inodes: dict[str, Inode] | None = None) -> None:
        self.inodes = inodes if inodes is not None else {ROOT: Inode("directory")}

    def copy(self) -> Tree:
        return Tree(dict(self.inodes))

    def find(self, path: str, *, follow: bool) -> Found:
        """Where a path leads; ``problem`` is the errno for one whose directory is not there."""
        at, done, through, todo = ROOT, "", [], path.split("/") if path != "." else []
        while todo:
            name = todo.pop(0)
            directory, place = self.inodes[at], f"{done}/{name}".lstrip("/")
            if directory.kind != "directory":
                return Found("/".join([place, *todo]), "", (todo or [name])[-1], "", tuple(through), "ENOTDIR")
            inode = dict(directory.names).get(name, "")
            if inode and self.inodes[inode].kind == "symlink" and (todo or follow):
                through.append(place)
                if len(through) > 4:
                    return Found(place, "", name, "", tuple(through), "ELOOP")
                todo = [*self.inodes[inode].data.split("/"), *todo]
                continue
            if not todo:
                return Found(place, at, name, inode, tuple(through))
            if not inode:
                return Found("/".join([place, *todo]), "", todo[-1], "", tuple(through), "ENOENT")
            at, done = inode, place
        return Found(done or ".", "", done.rpartition("/")[2] or ".", at, tuple(through))

    def there(self, path: str, *, follow: bool) -> Found:
        """Raises `Failed` if nothing has this name."""
        found = self.parent(path, follow=follow)
        if not found.inode:
            raise Failed("ENOENT")
        return found

    def parent(self, path: str, *, follow: bool) -> Found:
        """Raises `Failed` if the path has no directory."""
        found = self.find(path, follow=follow)
        if found.problem:
            raise Failed(found.problem)
        return found

    def add(self, directory: str, name: str, inode: str) -> None:
        old = self.inodes[directory]
        names = {**dict(old.names), name: inode}
        self.inodes[directory] = old._replace(names=tuple(sorted(names.items())))

    def remove(self, directory: str, name: str) -> None:
        old = self.inodes[directory]
        self.inodes[directory] = old._replace(names=tuple(each for each in old.names if each[0] != name))

    def make(self, path: str, identity: str, inode: Inode, *, follow: bool = False) -> None:
        """Raises `Failed` if the name is taken."""
        found = self.parent(path, follow=follow)
        if found.inode:
            raise Failed("EEXIST")
        self.inodes[identity] = inode
        self.add(found.directory, found.name, identity)

    def shown(self) -> tuple[tuple[str, str], ...]:
        """Every path with what is there."""
        found: list[tuple[str, str]] = []
        todo = [("", ROOT)]
        while todo:
            above, directory = todo.pop()
            for name, identity in self.inodes[directory].names:
                inode = self.inodes[identity]
                found.append((above + name, f"{inode.kind} {inode.data}".rstrip()))
                if inode.kind == "directory":
                    todo.append((f"{above}{name}/", identity))
        return tuple(sorted(found))

    def is_below(self, inode: str, directory: str) -> bool:
        """Whether an inode is a directory or in it, however deep."""
        return inode == directory or any(
            self.is_below(inode, each)
            for _, each in self.inodes[directory].names
            if self.inodes[each].kind == "directory"
        )
