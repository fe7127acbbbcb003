"""A log as changes that last or are lost one by one, and the disk that results when some of them last.

Changes are numbered in the order of the log; a set of them is an integer with a bit for each, which makes a crash state
cheap: file systems have few states and files have few contents, each of which is built once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from racecheck.crash.bitsets import bits, mask_of
from racecheck.crash.log import SYNCS, Disk, Entry, Extent, Inode, Log, Stored, Tree, merged, overwritten, shortened
from racecheck.crash.precedence import before_entries
from racecheck.model.ops import op_kinds

Name = tuple[int, str]
PAGE = 4096
"""A page of a file reaches the disk as a whole."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change that lasts or is lost as a whole: bytes of a file ("data"), its size ("size"), or names.

    ``entry`` is its place in the log, ``inode`` its object.  It takes away the names ``removes``,
    and brings the names ``adds``, each with its object.  ``extends``: bytes beyond the end of the file;
    ``shrinks``: the file gets shorter.
    """

    entry: int
    kind: Literal["data", "size", "name"]
    inode: int
    removes: tuple[Name, ...] = ()
    adds: tuple[tuple[Name, int], ...] = ()
    extends: bool = False
    shrinks: bool = False

    @property
    def names(self) -> tuple[Name, ...]:
        """The names that the change decides."""
        return (*self.removes, *(name for name, _ in self.adds))


@dataclass(frozen=True, slots=True)
class LastingChoice:
    """The part of a run that lasts.

    These changes last, of one of them (``torn``: a change, and the range of its bytes) only a part.  ``sizes`` are
    pairs of file and size whose length differs from the changes; a longer file ends in zeros.
    """

    lasts: int
    sizes: tuple[tuple[int, int], ...] = ()
    torn: tuple[int, int, int] | None = None


@dataclass(slots=True)
class Changes:
    """The changes of a log, and the disks that they make.

    ``split``: a rename is the loss of the replaced object, the new name, the loss of the old one.  ``tails``: to cut
    a file off inside a page is also to write zeros into the rest of that page.  ``earlier`` are for each change those
    that come before it in every order of the run, and ``order`` has the same of entries (`racecheck.crash.precedence`).
    """

    log: Log
    split: bool = False
    tails: bool = False
    every: list[Change] = field(default_factory=list)
    of_entry: list[int] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=lambda: {"data": 0, "size": 0, "name": 0})
    of_inode: dict[int, int] = field(default_factory=dict)
    earlier: list[int] = field(default_factory=list)
    _before: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    _trees: dict[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    _contents: dict[tuple[object, ...], Stored] = field(default_factory=dict)
    _inodes: dict[int, Inode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._inodes.update(self.log.start.inodes)
        sizes = {number: inode.size for number, inode in self._inodes.items()}
        for index, entry in enumerate(self.log.entries):
            first = len(self.every)
            self.every.extend(self._made(index, entry, sizes))
            self.of_entry.append((1 << len(self.every)) - (1 << first))
            for number in range(first, len(self.every)):
                change = self.every[number]
                self.kinds[change.kind] |= 1 << number
                if change.kind != "name":
                    self.of_inode[change.inode] = self.of_inode.get(change.inode, 0) | 1 << number
        self.order = before_entries(self.log)
        self._before = [self.of_entries(entries) for entries in self.order]
        for number, change in enumerate(self.every):
            self.earlier.append(self._before[change.entry] | self.of_entry[change.entry] & ((1 << number) - 1))

    def _made(self, index: int, entry: Entry, sizes: dict[int, int]) -> Iterator[Change]:
        if entry.kind in SYNCS:
            return
        if entry.kind == "write":
            before, end = sizes.get(entry.inode, 0), entry.offset + entry.length
            sizes[entry.inode] = max(before, end)
            yield Change(index, "data", entry.inode, extends=end > before)
        elif entry.kind == "truncate":
            shrinks = entry.length < sizes.get(entry.inode, 0)
            sizes[entry.inode] = entry.length
            if self.tails and shrinks and entry.length % PAGE:
                yield Change(index, "data", entry.inode)
            yield Change(index, "size", entry.inode, shrinks=shrinks)
        else:
            if entry.inode not in self._inodes:
                self._inodes[entry.inode] = _new(entry)
            yield from self._named(index, entry)

    def _named(self, index: int, entry: Entry) -> Iterator[Change]:
        source, target = (entry.directory, entry.name), (entry.to_directory, entry.to_name)
        if entry.kind in op_kinds.REMOVES:
            yield Change(index, "name", entry.inode, removes=(source,))
        elif entry.kind != "rename":
            yield Change(index, "name", entry.inode, adds=((source, entry.inode),))
        elif not self.split:
            yield Change(index, "name", entry.inode, removes=(source,), adds=((target, entry.inode),))
        else:
            if entry.replaced:
                yield Change(index, "name", entry.replaced, removes=(target,))
            yield Change(index, "name", entry.inode, adds=((target, entry.inode),))
            yield Change(index, "name", entry.inode, removes=(source,))

    def of_entries(self, entries: int) -> int:
        """Return the changes that the entries (a bit for each) made."""
        found = 0
        for index, mask in enumerate(self.of_entry):
            if entries >> index & 1:
                found |= mask
        return found

    def start_size(self, inode: int) -> int:
        """Return how long a file was at the start."""
        return self._inodes[inode].size if inode in self._inodes else 0

    def before(self, index: int) -> int:
        """Return the changes that come before an entry in every order."""
        return self._before[index]

    def is_before(self, one: int, other: int) -> bool:
        """Return whether an entry comes before another in every order."""
        return bool(self.order[other] >> one & 1)

    def not_after(self, index: int) -> int:
        """Return the changes that come before an entry in some order."""
        later = mask_of(place for place, before in enumerate(self.order) if before >> index & 1)
        return self.of_entries(((1 << len(self.order)) - 1) & ~later & ~(1 << index))

    def closed(self, mask: int) -> int:
        """Return the changes together with all that come before them."""
        found = mask
        for number in bits(mask):
            found |= self.earlier[number]
        return found

    def key(self, choice: LastingChoice) -> tuple[tuple[tuple[str, int], ...], tuple[int, ...]]:
        """Return a key that is equal for two choices exactly if they make equal disks."""
        tree = self.tree(choice.lasts)
        return tree, tuple(id(self.stored(number, choice)) for _, number in tree)

    def disk(self, choice: LastingChoice) -> Disk:
        """Return the disk that is left if this lasts."""
        return Disk(tuple((path, self.stored(number, choice)) for path, number in self.tree(choice.lasts)))

    def tree(self, lasts: int) -> tuple[tuple[str, int], ...]:
        """Yield the paths that lead to an object, in order, each with the object's number."""
        which = lasts & self.kinds["name"]
        if which not in self._trees:
            self._trees[which] = self._tree(which)
        return self._trees[which]

    def _tree(self, lasts: int) -> tuple[tuple[str, int], ...]:
        names = dict(self.log.start.names)
        for change in self.chosen(lasts):
            for gone in change.removes:
                if names.get(gone) == change.inode:
                    del names[gone]
            names.update(change.adds)
        inside: dict[int, list[tuple[str, int]]] = {}
        for (directory, name), number in names.items():
            inside.setdefault(directory, []).append((name, number))
        return tuple(sorted(self._below(self.log.start.root, "", inside, frozenset())))

    def _below(
        self, directory: int, path: str, inside: Mapping[int, list[tuple[str, int]]], above: frozenset[int]
    ) -> Iterator[tuple[str, int]]:
        """Return the names in a directory; a directory that ended up inside itself (half a rename) is left out."""
        for name, number in inside.get(directory, ()):
            yield path + name, number
            if self._inodes[number].kind == "directory" and number not in above:
                yield from self._below(number, f"{path}{name}/", inside, above | {number})

    def stored(self, number: int, choice: LastingChoice) -> Stored:
        """Return the content of an object; equal contents are the same object."""
        own = self.of_inode.get(number, 0)
        torn = choice.torn if choice.torn is not None and own >> choice.torn[0] & 1 else None
        size = next((size for inode, size in choice.sizes if inode == number), -1)
        key = (number, choice.lasts & own, size, torn)
        found = self._contents.get(key)
        if found is None:
            found = self._stored(self._inodes[number], choice.lasts & own, size, torn)
            found = self._contents.setdefault(("same", found), found)
            self._contents[key] = found
        return found

    def _stored(self, inode: Inode, lasts: int, forced: int, torn: tuple[int, int, int] | None) -> Stored:
        if inode.kind != "file":
            return Stored(inode.kind, target=inode.target)
        extents, size = inode.extents, inode.size
        for number in bits(lasts):
            entry = self.log.entries[self.every[number].entry]
            if self.every[number].kind == "size":
                whole = -(-entry.length // PAGE) * PAGE if self.tails else entry.length
                extents, size = shortened(extents, whole), entry.length
                continue
            if entry.kind == "truncate":
                extents = overwritten(extents, entry.length, PAGE - entry.length % PAGE, None)
                continue
            start, length, data = entry.offset, entry.length, entry.data
            if torn is not None and torn[0] == number:
                start, length, data = shortened_to(entry, torn[1], torn[2])
            extents = overwritten(extents, start, length, data)
            size = max(size, start + length)
        size = forced if forced >= 0 else size
        return Stored("file", merged(shortened(extents, size), size), size)

    def chosen(self, mask: int) -> Iterator[Change]:
        """Return the changes of a set, in order."""
        return (self.every[number] for number in bits(mask))

    def entries_of(self, mask: int) -> set[int]:
        """Return the entries that the changes of a set come from."""
        return {change.entry for change in self.chosen(mask)}


def settled(log: Log) -> Tree:
    """Return the disk when the whole log lasts."""
    changes = Changes(log)
    everything = LastingChoice((1 << len(changes.every)) - 1)
    names, inodes = dict(log.start.names), dict(log.start.inodes)
    for change in changes.every:
        for gone in change.removes:
            names.pop(gone, None)
        names.update(change.adds)
        if change.inode in changes.of_inode or change.inode not in inodes:
            stored = changes.stored(change.inode, everything)
            inodes[change.inode] = Inode(stored.kind, stored.extents, stored.size, stored.target)
    return Tree(inodes, names, log.start.root)


def shortened_to(entry: Entry, start: int, end: int) -> Extent:
    """Return a range of the bytes of a write."""
    (part,) = shortened(overwritten((), entry.offset, entry.length, entry.data), entry.offset + end)
    offset, length, data = part
    if start and data is not None:
        data = type(data)(data.digest, data.offset + start, length - start)
    return offset + start, length - start, data


def _new(entry: Entry) -> Inode:
    if entry.kind == "mkdir":
        return Inode("directory")
    if entry.kind == "symlink":
        return Inode("symlink", target=entry.target)
    return Inode("file")
