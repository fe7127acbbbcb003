"""Transactions, and a log of single files between them: btrfs.

A transaction takes everything that was done before it.  What was fsynced since is in a log tree that names the file and
what it takes to reach it, and little else (Mohan et al., "CrashMonkey and ACE", OSDI 2018; the kernel's
fs/btrfs/tree-log.c).
"""

from __future__ import annotations

from collections.abc import Iterator

from racecheck.crash.bitsets import bits, mask_of
from racecheck.crash.changes import PAGE, Changes, Name
from racecheck.crash.models.common import (
    ModelRules,
    bytes_after_truncation,
    contents_of,
    names_in,
    names_of,
    per_sync,
    written_by,
)


class Btrfs:
    """Names and truncations last in order, up to the last transaction; behind it what fsyncs have promised.

    An fsync of a file promises its bytes, its present names, and that those from before a rename are gone (a name that
    an unlink, or the rename of another file, takes from a file that has more of them may be back); one of a directory
    the names in it.  An fdatasync is an fsync.  Both promise the directories above.  What had such a name in the last
    transaction is not lost for it.
    What else is in the log tree depends on what it holds already: the names of what was in it before, and those in the
    directories around, may last too, with sizes that are newer than the bytes.

    Of ops that could have gone in another order no promise is taken to be given that one of the orders does not give,
    and all may last that may last in one of them: so every state of every order is there, and some that are of none.
    """

    split = True
    page = PAGE
    sizes = True
    tails = True
    keeps_all = False

    def rules(self, changes: Changes) -> ModelRules:
        journal = changes.kinds["name"] | changes.kinds["size"]
        requires = bytes_after_truncation(changes)
        for number in bits(journal):  # all of a rename, but a file can come out shorter without zeros behind its end
            together = changes.of_entry[changes.every[number].entry] & ~(1 << number)
            requires[number] = journal & (changes.earlier[number] | together)
        logged = _Logged(changes)
        promises = per_sync(changes, logged.promise)
        may, revokes = per_sync(changes, logged.may), per_sync(changes, logged.revokes, lambda *_: 0)
        return ModelRules(requires, promises, may, revokes, logged.implies(promises))


