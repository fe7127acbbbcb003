"""The invariant of the pointer that says which checkpoint is the latest."""

from __future__ import annotations

import hashlib
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from racecheck.invariants.disk import is_temporary
from racecheck.invariants.events import (
    changed,
    done,
    empties,
    has_own_disks,
    is_below,
    on_disk,
    touched,
    writes,
)
from racecheck.invariants.excuses import is_cut
from racecheck.invariants.judging import judges_crashes
from racecheck.model.nouns import Op, Outcome, Returned, Violation
from racecheck.model.ops import op_kinds

_UNKNOWN = "\0"
"""A pointer's content that was written in a way which the trace does not show."""

_READS = op_kinds.READS | {"mmap"}


@judges_crashes
def atomic_publish(
    outcome: Outcome, pointer: str = "latest", named: Callable[[str], str] | None = None
) -> Iterator[Violation]:
    """``latest`` never names a checkpoint that is still being written, and is never read while it is empty.

    A resume, an evaluation or an upload may follow the pointer at any time.  So it is moved last, and by renaming a new
    one over it: rewritten in place it is empty for a while, and a reader then finds no checkpoint.  At the end
    it must name something that exists.

    After a crash, whatever survived of the pointer has to name something that survived, too.

    ``pointer`` is the name of a file or of a symbolic link, in whatever directory; with a slash it is the one path from
    the watched directory (``./latest``).  A pointer that a rank prepares elsewhere counts once it is moved into place.
    ``named`` turns its text into the checkpoint's path, where that is not simply it.
    """
    walk = _PointerWalk(outcome, pointer, named or str)
    for index, op in done(outcome):
        found = list(walk.step(index, op))
        yield from found if outcome.crash is None else ()
    yield from _end(walk)


@dataclass(frozen=True, slots=True)
class PublishedPointer:
    """Note that at event ``index`` the pointer came to say ``text``, which is the checkpoint ``target`` on disk."""

    index: int
    rank: int
    text: str
    target: str


def followed(outcome: Outcome, pointer: str = "latest") -> Iterator[tuple[int, Op, dict[str, PublishedPointer]]]:
    """Yield each op, with its index, and the checkpoints that pointers name after it (seen or not), by path."""
    walk = _PointerWalk(outcome, pointer, str)
    succeeded = dict(done(outcome))
    for index, event in enumerate(outcome.trace):
        if isinstance(event, Op):
            for _ in walk.step(index, event) if index in succeeded else ():
                pass
            yield index, event, {path: each for path, each in walk.current.items() if each.target != _UNKNOWN}


