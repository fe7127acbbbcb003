"""The log as it would be if each save went to a new directory, which gets the old name when it is complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from racecheck.crash.changes import Name
from racecheck.crash.log import Entry, Inode, Log
from racecheck.model.ops import op_kinds

_CONTENTS = frozenset({"write", "truncate"})


def fresh_directories(log: Log) -> Log:
    """Repair a log in which a save overwrites or removes files of an earlier save in a directory.

    The save fills a new directory instead, and nothing happens to the old one until all that the ranks do there is
    done. A load takes the newest complete directory: so here the new one then gets the old one's name.

    Nothing changes where that cannot be known: in the watched directory itself, where a file is not written from its
    beginning, and where something in the directory has to stay as it is.
    """
    for save in range(1 + max((_save(log, each) for each in log.entries), default=0)):
        moved = log
        with suppress(_CannotTell):
            for directory, name in _reused(log, save):
                moved = _Moving(moved, save, directory, name).log()
            log = moved
    return log


def _save(log: Log, entry: Entry) -> int:
    """Return how many saves had returned on its rank before (or on a rank that declares saves, if its own does not)."""
    own = log.acks.get(entry.rank) or next(iter(log.acks.values()), ())
    return sum(event < entry.event for event in own)


def _before(log: Log, save: int) -> dict[Name, int]:
    """Return the names that exist when the first rank begins a save."""
    names = dict(log.start.names)
    for entry in log.entries:
        if _save(log, entry) >= save:
            break
        _apply(entry, names)
    return names


def _apply(entry: Entry, names: dict[Name, int]) -> None:
    if entry.kind in op_kinds.REMOVES or entry.kind == "rename":
        names.pop((entry.directory, entry.name), None)
    if entry.kind == "rename":
        names[entry.to_directory, entry.to_name] = entry.inode
    elif entry.name and entry.kind not in op_kinds.REMOVES:
        names[entry.directory, entry.name] = entry.inode


def _made(entry: Entry) -> Name | None:
    """Return the name that an entry makes."""
    if entry.kind == "rename":
        return entry.to_directory, entry.to_name
    return (entry.directory, entry.name) if entry.name and entry.kind not in op_kinds.REMOVES else None


def _reused(log: Log, save: int) -> list[tuple[int, Name]]:
    """Return the directories in which a save destroys something, each with its name."""
    names = _before(log, save)
    places = {inode: name for name, inode in names.items()}
    found: dict[int, None] = {}
    removed: set[Name] = set()
    for entry in (each for each in log.entries if _save(log, each) == save):
        made = _made(entry)
        if entry.kind in op_kinds.REMOVES:
            removed.add((entry.directory, entry.name))
        elif made in removed and made in names:
            found[names[made] if entry.kind == "mkdir" else made[0]] = None
        elif entry.kind in _CONTENTS and entry.inode in places:
            found[places[entry.inode][0]] = None
    return [(each, places[each]) for each in found if each in places]


class _CannotTell(Exception):
    """The save does something to the old directory that has no counterpart in a new one."""


class _Moving:
    """Moves the changes of a save in a ``directory`` called ``name`` into another one.

    ``_old`` are the names in it before, ``_gone`` those of them that the save changes; ``_inside``
    are the objects in the new one, ``_fresh`` is that itself, and ``_instead`` has the new files by the old ones that
    the save writes over.
    """

    def __init__(self, log: Log, save: int, directory: int, name: Name) -> None:
        self._log, self._save, self._directory, self._name = log, save, directory, name
        names = _before(log, save)
        self._old = {inode: own[1] for own, inode in names.items() if own[0] == directory}
        self._below = {directory, *_below(directory, names)}
        self._last = max((*log.start.inodes, *(each.inode for each in log.entries)))
        remade = (each for each in log.entries if _save(log, each) == save and each.kind == "mkdir")
        self._remade = next((each for each in remade if _made(each) == name), None)
        self._fresh = self._number() if self._remade is None else self._remade.inode
        self._inside = {self._fresh}
        self._instead: dict[int, int] = {}
        self._gone: set[int] = set()

    def _number(self) -> int:
        self._last += 1
        return self._last

    def log(self) -> Log:
        """Return the repaired log; raises `_CannotTell`."""
        entries: list[Entry] = []
        filling: list[Entry] = []
        place = 0
        for entry in self._log.entries:
            number = _save(self._log, entry)
            changed = entry if number < self._save else self._later(entry) if number > self._save else self._own(entry)
            if changed is None:
                continue
            entries.append(changed)
            if number == self._save and {changed.inode, changed.directory, changed.to_directory} & self._inside:
                self._inside.add(changed.inode)
                filling.append(changed)
                place = len(entries)
        if self._remade is None and self._old.keys() - self._gone:
            raise _CannotTell
        moments = list(self._log.moments)
        if filling:
            last = filling[-1]
            done = Entry(last.event, "link", self._fresh, *self._name, rank=last.rank, node=last.node, clock=last.clock)
            entries.insert(place, done)
            if 0 <= last.event < len(moments):
                others = (each.event for each in filling if each.rank != last.rank and each.event >= 0)
                moments[last.event] = replace(moments[last.event], after=(*moments[last.event].after, *others))
        inodes = {**self._log.start.inodes, self._fresh: Inode("directory")}
        start = replace(self._log.start, inodes=inodes)
        return replace(self._log, start=start, entries=tuple(entries), moments=tuple(moments))

    def _own(self, entry: Entry) -> Entry | None:
        """Yield the entries in its place, if any."""
        if entry is self._remade:
            return None
        if entry.inode in self._below and entry.inode not in self._instead and entry.kind != "fsync":
            self._gone.add(entry.inode)
            if entry.kind in op_kinds.REMOVES:
                return None
            if entry.kind != "truncate" or entry.length or entry.inode not in self._old:
                raise _CannotTell
            self._instead[entry.inode] = self._number()
            return replace(
                entry, kind="create", inode=self._instead[entry.inode], directory=self._fresh,
                name=self._old[entry.inode],
            )  # fmt: skip
        if {entry.directory, entry.to_directory} & (self._below - {self._directory}):
            raise _CannotTell
        if entry.replaced in self._old:
            self._gone.add(entry.replaced)
            entry = replace(entry, replaced=self._instead.get(entry.replaced, 0))
        return self._later(entry)

    def _later(self, entry: Entry) -> Entry:
        """Return the same entry, with the new directory in the place of the old one."""
        if self._remade is not None:
            return entry
        return replace(
            entry, inode=self._there(entry.inode), directory=self._there(entry.directory),
            to_directory=self._there(entry.to_directory), replaced=self._there(entry.replaced),
        )  # fmt: skip

    def _there(self, inode: int) -> int:
        return self._fresh if inode == self._directory else self._instead.get(inode, inode)


def _below(directory: int, names: Mapping[Name, int]) -> Iterator[int]:
    for (above, _), inode in names.items():
        if above == directory:
            yield inode
            yield from _below(inode, names)