class _Logged:
    """The content of the log tree after an fsync."""

    def __init__(self, changes: Changes) -> None:
        self.changes = changes

    def promise(self, index: int, before: int) -> int:
        inode = self.changes.log.entries[index].inode
        written = written_by(self.changes, index, before)
        return written | self._named(inode, before) | self._inside(inode, before)

    def may(self, index: int, _: int) -> int:
        """Return the names of all that was in the log tree before, and in the directories around."""
        changes, found, before = self.changes, 0, self.changes.not_after(index)
        for place, earlier in enumerate(changes.log.entries):
            if earlier.kind == "fsync" and (place == index or not changes.is_before(index, place)):
                found |= self._around(earlier.inode, before)
        for inode in {change.inode for change in changes.chosen(found)}:
            found |= contents_of(changes, inode, before) & changes.kinds["size"]
        return found

    def revokes(self, index: int, _: int) -> int:
        """Return the names that objects have lost since the last sync: the log tree is kept up to date."""
        before = self.changes.not_after(index)
        fresh = before & self.changes.kinds["name"] & ~self._synced(index)
        return mask_of(number for number in bits(fresh) if self._gone(number) & before)

    def implies(self, promises: dict[int, int]) -> list[tuple[int, int, int]]:
        """Return the changes that come with a file that takes over the name of another one."""
        found: list[tuple[int, int, int]] = []
        for index, promised in promises.items():
            synced = self._synced(index)
            for later in bits(promised & self.changes.kinds["name"] & ~synced):
                for name, _ in self.changes.every[later].adds:
                    for cause, other, gone in self._owners(name, later):
                        if not gone & synced and self._is_settled(other, index) and self._is_ordered(cause, later):
                            before = self.changes.before(index)
                            unless = self._gone(later) | gone & ~promised | self._named_again(other, before) & ~cause
                            along = self._named(other, before)
                            found.append((cause | 1 << later, unless, along))
        return [*found, *self._moved()]

    def _is_settled(self, inode: int, index: int) -> bool:
        """Return whether an object has the same names at an entry in every order."""
        before, after = self.changes.before(index), self.changes.not_after(index)
        return names_of(self.changes, inode, before) == names_of(self.changes, inode, after)

    def _is_ordered(self, cause: int, later: int) -> bool:
        return not cause & ~self.changes.earlier[later]

    def _moved(self) -> Iterator[tuple[int, int, int]]:
        """Yield that an object which lost its name to a rename has the new one, or a later one."""
        for number, change in enumerate(self.changes.every):
            entry = self.changes.log.entries[change.entry]
            if entry.kind == "rename" and change.adds:
                old = self.changes.of_entry[change.entry] & self.changes.kinds["name"] & ~((2 << number) - 1)
                if self.changes.log.start.names.get((entry.directory, entry.name)) == change.inode:
                    yield old, self._gone(number), 1 << number

    def _owners(self, name: Name, later: int) -> Iterator[tuple[int, int, int]]:
        """Yield what had a name before: the change that gave it the name, its number, and what took the name away."""
        inode = self.changes.every[later].inode
        first = self.changes.log.start.names.get(name, 0)
        if first not in {0, inode}:
            yield 0, first, self._removals(name, first, 0)
        for number in range(later):
            change = self.changes.every[number]
            if change.inode != inode and name in (each for each, _ in change.adds):
                yield 1 << number, change.inode, self._gone(number)

    def _named_again(self, inode: int, before: int) -> int:
        """Return the changes that gave an object a name."""
        return mask_of(n for n in bits(names_of(self.changes, inode, before)) if self.changes.every[n].adds)

    def _synced(self, index: int) -> int:
        """Return the changes before the last sync of everything."""
        changes, found = self.changes, 0
        for place, entry in enumerate(changes.log.entries):
            if entry.kind == "sync" and changes.is_before(place, index):
                found |= changes.before(place)
        return found

    def _gone(self, number: int) -> int:
        """Return the changes that take a name away again from the object that one has given it."""
        change = self.changes.every[number]
        return sum(self._removals(name, change.inode, number + 1) for name, _ in change.adds)

    def _removals(self, name: Name, inode: int, start: int) -> int:
        """From a change on, those that take a name away from an object."""
        every = self.changes.every
        return mask_of(n for n in range(start, len(every)) if every[n].inode == inode and name in every[n].removes)

    def _named(self, inode: int, before: int) -> int:
        """Return the promise of an object's present names: those from before a rename are gone, and so on upwards."""
        changes = self.changes
        names: dict[tuple[int, str], int] = {}
        found = 0
        for number in bits(names_of(changes, inode, before)):
            for name, _ in changes.every[number].adds:
                names[name] = number
            for name in changes.every[number].removes:
                names.pop(name, None)
                found |= 1 << number if self._is_moved(number) else 0
        if not names and inode not in changes.log.start.inodes:
            return 0
        for (directory, _), number in names.items():
            found |= 1 << number | self._named(directory, before)
        return found

    def _is_moved(self, number: int) -> bool:
        """Return whether a change takes an object's name away because it has another one instead."""
        change = self.changes.every[number]
        entry = self.changes.log.entries[change.entry]
        return entry.kind == "rename" and entry.inode == change.inode

    def _inside(self, directory: int, before: int) -> int:
        """Return the names in a directory as they are, and that others are gone."""
        changes = self.changes
        names: dict[tuple[int, str], int] = {}
        found = 0
        for number in bits(names_in(changes, directory, before)):
            for name, _ in changes.every[number].adds:
                names[name] = number
            if any(each[0] == directory for each in changes.every[number].removes):
                found |= 1 << number
        for number in names.values():
            found |= 1 << number
        return found

    def _around(self, inode: int, before: int) -> int:
        """Return the names of an object and of these objects, and all names in the directories above and below."""
        changes = self.changes
        own = names_of(changes, inode, before) | names_in(changes, inode, before)
        places = {directory for (directory, _), number in changes.log.start.names.items() if number == inode}
        for change in changes.chosen(own):
            places |= {directory for directory, _ in change.names} | {change.inode}
        for place in places:
            own |= names_of(changes, place, before) | names_in(changes, place, before)
        for about in {change.inode for change in changes.chosen(own)}:
            own |= names_of(changes, about, before)
        return own