@dataclass(slots=True)
class _PointerWalk:
    """The state of all pointers while the trace goes by.

    ``texts`` are what small files and links hold that were made on the way, by path on disk; ``whole`` the files that
    are to be written from the start; ``emptied`` says by which event and rank a pointer became empty; ``unknown``
    are the pointers of which the trace does not say what they came to name; ``said`` is all that pointers have named,
    by path and digest.  ``staged`` are paths with a pointer's name where one is only prepared.
    """

    outcome: Outcome
    pointer: str
    named: Callable[[str], str]
    texts: dict[str, str] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    current: dict[str, PublishedPointer] = field(default_factory=dict)
    emptied: dict[str, tuple[int, int]] = field(default_factory=dict)
    reported: set[tuple[str, int]] = field(default_factory=set)
    staged: set[str] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)
    said: dict[tuple[str, str], PublishedPointer] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    last: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen = {on_disk(self.outcome, op, place.path) for _, op in done(self.outcome) for place in op.places}
        self.known = frozenset(_with_parents({*seen, *self.outcome.disk}))
        for index, op in done(self.outcome):
            for path in touched(op):
                self.last[on_disk(self.outcome, op, path)] = index
        self.staged = self._staging()

    def is_pointer(self, path: str) -> bool:
        return self._is_named(path) and path not in self.staged

    def _is_named(self, path: str) -> bool:
        if "/" not in self.pointer:
            return posixpath.basename(path) == self.pointer
        inner = path.partition("/")[2] if has_own_disks(self.outcome) else path
        return inner == posixpath.normpath(self.pointer)

    def _staging(self) -> set[str]:
        """Return where pointers are prepared: paths that are moved to another's place, or lie in a temporary directory.

        A path that one rank writes and another one reads is in use, so it is none of these.
        """
        writers: dict[str, set[int]] = defaultdict(set)
        readers: dict[str, set[int]] = defaultdict(set)
        moved = set[str]()
        for _, op in done(self.outcome):
            paths = [on_disk(self.outcome, op, place.path) for place in op.places]
            if op.call in op_kinds.LINKS and all(map(self._is_named, paths)):
                moved.add(paths[0])
            for path in [on_disk(self.outcome, op, each) for each in touched(op)]:
                writers[path].add(op.rank)
            for path in paths if op.call in {*_READS, "readlink"} else ():
                readers[path].add(op.rank)
        every = set(filter(self._is_named, self.known))
        temporary = {path for path in every if is_temporary(posixpath.dirname(path))}
        is_all = not is_cut(self.outcome) and not every - moved - temporary
        staged = moved if is_all else moved | temporary
        return {path for path in staged if readers[path] <= writers[path]}

    def step(self, index: int, op: Op) -> Iterator[Violation]:
        yield from self._seen_empty(index, op)
        yield from self._late(index, op)
        path = on_disk(self.outcome, op, op.path)
        if op.call == "open":
            self._open(index, op, path)
        elif writes(op):
            self._write(op, path)
            self._publish(index, op, path)
        elif op.call == "symlink":
            self.texts[path] = (op.result.text if op.result else "") or _UNKNOWN
            self._publish(index, op, path)
        elif op.call in op_kinds.LINKS:
            self._move(op)
            self._publish(index, op, path)
        elif op.call in op_kinds.REMOVES:
            self._forget(path)
        elif op.call in {"read", "readlink"} and self.is_pointer(path) and path not in self.texts:
            self._read(index, op, path)

    # The effects of ops on small files.

    def _open(self, index: int, op: Op, path: str) -> None:
        if empties(op):
            self.texts[path] = ""
            if self.is_pointer(path):
                self.emptied[path] = (index, op.rank)
        elif op_kinds.opens_to_write(op) and "O_APPEND" not in op.flags:
            self.whole.add(path)

    def _write(self, op: Op, path: str) -> None:
        text, before = op.result.text if op.result else "", self.texts.get(path, "")
        if path in self.whole:
            self.whole.discard(path)
            before = ""
        self.texts[path] = before + text if text and before != _UNKNOWN else _UNKNOWN
        self.emptied.pop(path, None)

    def _move(self, op: Op) -> None:
        source, target = (on_disk(self.outcome, op, place.path) for place in (op.places[0], op.places[-1]))
        moved = {path: text for path, text in self.texts.items() if is_below(path, source)}
        if op.call == "rename":
            self._forget(source)
        self._forget(target)
        for path, text in moved.items():
            self.texts[target + path[len(source) :]] = text
        if op.places[0].kind != "directory":
            self.texts.setdefault(target, _UNKNOWN)

    def _forget(self, path: str) -> None:
        for table in (self.texts, self.current, self.emptied):
            for each in [each for each in table if is_below(each, path)]:
                del table[each]

    def _read(self, index: int, op: Op, path: str) -> None:
        """Note the content of a pointer from before the run."""
        if op.result is not None and op.result.text:
            self.texts[path] = op.result.text
            self._publish(index, op, path)

    # What pointers name.

    def _publish(self, index: int, op: Op, path: str) -> None:
        if path not in self.texts or not self.is_pointer(path):
            return
        text = self.texts[path].strip()
        entry = self.outcome.disk.get(path)
        if text == _UNKNOWN and entry is not None and entry.kind == "symlink" and self.last[path] == index:
            text = entry.target
        if text:
            fresh = PublishedPointer(index, op.rank, text, _UNKNOWN if text == _UNKNOWN else self.target(path, text))
            self.unknown += [path] if text == _UNKNOWN else []
            before = self.current.get(path)
            self.current[path] = before if before is not None and before.target == fresh.target else fresh
            self.said[path, hashlib.sha256(self.texts[path].encode()).hexdigest()] = self.current[path]

    def target(self, path: str, text: str) -> str:
        """Return the path on disk that a pointer means: relative to its directory or the watched one, or absolute."""
        text = self.named(text)
        top = f"{path.partition('/')[0]}/" if has_own_disks(self.outcome) else ""
        parts = text.strip("/").split("/")
        tried = [posixpath.join(posixpath.dirname(path), text), f"{top}{text}"] if not text.startswith("/") else []
        tried += [f"{top}{'/'.join(parts[start:])}" for start in range(len(parts))]
        paths = [posixpath.normpath(each) for each in tried]
        return next((each for each in paths if each in self.known), paths[0])

    def _late(self, index: int, op: Op) -> Iterator[Violation]:
        """Yield violations by writes to a checkpoint that a pointer names."""
        for path in (on_disk(self.outcome, op, each) for each in changed(op)):
            for pointer, published in self.current.items():
                if path == pointer or not is_below(path, published.target):
                    continue
                if (pointer, published.index) not in self.reported:
                    self.reported.add((pointer, published.index))
                    text = f"{pointer} named {published.target} while rank {op.rank} was still writing {path}"
                    ranks = tuple(sorted({published.rank, op.rank}))
                    yield Violation("atomic-publish", text, ranks, (published.index, index))

    def _seen_empty(self, index: int, op: Op) -> Iterator[Violation]:
        """Yield violations by reads of a pointer that another rank is about to write."""
        path = on_disk(self.outcome, op, op.places[0].path) if op.places else ""
        if op.call in _READS and path in self.emptied and self.emptied[path][1] != op.rank:
            since, writer = self.emptied[path]
            text = f"rank {op.rank} read {path} after rank {writer} had truncated it and before it was written"
            yield Violation("atomic-publish", text, tuple(sorted((writer, op.rank))), (since, index))


