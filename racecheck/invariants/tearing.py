"""The invariant of files that several ranks use: no reader sees half a file, and no two writers mix theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations

from racecheck.invariants.events import done, empties, writes
from racecheck.model.nouns import Op, Outcome, Returned, Violation

_CHANGES = frozenset({"truncate", "allocate"})


def no_torn_files(outcome: Outcome) -> Iterator[Violation]:
    """No rank reads a file while another one writes it, and no two ranks write one file at once.

    A torn file is what a reader gets that comes too early: an archive without its end, an empty pointer, half old and
    half new weights.  A mixed file is what two writers leave that both opened it: bytes of both.  A new file that is
    written under another name and renamed has neither.

    No harm is seen in ranks that hold one lock (flock) at the time, in writers that both append, and in writers that
    name the places they write to and keep apart.
    """
    by_inode: dict[int, list[_File]] = {}
    for file in _opened(outcome):
        by_inode.setdefault(file.inode, []).append(file)
    found = [each for files in by_inode.values() for each in (*_torn_reads(outcome, files), *_mixtures(files))]
    yield from {each.message: each for each in reversed(found)}.values()  # the first of each kind, file and pair


def _torn_reads(outcome: Outcome, files: Sequence[_File]) -> Iterator[Violation]:
    for reader, writer in permutations(files, 2):
        if reader.rank != writer.rank:
            yield from _torn(outcome, reader, writer)


def _mixtures(files: Sequence[_File]) -> Iterator[Violation]:
    for one, other in combinations(files, 2):
        if one.rank != other.rank and _are_mixed(one, other):
            ranks = tuple(sorted((one.rank, other.rank)))
            events = tuple(sorted((one.changes[0].index, other.changes[0].index)))
            text = f"mixed file: ranks {ranks[0]} and {ranks[1]} both write {one.path} while both have it open"
            yield Violation("no-torn-files", text, ranks, events)


@dataclass(frozen=True, slots=True)
class _Use:
    """An op on an open file: where in it (-1: where it stood), how many bytes (-1: not known), under which locks."""

    index: int
    offset: int
    size: int
    locks: frozenset[int]


@dataclass(slots=True)
class _File:
    """An open file: its rank, its first and its last event (None: it was never closed), and what was done with it."""

    rank: int
    inode: int
    path: str
    first: int
    appends: bool = False
    begins_empty: bool = False
    closed: int | None = None
    reads: list[_Use] = field(default_factory=list)
    changes: list[_Use] = field(default_factory=list)


def _opened(outcome: Outcome) -> Sequence[_File]:
    """Return all open files of a trace, in the order of their first use."""
    files: dict[int, _File] = {}
    waiting: list[tuple[int, Op]] = []
    held: dict[int, dict[int, int]] = {}
    for index, op in done(outcome):
        if op.call == "open":
            waiting.append((index, op))
        for position, place in enumerate(op.places):
            if place.open_file and place.kind == "file":
                if place.open_file not in files:
                    files[place.open_file] = _begun(op, place.path, place.inode, index, waiting)
                locks = frozenset(held.get(op.rank, {}).values())
                _use(files[place.open_file], op, index, locks, is_target=position == len(op.places) - 1)
                _lock(held.setdefault(op.rank, {}), op, place.open_file, place.inode)
    return [*files.values()]


def _begun(op: Op, path: str, inode: int, index: int, waiting: list[tuple[int, Op]]) -> _File:
    """Return an open file at its first use; ``waiting`` are the opens whose file has not been used yet."""
    for at, (start, opening) in enumerate(waiting):
        place = opening.places[-1]
        if opening.rank == op.rank and place.inode in {0, inode} and (place.path == path or place.inode):
            del waiting[at]
            return _File(op.rank, inode, path, start, "O_APPEND" in opening.flags, empties(opening))
    return _File(op.rank, inode, path, index)


def _use(file: _File, op: Op, index: int, locks: frozenset[int], *, is_target: bool) -> None:
    size = op.result.size if op.result is not None else 0
    use = _Use(index, op.args.get("offset", -1), -1 if op.call == "mmap" else size, locks)
    if op.call == "close":
        file.closed = index
    elif (writes(op) or op.call in _CHANGES) and is_target:
        file.changes.append(use)
    elif op.call in {"read", "mmap"} or (op.call == "copy" and not is_target):
        file.reads.append(use)


def _lock(held: dict[int, int], op: Op, open_file: int, inode: int) -> None:
    """Track the locks of a rank: the locked file, by the open file that has the lock."""
    if op.call == "close" or "LOCK_UN" in op.flags:
        held.pop(open_file, None)
    elif op.call == "flock" and not {"LOCK_EX", "LOCK_SH"}.isdisjoint(op.flags):
        held[open_file] = inode


# Readers.


def _torn(outcome: Outcome, reader: _File, writer: _File) -> Iterator[Violation]:
    """Return what a reader got from the middle of a writer's work, if anything."""
    for read in reader.reads:
        after = [each for each in writer.changes if each.index > read.index and not each.locks & read.locks]
        has_begun = writer.begins_empty or any(each.index < read.index for each in writer.changes)
        gave_up = writer.closed is None and not isinstance(outcome.results[writer.rank], Returned)
        if writer.first < read.index < _end(writer) and has_begun and (after or gave_up):
            how = ", which rank {0} is writing" if after else ", which rank {0} started to write and never finished"
            yield _tear(reader, writer, how, (writer.first, read.index, *(each.index for each in after[:1])))
            return
    for reads in _passes(reader):
        inside = [
            each
            for each in writer.changes
            if reads[0].index < each.index < reads[-1].index
            if not any(each.locks & read.locks for read in reads)
        ]
        if inside:
            how = " in parts, while rank {0} changes it"
            yield _tear(reader, writer, how, (reads[0].index, inside[0].index, reads[-1].index))
            return


def _tear(reader: _File, writer: _File, how: str, events: tuple[int, ...]) -> Violation:
    text = f"torn read: rank {reader.rank} reads {reader.path}{how.format(writer.rank)}"
    return Violation("no-torn-files", text, tuple(sorted((reader.rank, writer.rank))), events)


def _passes(reader: _File) -> Iterator[Sequence[_Use]]:
    """Yield the reads of a file in groups that each end at the end of the file: what follows is a new look."""
    run: list[_Use] = []
    for read in reader.reads:
        run.append(read)
        if not read.size:
            yield run
            run = []
    if run:
        yield run


# Writers.


def _are_mixed(one: _File, other: _File) -> bool:
    if not one.changes or not other.changes or (one.appends and other.appends):
        return False
    overlap = one.first < _end(other) and other.first < _end(one)
    return overlap and any(_clash(a, b) for a in one.changes for b in other.changes)


def _end(file: _File) -> float:
    return float("inf") if file.closed is None else file.closed


def _clash(one: _Use, other: _Use) -> bool:
    """Return whether two changes may be of the same bytes, with no lock between them."""
    if one.locks & other.locks:
        return False
    placed = min(one.offset, other.offset) >= 0 and one.size > 0 and other.size > 0
    return not placed or (one.offset < other.offset + other.size and other.offset < one.offset + one.size)
