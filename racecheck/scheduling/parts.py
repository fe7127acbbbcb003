"""Calls that are not one step: which of them another thread could meet halfway.

The kernel walks a path name by name, and moves the bytes of a read, a write or a copy page by page.  Another thread may
replace a symbolic link between the moment at which its text is read and the moment at which that text is looked up, or
write into the part of a file that a read has yet to reach.  To do every call in two parts would make each search much
longer, and most calls meet nobody.  So a search begins with whole calls, and learns from each run which calls were in a
race in which this matters.  Later these go in two parts (``World.parts``), each of which is an op.

Two writes to one file are not mixed: on a local file system a write holds the file's lock to its end (``i_rwsem``; see
generic_file_write_iter in mm/filemap.c).  Two uses of one open file's offset are not mixed either (``f_pos_lock``;
fdget_pos in fs/file.c).  So such calls of others wait between the two parts (`racecheck.model.ops.part_ops`).  A copy
is a chain of writes of 64 KiB each (splice_direct_to_actor in fs/splice.c), and others may write in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from racecheck import storage
from racecheck.model.nouns import Op, Outcome, World
from racecheck.model.ops import op_kinds
from racecheck.model.ops.footprint import Footprint, Location, Mode
from racecheck.scheduling.happens_before import Order
from racecheck.scheduling.relation import Relation
from racecheck.storage.footprints import names

CONDITION = "each call is one step"
HALVES = "a long call is cut once, in its middle"
PAGE, CHUNK = 1 << 12, 1 << 16
"""How many bytes a call moves as one step, at least, and how many a copy writes with its target's lock held."""
WALK = "walk"
_OF_THE_KERNEL = frozenset({"chdir", "exec", "watch", "bind", "handle"})


class Parts:
    """The calls that another thread could meet halfway, as far as a search has met them in its runs."""

    def __init__(self, world: World) -> None:
        self._raced = {*world.parts}
        self._are_others = False
        self._relation = Relation(world, memory=False)
        self._splits = not world.faults and not storage.make(world).has_views

    @property
    def stay_whole(self) -> bool:
        """Whether there are such calls that do not go in parts.

        The kernel makes some of them, and a world with faults, or with caches on its nodes, makes none in parts.
        """
        return self._are_others or (bool(self._raced) and not self._splits)

    def learn(self, outcome: Outcome) -> bool:
        """Return whether a run shows that more calls have to go in parts; its search then has to begin again."""
        before = len(self._raced)
        for op, found in _of_run(outcome, self._relation):
            if goes_in_parts(op):
                self._raced.add(found)
            else:
                self._are_others = True
        return self._splits and len(self._raced) > before

    def of(self, world: World) -> World:
        """Return a world in which these calls go in parts."""
        return replace(world, parts=tuple(sorted(self._raced)))


def name(op: Op, path: str, call: str = "") -> str:
    """Return the key of a call that goes in parts: a thread, a family of calls (or "walk"), and a path."""
    return f"{op.thread} {call or op.call} {path}"


def is_cut(part: str) -> bool:
    """Return whether it is a call that is cut in its middle; a walk stops at each name that another one replaces."""
    return part.split(" ")[1] != WALK


def walked_by(world: World) -> dict[str, set[str]]:
    """Return by thread the names at which its walks stop."""
    found: dict[str, set[str]] = {}
    for each in world.parts:
        thread, _, rest = each.partition(" ")
        call, _, path = rest.partition(" ")
        if call == WALK:
            found.setdefault(thread, set()).add(path)
    return found


def goes_in_parts(op: Op) -> bool:
    """Return whether racecheck makes a call: the kernel's own work is one step."""
    is_left = "O_PATH" in op.flags or any(each.startswith("RESOLVE_") for each in op.flags)
    return op.call not in _OF_THE_KERNEL and not is_left


def _of_run(outcome: Outcome, relation: Relation) -> Iterator[tuple[Op, str]]:
    """Yield the calls of a run that another thread could have met halfway, with their names."""
    if not any(map(_has_parts, outcome.ops)):
        return
    order = Order(relation)
    order.extend(outcome.trace)
    for step in order.steps:
        for other in (order.steps[index] for index in step.races):
            for one, two in ((step, other), (other, step)):
                yield from ((one.op, each) for each in _walks(one.op, two.op, two.footprint))
                yield from ((one.op, each) for each in _data(one.op, two.footprint))


def _has_parts(op: Op) -> bool:
    return _is_long(op) or op.call == "rename" or any(place.through for place in op.places)


def _walks(op: Op, other: Op, touched: Footprint) -> Iterator[str]:
    """Yield the names on the way of an op that another one replaces: links, and directories that are renamed."""
    replaced = {_path(where) for where, mode in touched.items() if where.kind == "entry" and mode is Mode.WRITE}
    for place in op.places:
        if place.open_file or op.call == WALK:
            continue
        yield from (name(op, link, WALK) for link in place.through if link in replaced)
        above = {*names(place.path)} - {place.path, "."}
        moved = {each.path for each in other.places} if other.call == "rename" and _has_succeeded(other) else set()
        yield from (name(op, each, WALK) for each in above & moved)


def _path(entry: Location) -> object:
    """Return the path of a name, which may be one on a node's disk."""
    return entry.key[1] if isinstance(entry.key, tuple) else entry.key


def _has_succeeded(op: Op) -> bool:
    return op.result is not None and not op.result.errno


def _data(op: Op, touched: Footprint) -> Iterator[str]:
    """Yield a long read, write or copy of which another op reads or changes the bytes."""
    if not _is_long(op):
        return
    for place, changes in zip(op.places, _changes(op), strict=False):
        theirs = touched.get(Location("content", place.inode))
        if theirs is not None and (theirs is Mode.READ) is (changes and op.call == "write"):
            yield name(op, op.path)


def _is_long(op: Op) -> bool:
    return op.call in op_kinds.MOVES and op.result is not None and op.result.size > PAGE


def _changes(op: Op) -> Iterable[bool]:
    """Return of each place of an op whether its bytes change: a copy names its source first."""
    return (False, True) if op.call == "copy" else (op.call == "write",)
