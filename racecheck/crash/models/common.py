"""Code that several models share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from racecheck.crash.bitsets import bits, mask_of
from racecheck.crash.changes import PAGE, Changes
from racecheck.crash.log import SYNCS

_MAKES = frozenset({"create", "mkdir", "symlink"})


@dataclass(frozen=True, slots=True)
class ModelRules:
    """The rules of a model for the changes of a log.  Sets of changes have a bit for each.

    ``requires``: for each change the set of those without which it does not last.  ``promises``: for each fsync and
    sync, by its place in the log, the set of changes that last once it has returned, whatever they require; ``may``
    is the set of changes that may then last without their requirements, ``revokes`` the set that loses its promise.
    ``implies``: where all of the first last and none of the second, all of the third do.

    ``late`` are for each fsync and sync the changes that it is about where they come before it, which they do in some
    orders only; ``journals`` are sets of changes that last in one order.
    """

    requires: Sequence[int]
    promises: Mapping[int, int] = field(default_factory=dict)
    may: Mapping[int, int] = field(default_factory=dict)
    revokes: Mapping[int, int] = field(default_factory=dict)
    implies: Sequence[tuple[int, int, int]] = ()
    late: Mapping[int, int] = field(default_factory=dict)
    journals: Sequence[int] = ()


Promise = Callable[[int, int], int]
"""Returns the promises of an fsync, given its place in the log and the changes that come before it in every order."""


def per_sync(changes: Changes, promise: Promise, synced: Promise = lambda _, before: before) -> dict[int, int]:
    """Return the promises of every fsync, and of every sync: all that came before."""
    found: dict[int, int] = {}
    for index, entry in enumerate(changes.log.entries):
        if entry.kind in SYNCS:
            found[index] = (synced if entry.kind == "sync" else promise)(index, changes.before(index))
    return found


def lates(changes: Changes, asks: Promise) -> dict[int, int]:
    """Return the changes that each fsync and sync is about in some orders only."""
    found = {}
    for index, entry in enumerate(changes.log.entries):
        if entry.kind in SYNCS:
            some = changes.not_after(index)
            found[index] = (some if entry.kind == "sync" else asks(index, some)) & ~changes.before(index)
    return found


def bytes_after_truncation(changes: Changes) -> list[int]:
    """For each write, the truncations of its file that came before, if it went beyond them: these blocks were new.

    And for each truncation those that came before it.
    """
    found: list[int] = []
    cuts: dict[int, list[tuple[int, int]]] = {}
    for number, change in enumerate(changes.every):
        entry = changes.log.entries[change.entry]
        end = entry.offset + entry.length if entry.kind == "write" else 0
        before = cuts.get(change.inode, []) if change.kind != "name" else []
        found.append(mask_of(other for other, kept in before if change.kind == "size" or end > kept))
        if change.kind == "size" and change.shrinks:
            cuts.setdefault(change.inode, []).append((number, -(-entry.length // PAGE) * PAGE))
    return found


def contents_of(changes: Changes, inode: int, before: int) -> int:
    """Return the bytes and sizes of a file, as far as they came before."""
    return changes.of_inode.get(inode, 0) & before


def written_by(changes: Changes, index: int, before: int, page: int = PAGE) -> int:
    """Return the bytes that an fsync writes and the sizes that it makes durable.

    An fsync that is about some bytes alone writes the bytes in their pages.
    """
    entry = changes.log.entries[index]
    contents = contents_of(changes, entry.inode, before)
    if not entry.length:
        return contents
    first, end = entry.offset // page * page, -(-(entry.offset + entry.length) // page) * page
    return mask_of(number for number in bits(contents) if _is_within(changes, number, first, end))


def _is_within(changes: Changes, number: int, first: int, end: int) -> bool:
    """Return whether a change is of a size, or only of bytes from ``first`` to ``end``."""
    change = changes.every[number]
    entry = changes.log.entries[change.entry]
    if entry.kind == "truncate":  # it fills the rest of its last page with zeros
        return change.kind == "size" or first <= entry.length < end
    return first <= entry.offset and entry.offset + entry.length <= end


def birth_of(changes: Changes, inode: int, before: int) -> int:
    """Return the change that has made an object."""
    every = bits(names_of(changes, inode, before))
    return mask_of(each for each in every if changes.log.entries[changes.every[each].entry].kind in _MAKES)


def about(changes: Changes, index: int, before: int, *, passes_names: bool) -> int:
    """Return the names and sizes that an fsync makes durable on a file system with a journal.

    ``passes_names``: of the names of a file an fdatasync makes last only that the file has come to be, and of its
    truncations only those that the journal has for certain.
    """
    entry = changes.log.entries[index]
    inside = names_in(changes, entry.inode, before)
    if entry.datasync and passes_names:
        return inside | birth_of(changes, entry.inode, before) | certain_sizes(changes, entry.inode, before)
    sizes = contents_of(changes, entry.inode, before) & changes.kinds["size"]
    return inside | names_of(changes, entry.inode, before) | sizes


def certain_sizes(changes: Changes, inode: int, before: int) -> int:
    """Return the truncations of a file that change the size on the disk, whatever has been written back by then.

    (A file that was empty, was written to and is truncated again may have been empty on the disk all the time.)
    """
    found, sizes = 0, {changes.start_size(inode)}
    for number in bits(contents_of(changes, inode, before)):
        entry = changes.log.entries[changes.every[number].entry]
        if changes.every[number].kind == "size":
            found |= 0 if entry.length in sizes else 1 << number
            sizes = {entry.length}
        elif entry.kind == "write":
            sizes |= {max(size, entry.offset + entry.length) for size in sizes}
    return found


def names_of(changes: Changes, inode: int, before: int) -> int:
    """Return the changes of the names that lead to an object."""
    found = 0
    for number, change in enumerate(changes.every):
        if before >> number & 1 and change.kind == "name" and change.inode == inode:
            found |= 1 << number
    return found


def names_in(changes: Changes, directory: int, before: int) -> int:
    """Return the changes of the names in a directory."""
    found = 0
    for number, change in enumerate(changes.every):
        if before >> number & 1 and any(each[0] == directory for each in change.names):
            found |= 1 << number
    return found
