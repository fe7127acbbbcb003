"""Which ops of a run a world's faults hit."""

from __future__ import annotations

import errno
import posixpath
import re
from functools import cache

from racecheck.faults.grammar import KILLS, TERMS
from racecheck.model.nouns import Fault, Op, World
from racecheck.model.ops import op_kinds

_NOT_AN_OP = frozenset({"full", "crash", "damage"})
"""Faults that do not happen to one op."""
_ANYWHERE = frozenset({*KILLS, *TERMS})
"""Faults that happen to processes, also at ops that touch no file."""
_NO_ROOM = frozenset({"ENOSPC", "EDQUOT"})
"""Errors that an ``open`` meets only where it creates a file (open(2))."""
_MODELLED = frozenset({"short", "torn", "full", "crash", "damage"})


_USING_ROOM = op_kinds.RESIZES | {"unlink", "rename"}


def hits(fault: Fault, op: Op, node: int) -> bool:
    """Return whether an op is one that a fault is about: its call, its rank and node, and one of its paths."""
    if not may_hit(fault, op, node) or (fault.what in _NO_ROOM and op.call == "open" and not _creates(op)):
        return False
    return fault.path == "**" or any(_pattern(fault.path).fullmatch(place.path) for place in op.places)


def matches(fault: Fault, path: str) -> bool:
    """Return whether a fault is about a path."""
    return fault.path == "**" or _pattern(fault.path).fullmatch(path) is not None


def _creates(op: Op) -> bool:
    return op_kinds.creates(op) or "O_TMPFILE" in op.flags


def may_hit(fault: Fault, op: Op, node: int) -> bool:
    """Return whether a fault is about such an op, on any path: other ranks may rename what the op is about."""
    if fault.what in _NOT_AN_OP or (fault.calls and op.call not in fault.calls):
        return False
    if not op.places and fault.what not in _ANYWHERE:
        return False
    return fault.rank in (-1, op.rank) and fault.node in (-1, node)


def is_modelled(fault: Fault) -> bool:
    """Return whether the dependence relation of a world knows all that a fault does: that an op fails or is cut short.

    A fault that makes an op slow counts the ops as they stop, not as they go, and a rank that is killed is heard of at
    a time that no op stands for.  A crash depends on the order of ops that do not depend on each other: a journal keeps
    it.  But the crash states of a run are those of all the orders that are equivalent to it
    (`racecheck.crash.precedence`).
    """
    return fault.what in _MODELLED or fault.what in errno.errorcode.values()


def takes_room(fault: Fault, op: Op, node: int) -> bool:
    """Return whether an op uses, or frees, room of a disk that a fault makes full."""
    uses = op.call in _USING_ROOM or op_kinds.truncates(op)
    return fault.what == "full" and uses and fault.node in (-1, node)


def counts(world: World, number: int) -> bool:
    """Return whether the order of ops that a fault is about decides which of them it hits.

    They do not if it hits all of them, or one of them that is chosen freely.  A fault that is named before another may
    take the first op away from it, and then the other begins nowhere.
    """
    fault = world.faults[number]
    if fault.what in _NOT_AN_OP or (fault.nth, fault.times) == (0, 1):
        return False
    is_first = all(each.what in _NOT_AN_OP for each in world.faults[:number])
    return not (is_first and (fault.nth, fault.times) == (1, 0))


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    """Return whether a path matches a pattern.

    ``**`` is any number of directories, ``*`` and ``?`` stay within a name, ``[*]`` and ``[?]`` are these characters,
    and a pattern without a slash is a last name.
    """
    glob = glob if "/" in glob else f"**/{glob}"
    parts = re.split(r"(\[\*\]|\[\?\]|\*\*/|\*\*|\*|\?)", posixpath.normpath(glob))
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]", "[*]": r"\*", "[?]": r"\?"}
    return re.compile("".join(words.get(part) or re.escape(part) for part in parts), re.DOTALL)


class Plan:
    """The faults of one run: how often each could have happened, and how often it has.

    Asked once for each op: `slow` when it stops, `due` when it is about to go.
    """

    def __init__(self, world: World) -> None:
        self._world, self._faults = world, world.faults
        self._met = [0] * len(world.faults)
        self._fired = [0] * len(world.faults)
        self._room = [int(each.amount) for each in world.faults]

    @property
    def fired(self) -> tuple[int, ...]:
        """How often each of the world's faults has happened."""
        return tuple(self._fired)

    def slow(self, op: Op) -> list[tuple[int, bool]]:
        """Return the numbers of the slowing faults that an op meets, and whether each is certain."""
        return self._due(op, slow=True)

    def due(self, op: Op) -> list[tuple[int, bool]]:
        """Return the numbers of the other faults that an op meets."""
        return self._due(op, slow=False)

    def _due(self, op: Op, *, slow: bool) -> list[tuple[int, bool]]:
        found = []
        for number, fault in enumerate(self._faults):
            if (fault.what == "slow") is slow and hits(fault, op, self._world.node(op.rank)):
                self._met[number] += 1
                if self._is_on(number):
                    found.append((number, True))
                elif not fault.nth and not self._fired[number]:
                    found.append((number, False))
        return found

    def _is_on(self, number: int) -> bool:
        """Return whether a fault's turn has come, or it has begun and is not over yet."""
        fault, fired = self._faults[number], self._fired[number]
        return (not fault.times or fired < fault.times) if fired else self._met[number] == fault.nth

    def happens(self, number: int) -> Fault:
        """Note that a fault happens; returns it."""
        self._fired[number] += 1
        return self._faults[number]

    def room(self, op: Op, wanted: int) -> int:
        """Return how many of the wanted bytes there is room for, and take that room."""
        given = wanted
        for number, fault in enumerate(self._faults):
            if takes_room(fault, op, self._world.node(op.rank)):
                given = min(given, self._room[number])
        for number, fault in enumerate(self._faults):
            if takes_room(fault, op, self._world.node(op.rank)):
                self._room[number] -= given
                self._fired[number] += given < wanted
        return given

    def free(self, op: Op, freed: int) -> None:
        """Give room back."""
        for number, fault in enumerate(self._faults):
            if takes_room(fault, op, self._world.node(op.rank)):
                self._room[number] += freed
