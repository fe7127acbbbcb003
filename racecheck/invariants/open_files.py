"""Open files, as a trace shows them: the readers and writers of files, and their locks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from racecheck.invariants.events import done, empties, writes
from racecheck.model.nouns import Op, Outcome
from racecheck.model.ops import op_kinds

_CHANGES = op_kinds.RESIZES - op_kinds.WRITES


@dataclass(frozen=True, slots=True)
class Use:
    """An op on an open file: where in it (-1: where it stood), how many bytes (-1: not known), and under which locks.

    ``digest`` is the digest of these bytes.
    """

    index: int
    offset: int
    size: int
    locks: frozenset[int]
    digest: str = ""


@dataclass(slots=True)
class TracedFile:
    """An open file: the rank and thread that opened it, its first and its last event, and the ops on it.

    A file that was never closed has None as its last event.
    """

    rank: int
    thread: str
    inode: int
    path: str
    first: int
    appends: bool = False
    begins_empty: bool = False
    closed: int | None = None
    reads: list[Use] = field(default_factory=list)
    changes: list[Use] = field(default_factory=list)


def by_inode(outcome: Outcome) -> Iterable[list[TracedFile]]:
    """Return the open files of each file."""
    found: dict[int, list[TracedFile]] = {}
    for file in opened(outcome):
        found.setdefault(file.inode, []).append(file)
    return found.values()


def opened(outcome: Outcome) -> Sequence[TracedFile]:
    """Return all open files of a trace, in the order of their first use."""
    files: dict[int, TracedFile] = {}
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


def _begun(op: Op, path: str, inode: int, index: int, waiting: list[tuple[int, Op]]) -> TracedFile:
    """Return an open file at its first use; ``waiting`` are the opens whose file has not been used yet."""
    for at, (start, opening) in enumerate(waiting):
        place = opening.places[-1]
        if opening.rank == op.rank and place.inode in {0, inode} and (place.path == path or place.inode):
            del waiting[at]
            return TracedFile(
                op.rank, opening.thread, inode, path, start, "O_APPEND" in opening.flags, empties(opening)
            )
    return TracedFile(op.rank, op.thread, inode, path, index)


def _use(file: TracedFile, op: Op, index: int, locks: frozenset[int], *, is_target: bool) -> None:
    size = op.result.size if op.result is not None else 0
    digest = op.result.digest if op.result is not None else ""
    if op.call == "copy" and not digest:
        digest = f"inode {op.places[0].inode}"
    offset = op.args["end"] - size if "end" in op.args else op.args.get("offset", -1)
    use = Use(index, offset, -1 if op.call == "mmap" else size, locks, digest)
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


def end(file: TracedFile) -> float:
    """Return the index of the event that closed a file."""
    return float("inf") if file.closed is None else file.closed


def mixes(one: TracedFile, other: TracedFile) -> bool:
    """Return whether two threads may have written the same bytes of a file, with both having it open and no lock."""
    if one.thread == other.thread or not one.changes or not other.changes or (one.appends and other.appends):
        return False
    overlap = one.first < end(other) and other.first < end(one)
    return overlap and any(_clash(a, b) for a in one.changes for b in other.changes)


def mixture(one: TracedFile, other: TracedFile) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Return how to say that, with the ranks and the events."""
    ranks = tuple(sorted((one.rank, other.rank)))
    events = tuple(sorted((one.changes[0].index, other.changes[0].index)))
    who = f"ranks {ranks[0]} and {ranks[1]}" if one.rank != other.rank else f"two threads of rank {one.rank}"
    text = f"mixed file: {who} both write {one.path} while both have it open"
    return text, tuple(dict.fromkeys(ranks)), events


def _clash(one: Use, other: Use) -> bool:
    """Return whether two changes may be of the same bytes, with no lock between them."""
    if one.locks & other.locks:
        return False
    placed = min(one.offset, other.offset) >= 0 and one.size > 0 and other.size > 0
    return not placed or (one.offset < other.offset + other.size and other.offset < one.offset + one.size)