def _with_parents(paths: set[str]) -> Iterator[str]:
    for path in paths:
        yield from (path[:end] for end, char in enumerate(f"{path}/") if char == "/")


def _end(walk: _PointerWalk) -> Iterator[Violation]:
    """Return the checkpoints that pointers name at the end; raises `LookupError` if any of this is not known."""
    outcome, there = walk.outcome, frozenset(_with_parents(set(walk.outcome.disk)))
    pointers = {
        path: entry for path, entry in outcome.disk.items() if walk.is_pointer(path) and entry.kind != "directory"
    }
    for path, entry in sorted(pointers.items()):
        published = walk.current.get(path) if outcome.crash is None else walk.said.get((path, entry.digest))
        events, ranks = ((published.index,), (published.rank,)) if published else ((), ())
        if entry.kind == "symlink" and published is None:
            published = PublishedPointer(-1, -1, entry.target, walk.target(path, entry.target))
        if entry.kind == "file" and not entry.size:
            yield Violation("atomic-publish", f"{path} is empty at the end", ranks, events)
        elif published is not None and published.target not in {_UNKNOWN, *there}:
            text = f"at the end {path} names {published.text}, which does not exist"
            yield Violation("atomic-publish", text, ranks, events)
    if walk.unknown:
        raise LookupError(f"the trace does not show what was written to {walk.unknown[0]}")
    left = sorted(walk.staged.intersection(outcome.disk))
    if left and not pointers and is_cut(outcome):
        raise LookupError(f"{left[0]} may be a pointer, or one that was being prepared: name the path with pointer=")
    everyone = all(isinstance(result, Returned) for result in outcome.results)
    if not pointers and not walk.current and everyone and not is_cut(outcome):
        raise LookupError(f"no rank published {walk.pointer}, and it does not exist")
