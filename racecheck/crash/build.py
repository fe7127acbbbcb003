"""From a run and its record to a log: the changes to its disks, in the form that crash models read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from racecheck import storage
from racecheck.crash.changes import PAGE
from racecheck.crash.cut_outcome import last_before
from racecheck.crash.cuts import moments
from racecheck.crash.log import Data, Entry, EntryKind, Extent, Inode, Log, Tree, merged
from racecheck.model.nouns import Op, Outcome
from racecheck.model.ops import op_kinds
from racecheck.supervisor.finish.recorder import Published, RecordedChange, Recorder, Span, Thing

_NOTHING = RecordedChange()
_ABOVE = -1
"""The directory that holds the disks of the nodes.  No op has met it."""

_OF_ROOTS = frozenset({"mkdir", "rmdir"})
"""These entries of a disk itself are left out: an empty disk stands for none."""
_INODES = frozenset({"inode", "directory", "to_directory", "replaced"})
_Make = Callable[..., Entry]


def build(outcome: Outcome, recorder: Recorder) -> Log:
    """Return the log of a run.

    ``recorder`` recorded the run of this outcome.  Raises `LookupError` if it does not know everything.
    """
    if recorder.problem:
        raise LookupError(recorder.problem)
    disks = storage.make(outcome.world)
    sent = disks.sent(outcome.trace)
    entries, roots = list[Entry](), {*recorder.roots.values()}
    for event, op in enumerate(outcome.trace):
        if not isinstance(op, Op):
            continue
        make = _maker(outcome, recorder, event, op)
        if disks.mirrored:
            entries += _published(recorder.published.get(event, Published()), recorder.things, make)
        else:
            made = _entries(op, recorder.changes.get(event, _NOTHING), sent.get(event, ()), make, disks)
            entries += [each for each in made if not _is_of_root(each, roots)]
    return Log(_start(recorder), tuple(entries), moments(outcome), disks.per_node, _acks(outcome))


def _is_of_root(entry: Entry, roots: Collection[int]) -> bool:
    """Return whether a disk itself was made or removed; raises `LookupError` if it was renamed."""
    if entry.kind == "rename" and not {entry.inode, entry.replaced}.isdisjoint(roots):
        raise LookupError("the watched directory itself was renamed, or replaced by another one")
    return entry.kind in _OF_ROOTS and entry.inode in roots


def _acks(outcome: Outcome) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for said in outcome.weights:
        if said.kind == "acked":
            found.setdefault(said.rank, []).append(last_before(outcome, said))
    return found


def _start(recorder: Recorder) -> Tree:
    inodes = {number: _inode(thing) for number, thing in recorder.things.items()}
    roots = {prefix: root for prefix, root in recorder.roots.items() if prefix != "TMPDIR/"}
    if "" in roots:
        return Tree(inodes, dict(recorder.names), roots[""])
    names = {(_ABOVE, prefix.rstrip("/")): root for prefix, root in roots.items()}
    return Tree({**inodes, _ABOVE: Inode("directory")}, {**recorder.names, **names}, _ABOVE)


def _inode(thing: Thing) -> Inode:
    return Inode(thing.kind, merged(map(_extent, thing.spans), thing.size), thing.size, thing.target)


def _extent(span: Span) -> Extent:
    return span.offset, span.length, _data(span)


def _data(span: Span) -> Data | None:
    return Data(span.digest, 0, span.length) if span.digest else None


def _maker(outcome: Outcome, recorder: Recorder, event: int, op: Op) -> _Make:
    """Return a function that makes log entries of an op; a disk that was made again is the same disk."""

    def make(kind: EntryKind, **given: Any) -> Entry:
        for name in _INODES & given.keys():
            given[name] = recorder.again.get(given[name], given[name])
        return Entry(event, kind, rank=op.rank, node=outcome.world.node(op.rank), clock=op.clock, **given)

    return make


def _entries(
    op: Op, change: RecordedChange, sent: Sequence[int], make: _Make, disks: storage.Storage
) -> Iterator[Entry]:
    """Return the entries of an op and its promises, in order.  A failed op may have written a part all the same."""
    if change.spans:
        yield from _writes(op, change, make, disks)
    if op.result is None or op.result.errno:
        return
    if op.call in _NAMING:
        yield from _NAMING[op.call](op, change, make)
    elif op.call == "sync":
        yield make("sync")
    for inode in sent:
        yield make("fsync", inode=inode, datasync=op.syscall == "fdatasync")


def _writes(op: Op, change: RecordedChange, make: _Make, disks: storage.Storage) -> Iterator[Entry]:
    inode = op.places[-1].inode
    for span in change.spans:
        for start, end in _parts(span) if disks.by_page else [(0, span.length)]:
            data = Data(span.digest, start, end - start) if span.digest else None
            yield make("write", inode=inode, offset=span.offset + start, length=end - start, data=data)
    if change.lasting:
        start, end = change.spans[0].offset, change.spans[-1].offset + change.spans[-1].length
        yield make("fsync", inode=inode, offset=start, length=end - start, datasync=change.lasting == "data")


def _parts(span: Span) -> Iterator[tuple[int, int]]:
    """Return a span in up to three parts: its whole pages, and the bytes before and after them in shared pages."""
    first = min(-span.offset % PAGE, span.length)
    last = max(first, span.length - (span.offset + span.length) % PAGE)
    yield from ((start, end) for start, end in ((0, first), (first, last), (last, span.length)) if start < end)


def _published(published: Published, things: Mapping[int, Thing], make: _Make) -> Iterator[Entry]:
    """Return how objects changed, at one moment.

    Of a tree, the topmost name comes last when it appears, and first when it goes.
    """
    gone, come = dict(published.gone), dict(published.come)
    places = {inode: name for name, inode in gone.items()}
    for (directory, name), inode in sorted(come.items(), key=lambda each: -_depth(each[0][0], come)):
        if inode in places:
            old = places[inode]
            yield make(
                "rename", inode=inode, directory=old[0], name=old[1], to_directory=directory, to_name=name,
                replaced=gone.get((directory, name), 0),
            )  # fmt: skip
            del gone[old]
        else:
            kind = {"directory": "mkdir", "symlink": "symlink"}.get(things[inode].kind, "link")
            yield make(kind, inode=inode, directory=directory, name=name, target=things[inode].target)
    for (directory, name), inode in sorted(gone.items(), key=lambda each: _depth(each[0][0], gone)):
        if (directory, name) not in come:
            kind = "rmdir" if things[inode].kind == "directory" else "unlink"
            yield make(kind, inode=inode, directory=directory, name=name)


def _depth(directory: int, names: Mapping[tuple[int, str], int]) -> int:
    """Return how far a directory is below the nearest directory that is not among these."""
    above = next((name[0] for name, inode in names.items() if inode == directory), None)
    return 0 if above is None else 1 + _depth(above, names)


def _opened(op: Op, change: RecordedChange, make: _Make) -> Iterator[Entry]:
    place = op.places[-1]
    if "O_TMPFILE" in op.flags:
        if change.inode:
            yield make("create", inode=change.inode, name=f"#{change.inode}")
    elif change.inode:
        yield make("create", inode=change.inode, directory=place.directory, name=change.names[-1])
    elif place.size and op_kinds.truncates(op):
        yield make("truncate", inode=place.inode, length=0)


def _made(op: Op, change: RecordedChange, make: _Make) -> Iterator[Entry]:
    kind = {"mkdir": "mkdir", "symlink": "symlink"}.get(op.call, "create")
    place = op.places[-1]
    yield make(kind, inode=change.inode, directory=place.directory, name=change.names[-1], target=change.target)


def _linked(op: Op, change: RecordedChange, make: _Make) -> Iterator[Entry]:
    source, target = op.places[0], op.places[-1]
    yield make("link", inode=source.inode, directory=target.directory, name=change.names[-1])


def _renamed(op: Op, change: RecordedChange, make: _Make) -> Iterator[Entry]:
    """Return the entry of a rename.  Between two names of one file, rename(2) does nothing."""
    source, target = op.places
    if "RENAME_EXCHANGE" in op.flags:
        raise LookupError(f"{op.label} exchanges two names, which is not modeled")
    if source.inode != target.inode:
        yield make(
            "rename", inode=source.inode, directory=source.directory, name=change.names[0],
            to_directory=target.directory, to_name=change.names[-1], replaced=target.inode,
        )  # fmt: skip


def _removed(op: Op, change: RecordedChange, make: _Make) -> Iterator[Entry]:
    place = op.places[-1]
    kind = "rmdir" if place.kind == "directory" else "unlink"
    yield make(kind, inode=place.inode, directory=place.directory, name=change.names[-1])


def _truncated(op: Op, _: RecordedChange, make: _Make) -> Iterator[Entry]:
    place, length = op.places[-1], op.args["length"]
    if length != place.size:
        yield make("truncate", inode=place.inode, length=length)


def _allocated(op: Op, change: RecordedChange, make: _Make) -> Iterator[Entry]:
    place = op.places[-1]
    if change.size > place.size:
        yield make("truncate", inode=place.inode, length=change.size)


_NAMING: Mapping[str, Callable[[Op, RecordedChange, _Make], Iterator[Entry]]] = {
    "open": _opened,
    "mkdir": _made,
    "mknod": _made,
    "symlink": _made,
    "link": _linked,
    "rename": _renamed,
    "unlink": _removed,
    "rmdir": _removed,
    "truncate": _truncated,
    "allocate": _allocated,
}
"""The ops that change names or sizes, by family."""
