"""The sets of changes that a model allows to last of a run that was cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, product

from racecheck.crash.bitsets import bits, mask_of
from racecheck.crash.changes import Changes, LastingChoice
from racecheck.crash.models import Model
from racecheck.crash.models.separate_disks import apart


@dataclass(frozen=True, slots=True)
class Legal:
    """Of the changes that ``happened``, at least ``must`` last, and none without those that it ``requires``.

    Those in ``free`` do so without them.  ``implies``: where all of the first last and none of the second, all of the
    third do.
    """

    happened: int
    must: int
    free: int
    requires: Sequence[int]
    implies: Sequence[tuple[int, int, int]] = ()

    def least(self, wanted: int) -> int:
        """Return the smallest legal set that contains these changes."""
        found, fresh = 0, (wanted | self.must) & self.happened
        while fresh:
            found |= fresh
            needed = 0
            for number in bits(fresh & ~self.free):
                needed |= self.requires[number]
            for cause, unless, effect in self.implies:
                if not cause & ~found and not unless & found:
                    needed |= effect
            fresh = needed & self.happened & ~found
        return found

    def most(self, unwanted: int) -> int:
        """Return the largest legal set without these changes; those that must last stay."""
        found = self.happened & ~(unwanted & ~self.must)
        while True:
            missing = self.happened & ~found
            lost = mask_of(number for number in bits(found & ~self.free) if self.requires[number] & missing)
            for cause, unless, effect in self.implies:
                if effect & missing and not cause & ~found and not unless & found:
                    lost |= cause
            if not lost & found & ~self.must:
                return found
            found &= ~lost | self.must

    def sets(self, within: int) -> Iterator[int]:
        """Yield all that may last of the changes ``within``, the largest sets first."""
        within &= self.happened
        numbers = list(bits(within & ~self.must))
        stack = [(0, self.must & within)]
        while stack:
            index, lasts = stack.pop()
            if index == len(numbers):
                if self._is_legal(lasts, within):
                    yield lasts
                continue
            number = numbers[index]
            stack.append((index + 1, lasts))
            before = 0 if self.free >> number & 1 else self.requires[number] & within & ((1 << number) - 1)
            if not before & ~lasts:
                stack.append((index + 1, lasts | 1 << number))

    def _is_legal(self, lasts: int, within: int) -> bool:
        missing = self.happened & within & ~lasts
        for cause, unless, effect in self.implies:
            if effect & missing and not cause & ~lasts and not unless & lasts:
                return False
        return not any(self.requires[number] & missing for number in bits(lasts & ~self.free))


class Limits:
    """The sets of changes that a model allows to last, for one log and each of its cuts."""

    def __init__(self, changes: Changes, model: Model) -> None:
        self.rules = apart(model.rules, changes) if changes.log.per_node else model.rules(changes)
        self.changes = changes
        self.model = model
        self._known: dict[tuple[int, ...], Sequence[tuple[int, int] | None]] = {}

    def after(self, entries: int) -> Legal:
        """Return the rules if these entries (a bit for each) had happened."""
        happened = self.changes.of_entries(entries)
        promised = _joined(self.rules.promises, entries) & happened
        must = promised & ~_joined(self.rules.revokes, entries)
        free = promised | _joined(self.rules.may, entries)
        return Legal(happened, must, free, self.rules.requires, self.rules.implies)

    def sizes(self, inode: int, legal: Legal, lasts: int) -> set[int]:
        """Return how long a file may be if these changes last.  Bytes and size reach the disk separately."""
        changes = self.changes
        found = {changes.start_size(inode)}
        for number in bits(changes.of_inode.get(inode, 0) & legal.happened):
            entry = changes.log.entries[changes.every[number].entry]
            if changes.every[number].kind == "size":
                cut = {entry.length}
                found = cut if lasts >> number & 1 else found | cut if legal.free >> number & 1 else found
            elif entry.kind == "truncate":
                continue
            elif not legal.requires[number] & legal.happened & ~lasts & ~legal.free or legal.must >> number & 1:
                longer = {max(size, entry.offset + entry.length) for size in found}
                found = longer if legal.must >> number & 1 else found | longer
        return found

    def choices(self, legal: Legal) -> Iterator[LastingChoice]:
        """Yield all that a crash may leave."""
        for lasts in legal.sets(legal.happened):
            yield LastingChoice(lasts)
            if self.model.sizes:
                options = [others for others in self._options(legal, lasts) if len(others) > 1]
                for sizes in islice(product(*options), 1, None):
                    yield LastingChoice(lasts, tuple(each for each in sizes if each is not None))

    def _options(self, legal: Legal, lasts: int) -> Iterator[Sequence[tuple[int, int] | None]]:
        """Return the sizes that each file may have, first of all (None) the one that the changes lead to."""
        optional = legal.happened & ~legal.must
        for inode, own in self.changes.of_inode.items():
            if own & optional:
                key = (inode, own & lasts, own & legal.happened, own & legal.must, own & legal.free)
                if key not in self._known:
                    self._known[key] = (None, *((inode, size) for size in self._others(inode, legal, lasts)))
                yield self._known[key]

    def _others(self, inode: int, legal: Legal, lasts: int) -> list[int]:
        """Return the sizes that make a difference, other than the one that the changes that last lead to."""
        stored = self.changes.stored(inode, LastingChoice(lasts))
        possible = self.sizes(inode, legal, lasts)
        own = self.changes.of_inode[inode] & self.changes.kinds["data"] & lasts & ~legal.must
        writes = [self.changes.log.entries[self.changes.every[number].entry] for number in bits(own)]
        within = {size for size in possible for each in writes if each.offset < size < each.offset + each.length}
        return sorted(size for size in possible if size > stored.size or (size < stored.size and size in within))


def _joined(sets: Mapping[int, int], entries: int) -> int:
    found = 0
    for index, mask in sets.items():
        if entries >> index & 1:
            found |= mask
    return found


def bounded(limits: Limits, legal: Legal) -> Iterator[LastingChoice]:
    """Yield some of the states, so that each way to fail that was ever seen shows in one.

    Lost are: nothing, one change, two neighbours, or all changes of one file or directory; or all but one change, or
    all but the first ones.
    """
    changes = limits.changes
    optional = list(bits(legal.happened & ~legal.must))
    names, data = changes.kinds["name"] | changes.kinds["size"], changes.kinds["data"]
    yield LastingChoice(legal.least(0))
    for number in reversed(optional):
        one = 1 << number
        yield LastingChoice(legal.most(one))
        yield LastingChoice(legal.least(one))
        before = legal.happened & ((one << 1) - 1)
        yield LastingChoice(legal.least(before))
        yield LastingChoice(legal.least(before & names))
        yield LastingChoice(legal.least(before & names) | legal.least(legal.happened & data))
    for first, second in pairwise(optional):
        yield LastingChoice(legal.most(1 << first | 1 << second))
    for group in _groups(changes, legal.happened):
        yield LastingChoice(legal.most(group))
        yield LastingChoice(legal.least(group))
    if limits.model.sizes:
        yield from _longer(limits, legal)


def _longer(limits: Limits, legal: Legal) -> Iterator[LastingChoice]:
    """Yield each file without its last write but with its full length, and without any write but with some length."""
    changes = limits.changes
    for inode, own in changes.of_inode.items():
        data = own & changes.kinds["data"] & legal.happened & ~legal.must
        if data:
            size = changes.stored(inode, LastingChoice(legal.happened)).size
            lasts = legal.most(1 << data.bit_length() - 1)
            if size in limits.sizes(inode, legal, lasts):
                yield LastingChoice(lasts, ((inode, size),))
            lasts = legal.most(data)
            without = changes.stored(inode, LastingChoice(lasts)).size
            for size in limits.sizes(inode, legal, lasts):
                if size > without:
                    yield LastingChoice(lasts, ((inode, size),))


def _groups(changes: Changes, happened: int) -> Iterator[int]:
    """Yield the bytes of each file, and the names in each directory."""
    for own in changes.of_inode.values():
        yield own & happened & changes.kinds["data"]
    inside: dict[int, int] = {}
    for number in bits(happened & changes.kinds["name"]):
        for directory, _ in changes.every[number].names:
            inside[directory] = inside.get(directory, 0) | 1 << number
    yield from inside.values()


def tears(changes: Changes, number: int, lasts: int, page: int) -> Iterator[LastingChoice]:
    """Yield a write of which only the first third, two thirds, or the last third reached the disk, in whole pages."""
    entry = changes.log.entries[changes.every[number].entry]
    if entry.kind != "write":
        return
    inner = list(range(page - entry.offset % page, entry.length, page))
    if inner:
        first, second = inner[len(inner) // 3], inner[2 * len(inner) // 3]
        for start, end in ((0, second), (0, first), (second, entry.length)):
            yield LastingChoice(lasts, torn=(number, start, end))
