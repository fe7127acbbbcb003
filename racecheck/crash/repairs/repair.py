"""The log as it would be if the code had been written differently.  Which repair helps is thus measured.

Facts that a log lacks are left out: bytes that a process had not yet given to the kernel are only seen once it
does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from racecheck.crash.log import SYNCS, Entry, Log
from racecheck.crash.repairs.fresh_directories import fresh_directories
from racecheck.model.ops import op_kinds

MakeRepair = Callable[[Log], Log]

_CONTENTS = frozenset({"write", "truncate"})
_NAMES = op_kinds.ADDS | op_kinds.REMOVES | {"create"}


def repairs(log: Log, most: int = 2) -> dict[str, Log]:
    """Return the log under each repair that changes it, and under each two of them ("a, b"), by name.

    ``most``: how many at once.
    """
    useful = [name for name, repair in REPAIRS.items() if repair(log) != log]
    return _distinct(log, (names for count in range(1, most + 1) for names in combinations(useful, count)))


def with_one_more(log: Log, names: str) -> dict[str, Log]:
    """Return the log under these repairs ("a, b") and each of the others that then changes it, by name."""
    have = names.split(", ")
    ways = ([each for each in REPAIRS if each in have or each == more] for more in REPAIRS if more not in have)
    without = _repaired(log, have)
    return {name: repaired for name, repaired in _distinct(log, ways).items() if repaired != without}


def _distinct(log: Log, ways: Iterable[Sequence[str]]) -> dict[str, Log]:
    found: dict[str, Log] = {}
    for names in ways:
        repaired = _repaired(log, names)
        if all(repaired != other for other in found.values()):
            found[", ".join(names)] = repaired
    return found


def _repaired(log: Log, names: Sequence[str]) -> Log:
    for name in names:
        log = REPAIRS[name](log)
    return log


def flush_before_fsync(log: Log) -> Log:
    """Move the writes to a file after its last fsync before that fsync: the buffer is flushed first."""
    entries = list(log.entries)
    for sync in [each for each in log.entries if each.kind == "fsync"]:
        place = _index(entries, sync)
        own = [each for each in entries[place + 1 :] if each.inode == sync.inode and each.kind in {"write", "fsync"}]
        late = [each for each in own if each.rank == sync.rank and each.kind == "write"]
        if late and len(late) == len(own):
            rest = [each for each in entries if not any(each is other for other in late)]
            place = _index(rest, sync)
            entries = [*rest[:place], *late, *rest[place:]]
    return replace(log, entries=tuple(entries))


def replace_instead(log: Log) -> Log:
    """Where a name is removed and then renamed to, let the rename replace it."""
    entries = list(log.entries)
    for unlink in [each for each in log.entries if each.kind == "unlink"]:
        place, name = _index(entries, unlink), (unlink.directory, unlink.name)
        again = next((each for each in entries[place + 1 :] if name in _new_names(each)), None)
        if again is not None and again.kind == "rename" and again.rank == unlink.rank:
            entries[_index(entries, again)] = replace(again, replaced=unlink.inode)
            del entries[place]
    return replace(log, entries=tuple(entries))


def barrier_before_publish(log: Log) -> Log:
    """Move a rank's last writes before a collective after everything that the others do before it.

    This is about writes to a file such as no other rank has.
    """
    entries, moments = list(log.entries), list(log.moments)
    for epoch in _epochs(log):
        for rank in sorted({each.rank for each in epoch}):
            others = [each for each in epoch if each.rank != rank]
            tail = _published([each for each in epoch if each.rank == rank], others)
            if not tail or not others:
                continue
            rest = [each for each in entries if not any(each is other for other in tail)]
            place = _index(rest, others[-1]) + 1
            entries = [*rest[:place], *tail, *rest[place:]]
            for first in tail:
                if 0 <= first.event < len(moments):
                    waits = (*moments[first.event].after, *(each.event for each in others if each.event >= 0))
                    moments[first.event] = replace(moments[first.event], after=waits)
    return replace(log, entries=tuple(entries), moments=tuple(moments))


def fsync_files(log: Log) -> Log:
    """Fsync every file after its last write, before it gets another name."""
    return replace(log, entries=tuple(_with_fsyncs(log.entries)))


def fsync_directories(log: Log) -> Log:
    """Fsync the directories after every change of names."""
    entries: list[Entry] = []
    for index, each in enumerate(log.entries):
        entries.append(each)
        if each.kind in _NAMES:
            following = log.entries[index + 1] if index + 1 < len(log.entries) else None
            done = following.inode if following is not None and following.kind == "fsync" else 0
            places = dict.fromkeys((each.directory, each.to_directory or each.directory))
            entries.extend(_fsync(each, directory) for directory in places if directory != done)
    return replace(log, entries=tuple(entries))


REPAIRS: Mapping[str, MakeRepair] = {
    "fresh directory per step": fresh_directories,
    "flush before fsync": flush_before_fsync,
    "replace instead of unlink and rename": replace_instead,
    "barrier before publish": barrier_before_publish,
    "fsync files": fsync_files,
    "fsync directories": fsync_directories,
}
"""By name, in the order in which several are made."""


def _index(entries: Sequence[Entry], wanted: Entry) -> int:
    """Return the index of this very entry; there may be equal ones."""
    return next(index for index, each in enumerate(entries) if each is wanted)


def _fsync(behind: Entry, inode: int) -> Entry:
    return Entry(-1, "fsync", inode, rank=behind.rank, node=behind.node, clock=behind.clock)


def _new_names(entry: Entry) -> list[tuple[int, str]]:
    if entry.kind == "rename":
        return [(entry.to_directory, entry.to_name)]
    return [(entry.directory, entry.name)] if entry.kind in _NAMES - op_kinds.REMOVES else []


def _with_fsyncs(entries: Sequence[Entry]) -> Iterator[Entry]:
    for index, each in enumerate(entries):
        yield each
        if each.kind in _CONTENTS:
            following = next((other for other in entries[index + 1 :] if other.inode == each.inode), None)
            if following is None or following.kind not in {*_CONTENTS, *SYNCS}:
                yield _fsync(each, each.inode)


def _epochs(log: Log) -> Iterator[list[Entry]]:
    """Yield the entries between two collectives of all ranks."""
    ranks = {rank for moment in log.moments for rank in moment.ranks}
    ends = [index for index, moment in enumerate(log.moments) if len(moment.ranks) == len(ranks)]
    for begin, end in zip([-1, *ends], [*ends, len(log.moments)], strict=True):
        found = [each for each in log.entries if begin < each.event < end]
        if found:
            yield found


def _published(own: Sequence[Entry], others: Sequence[Entry]) -> list[Entry]:
    """Return the entry from which a rank is about the file that it touches last, if that name is its own."""
    last = next((each for each in reversed(own) if each.kind not in SYNCS), None)
    if last is None:
        return []
    mine = [index for index, each in enumerate(own) if each.inode == last.inode and each.kind not in SYNCS]
    shapes = {_shape(each) for each in others if each.kind in _NAMES}
    if {_shape(own[index]) for index in mine if own[index].kind in _NAMES} & shapes:
        return []
    return list(own[mine[0] :])


def _shape(entry: Entry) -> str:
    """Return a name without its numbers."""
    return re.sub(r"\d+", "#", entry.to_name or entry.name)
