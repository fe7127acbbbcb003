"""Deletion of old checkpoints must spare those that are still needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from racecheck.invariants.disk import PATTERNS, matches
from racecheck.invariants.events import changed, done, is_before, is_below, on_disk
from racecheck.invariants.excuses import faults, is_cut
from racecheck.invariants.publishing import PublishedPointer, followed
from racecheck.invariants.saves import Save, saves
from racecheck.model.nouns import Op, Outcome, Violation
from racecheck.model.ops import op_kinds


def gc_safety(outcome: Outcome, pointer: str = "latest") -> Iterator[Violation]:
    """No rank deletes the last checkpoint that all ranks saved, the one that ``latest`` names, or one in use.

    An old checkpoint may go when a newer one is complete and, where there is a pointer, that names it; until then a
    crash leaves none.  A checkpoint is complete when its save has returned on all ranks, or, within the save, after the
    last change to it.  Ranks tell which checkpoints there are with `Rank.acked` and ``at``, also of those that
    were there before the run.  One is in use while another rank has a file of it open for reading: over NFS, and in a
    checkpoint of several files, that reader fails.

    A save that overwrites a checkpoint in place deletes it, too, if it removes files.  Temporary names do not count.
    ``pointer`` is as in `atomic_publish`.
    """
    walk, before = _CheckpointWalk(outcome), dict[str, PublishedPointer]()
    for index, op, pointers in followed(outcome, pointer):
        if op.result is not None and not op.result.errno:
            yield from walk.step(index, op, before)
        before = pointers
    if not any(save.is_acked and save.checkpoints for save in saves(outcome)) and not is_cut(outcome):
        raise LookupError("no rank declared a checkpoint that all ranks saved (Rank.acked with at=...)")


@dataclass(frozen=True, slots=True)
class _OpenReader:
    rank: int
    path: str
    index: int


@dataclass(slots=True)
class _CheckpointWalk:
    """The state of all checkpoints while the trace goes by.

    ``complete`` are those that all ranks have saved, by path (without the node); ``waiting`` are the saves that will be
    complete later, each with the number of events until then; ``readers`` are files open for reading, by open file, and
    ``opened`` those whose open file is not known yet.
    """

    outcome: Outcome
    complete: dict[str, Save] = field(default_factory=dict)
    reported: set[str] = field(default_factory=set)
    readers: dict[int, _OpenReader] = field(default_factory=dict)
    opened: list[_OpenReader] = field(default_factory=list)
    waiting: list[tuple[int, Save]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.waiting = [(_completed(self.outcome, save), save) for save in saves(self.outcome) if save.is_acked]

    def step(self, index: int, op: Op, pointers: Mapping[str, PublishedPointer]) -> Iterator[Violation]:
        for since, save in [*self.waiting]:
            if since <= index:
                self.waiting.remove((since, save))
                self.complete |= dict.fromkeys(save.checkpoints, save)
        if op.call in op_kinds.REMOVES:
            yield from self._delete(index, op)
            yield from self._named(index, op, pointers)
        elif op.call == "rename":
            self._move(op.places[0].path, op.path)
        self._use(index, op)

    def _delete(self, index: int, op: Op) -> Iterator[Violation]:
        for path, save in [*self.complete.items()]:
            if not is_below(op.path, path) or _is_temporary(op.path, path):
                continue
            yield from self._in_use(index, op, path)
            del self.complete[path]
            if not self.complete and not self._is_cut_after_another(index, op, path):
                text = f"rank {op.rank} deletes {path}, the only checkpoint that all ranks had saved (step {save.step})"
                yield Violation("gc-safety", text, (op.rank,), (index,))

    def _is_cut_after_another(self, index: int, op: Op, path: str) -> bool:
        """Return whether a kill may be why the save of another checkpoint did not return, which was written before."""
        met = faults(self.outcome)
        if not met or any(each.call != "kill" or at < index for at, each in met):
            return False
        for save in saves(self.outcome):
            is_begun = len(save.begun) == save.ranks and max(save.begun.values()) <= index
            if save.is_acked or not is_begun or path in save.checkpoints:
                continue
            written = [each for _, each in done(self.outcome) if _changes(each, save)]
            if written and all(is_before(each, op) for each in written):
                return True
        return False

    def _named(self, index: int, op: Op, pointers: Mapping[str, PublishedPointer]) -> Iterator[Violation]:
        gone = on_disk(self.outcome, op, op.path)
        for path, named in pointers.items():
            key = f"{path} {named.index}"
            if is_below(gone, named.target) and not _is_temporary(gone, named.target) and key not in self.reported:
                self.reported.add(key)
                text = f"rank {op.rank} deletes {named.target} while {path} names it"
                yield Violation("gc-safety", text, (op.rank,), (named.index, index))

    def _in_use(self, index: int, op: Op, path: str) -> Iterator[Violation]:
        for reader in (*self.readers.values(), *self.opened):
            if reader.rank != op.rank and is_below(reader.path, path):
                text = f"rank {op.rank} deletes {path} while rank {reader.rank} reads {reader.path}"
                yield Violation("gc-safety", text, tuple(sorted((op.rank, reader.rank))), (reader.index, index))
                return

    def _move(self, source: str, target: str) -> None:
        for path in [path for path in self.complete if is_below(path, source)]:
            self.complete[target + path[len(source) :]] = self.complete.pop(path)

    def _use(self, index: int, op: Op) -> None:
        """Track which thread has which file open for reading."""
        if op.call == "open" and op.places and op.places[-1].kind == "file" and not op_kinds.opens_to_write(op):
            self.opened.append(_OpenReader(op.rank, op.path, index))
            return
        for place in op.places:
            if place.open_file and place.open_file not in self.readers:
                reader = next((each for each in self.opened if (each.rank, each.path) == (op.rank, place.path)), None)
                if reader is not None:
                    self.opened.remove(reader)
                    self.readers[place.open_file] = reader
            if op.call == "close":
                self.readers.pop(place.open_file, None)


def _completed(outcome: Outcome, save: Save) -> int:
    """Return after how many events a checkpoint was complete: all ranks had begun, and none changed it any more."""
    written = [index + 1 for index, op in done(outcome) if index < save.since and _changes(op, save)]
    if not written or len(save.begun) < save.ranks:
        return save.since
    return max(*save.begun.values(), *written)


def _changes(op: Op, save: Save) -> bool:
    """Return whether a successful op changed the save's checkpoint, other than by removing; a rename may move it."""
    if op.call == "rename":
        moved = [(place.path, each) for place in op.places for each in save.checkpoints]
        return any(is_below(path, each) or is_below(each, path) for path, each in moved)
    return any(is_below(path, each) for path in changed(op) for each in save.checkpoints)


def _is_temporary(path: str, checkpoint: str) -> bool:
    """Return whether a path in a checkpoint is not one of its files: its name, or its directory's, is temporary."""
    inner = path[len(checkpoint) :].strip("/")
    return bool(inner) and any(matches(part, PATTERNS) for part in inner.split("/"))
