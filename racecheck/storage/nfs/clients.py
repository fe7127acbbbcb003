"""The memory of an NFS client: attributes, names and pages, each for a while.

Everything is named by its identity (that of `racecheck.model.nouns.Place`).  How far an object has changed on the
server is a number, its version; a client that remembers another version remembers something old.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class Attributes:
    """The cache of an object: since when, for how long, of which version, and its attributes."""

    fetched: int
    timeout: int
    version: int
    shown: object = None

    def are_valid(self, now: int) -> bool:
        return now < self.fetched + self.timeout


@dataclass(frozen=True, slots=True)
class CachedName:
    """The target of a path at its lookup: ``inode`` 0 is nothing, ``directory`` 0 that its directory was missing."""

    inode: int
    directory: int
    since: int


@dataclass(slots=True)
class Pages:
    """A version of a file (or of a listing) that was read; ``shown`` is a copy, once there is a newer version."""

    version: int
    since: int
    shown: object = None


@dataclass(slots=True)
class Client:
    """The caches of one node."""

    attributes: dict[int, Attributes] = field(default_factory=dict)
    names: dict[str, CachedName] = field(default_factory=dict)
    pages: dict[int, Pages] = field(default_factory=dict)

    def forget_names_in(self, directory: int) -> None:
        self.names = {path: name for path, name in self.names.items() if name.directory != directory}

    def forget_path(self, path: str) -> None:
        """Forget a path and all that is below it."""
        below = f"{path}/"
        self.names = {each: name for each, name in self.names.items() if each != path and not each.startswith(below)}

    def forget_object(self, inode: int) -> None:
        self.attributes.pop(inode, None)
        self.pages.pop(inode, None)


@dataclass(slots=True)
class Dirty:
    """A file with bytes that its writers have not sent yet: which clients, since when, and the server's version.

    ``open_files`` are those through which they wrote.
    """

    since: int
    attributes: object
    content: object
    nodes: set[int] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    open_files: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Server:
    """The memory that all clients share.  ``removed`` says which node has removed an object's last name."""

    versions: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    dirty: dict[int, Dirty] = field(default_factory=dict)
    removed: dict[int, int] = field(default_factory=dict)
    linked: set[int] = field(default_factory=set)
