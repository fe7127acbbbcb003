"""The watched directory between the ops of a run, derived from them: a run records only the tree that it leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from racecheck.invariants.events import on_disk
from racecheck.model.nouns import DiskEntry, Op, Outcome
from racecheck.model.ops import op_kinds
from racecheck.report.changes import above, is_at_or_below, succeeded

_KINDS = {"mkdir": "directory", "symlink": "symlink", "mknod": "other"}


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """Something in the tree: its ``kind`` and ``size`` as in `DiskEntry`, and the event that changed it last.

    ``text`` is a link's target, or what was written where that is short.  ``by`` is -1 for what was there before.
    """

    kind: str
    size: int = 0
    text: str = ""
    by: int = -1


PathTree = dict[str, TreeEntry]
TreeChange = tuple[str, TreeEntry | None]
"""A path, and its entry from now on; None for nothing."""


@dataclass(slots=True)
class Trees:
    """The tree before a run, the changes that each of its events made, and the tree after it.

    ``agrees`` says whether that has the same names and kinds as the tree that the run left.
    """

    first: PathTree
    changes: list[list[TreeChange]]
    last: PathTree
    agrees: bool = True


def trees(outcome: Outcome, start: PathTree | None = None, without: frozenset[int] = frozenset()) -> Trees:
    """Return the trees of a run.

    ``start`` is the tree before it; None if that is unknown: then what ops met without having made it was there before.
    Events ``without`` left nothing (a crash took them).
    """
    work = _Derivation(outcome, start)
    for index, event in enumerate(outcome.trace):
        if isinstance(event, Op) and event.places:
            work.meet(event)
            if index not in without:
                work.apply(index, event)
    if start is None and outcome.crash is None:
        work.add_untouched()
    left = {path: entry.kind for path, entry in work.tree.items()}
    agrees = outcome.crash is not None or left == {path: entry.kind for path, entry in outcome.disk.items()}
    return Trees(work.first, work.changes, work.tree, agrees)


def recorded(disk: Mapping[str, DiskEntry]) -> PathTree:
    """Return a disk as a tree that nothing has changed yet."""
    return {path: TreeEntry(each.kind, each.size, each.target) for path, each in disk.items()}


@dataclass(slots=True)
class _Derivation:
    outcome: Outcome
    start: PathTree | None
    first: PathTree = field(default_factory=dict)
    tree: PathTree = field(default_factory=dict)
    changes: list[list[TreeChange]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)
    links: Counter[int] = field(default_factory=Counter)
    nameless: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.first, self.tree = dict(self.start or {}), dict(self.start or {})
        self.changes = [[] for _ in self.outcome.trace]
        later: dict[int, int] = {}
        for index in reversed(range(len(self.outcome.trace))):
            event = self.outcome.trace[index]
            for place in event.places if isinstance(event, Op) else ():
                if place.inode in later:
                    self.sizes[index, place.inode] = later[place.inode]
                later[place.inode] = place.size

    def paths(self, op: Op) -> list[str]:
        """Return the op's paths as the disk has them: with the node, where each has its own."""
        return [on_disk(self.outcome, op, place.path) for place in op.places]

    def meet(self, op: Op) -> None:
        """Add the files that the op found and nothing had made: they were there before the run."""
        for place, path in zip(op.places, self.paths(op), strict=True):
            is_new = place.inode and place.kind and place.path != "." and not place.open_file
            if is_new and path not in self.tree and path not in self.known and self.start is None:
                self._was_there(above(path), TreeEntry("directory"))
                self._was_there(path, TreeEntry(place.kind, place.size))

    def _was_there(self, path: str, entry: TreeEntry) -> None:
        if path == "." or path in self.tree or path in self.known:
            return
        self._was_there(above(path), TreeEntry("directory"))
        self.first[path] = self.tree[path] = entry

    def apply(self, index: int, op: Op) -> None:
        """Carry out the op on the tree."""
        if not succeeded(op):
            return
        found = self._changes(index, op, self.paths(op))
        self._count_names(op)
        for path, entry in found:
            self.known.add(path)
            if entry is None:
                self.tree.pop(path, None)
            else:
                self.tree[path] = entry
        self.changes[index] = found

    def _count_names(self, op: Op) -> None:
        """Note which files have lost their last name: bytes written to them later are in no tree."""
        if op.call == "link":
            self.links[op.places[0].inode] += 1
        elif op.call == "unlink" or (op.call == "rename" and "RENAME_EXCHANGE" not in op.flags):
            lost = op.places[-1].inode
            self.links[lost] -= 1
            if self.links[lost] < 0 < lost:
                self.nameless.add(lost)

    def _changes(self, index: int, op: Op, paths: Sequence[str]) -> list[TreeChange]:
        path, place = paths[-1], op.places[-1]
        if op.call in _KINDS:
            target = self.outcome.disk[path].target if op.call == "symlink" and path in self.outcome.disk else ""
            return [(path, TreeEntry(_KINDS[op.call], 0, target, index))]
        if op.call == "open" and (op_kinds.creates(op) or op_kinds.truncates(op)) and place.kind != "directory":
            return [(path, TreeEntry("file", 0, "", index))]
        if op.call in op_kinds.WRITES | {"truncate"} and path in self.tree and place.inode not in self.nameless:
            return [(path, self._written(index, op, path))]
        if op.call in op_kinds.REMOVES:
            return [(path, None)]
        if op.call in op_kinds.LINKS and len(paths) > 1:
            return self._moved(index, op, paths[0], path)
        return []

    def _written(self, index: int, op: Op, path: str) -> TreeEntry:
        place, done = op.places[-1], op.result
        assert done is not None
        size = self.sizes.get((index, place.inode))
        if size is None:
            size = self.outcome.disk[path].size if path in self.outcome.disk else place.size + done.size
        if op.call == "truncate":
            size = op.args.get("length", size)
        return TreeEntry("file", size, "" if place.size else done.text, index)

    def _moved(self, index: int, op: Op, source: str, target: str) -> list[TreeChange]:
        """Return the changes of a rename or link, with what is below; its children keep who wrote them."""
        moved = [(path, entry) for path, entry in self.tree.items() if is_at_or_below(path, source)]
        there = [(path, entry) for path, entry in self.tree.items() if is_at_or_below(path, target)]
        found: list[TreeChange] = []
        if op.call == "rename":
            found += [(path, None) for path, _ in moved]
            if "RENAME_EXCHANGE" in op.flags:
                found += [(source + path[len(target) :], _by(entry, index, path == target)) for path, entry in there]
            found += [(path, None) for path, _ in there if path != target]
        found += [(target + path[len(source) :], _by(entry, index, path == source)) for path, entry in moved]
        return found

    def add_untouched(self) -> None:
        """Add the files that the run left and no op named: they were there before."""
        for path, entry in recorded(self.outcome.disk).items():
            if path not in self.tree and path not in self.known:
                self.first[path] = self.tree[path] = entry


def _by(entry: TreeEntry, index: int, is_own: bool) -> TreeEntry:
    return TreeEntry(entry.kind, entry.size, entry.text, index) if is_own else entry
