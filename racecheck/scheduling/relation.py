"""The locations that the ops of one world touch: its storage, the memory that threads of a rank share, its faults.

Two threads of a rank share memory, and what a thread does there between two of its ops is invisible.  So every op of
a rank that has, or has had, several threads or processes touches one location, the rank's memory, in a mode that
commutes with nothing: each order of these ops is a run of its own.  An op of such a rank that no other rank could
notice (a close, say) is a step for the same reason: other threads of the rank may go before or after it.  Where the
threads are taken to share only what is controlled, the same ops are steps, but only those that are about threads and
processes themselves (that one begins, ends, is asked whether it lives) touch a location that they have in common.

A fault that hits the third write, say, makes the order of all writes matter that it counts: they touch the fault.  Of
a single thread they are in order anyway.  A fault with a pattern of paths makes an op read the names that lead to what
it is about, also if the op goes through a descriptor: another rank may rename a directory above.  All writes touch the
disk that a fault makes full.
"""

from __future__ import annotations

from racecheck import faults, storage
from racecheck.model.nouns import Fault, Op, World
from racecheck.model.ops.footprint import Footprint, Location, Mode
from racecheck.storage.footprints import names


class Relation:
    """The dependence relation of a world; see `racecheck.model.ops.footprint.Dependence`.

    Without ``memory`` the threads of a rank are taken to share only what is controlled.
    """

    def __init__(self, world: World, *, memory: bool = True) -> None:
        self._memory = memory
        self.storage = storage.make(world)
        self._world = world
        self._counting = tuple(number for number in range(len(world.faults)) if faults.counts(world, number))
        self._globs = tuple(fault for fault in world.faults if fault.path != "**" and fault.what != "crash")

    def visible(self, op: Op) -> bool:
        """Return the answer is the same whatever is renamed while the op is pending."""
        return not op.alone or self.storage.visible(op) or bool(self._world.faults and self._of_faults(op))

    def footprint(self, op: Op) -> Footprint:
        touched = self.storage.footprint(op)
        if not op.alone:
            shared = {Location("memory", op.rank): Mode.WRITE} if self._memory else _of_process(op)
            touched = {**touched, **shared}
        return {**self._of_faults(op), **touched} if self._world.faults else touched

    def of_what_is_controlled(self) -> Relation:
        """Return the same relation without the threads' use of memory."""
        return Relation(self._world, memory=False)

    def _of_faults(self, op: Op) -> Footprint:
        """Return the locations that an op touches because of the faults."""
        node, every = self._world.node(op.rank), enumerate(self._world.faults)
        touched = {
            Location("fault", number): Mode.WRITE
            for number, fault in every
            if faults.takes_room(fault, op, node) or (number in self._counting and self._counts(fault, op, node))
        }
        if any(faults.may_hit(fault, op, node) for fault in self._globs):
            for place in op.places:
                touched |= {Location("entry", name): Mode.READ for name in names(place.path)}
        return touched

    def _counts(self, fault: Fault, op: Op, node: int) -> bool:
        """Return whether a fault counts this op among those of several threads."""
        is_shared = not op.alone or self._is_about_several(fault)
        return is_shared and faults.hits(fault, op, node)

    def _is_about_several(self, fault: Fault) -> bool:
        ranks = range(self._world.ranks) if fault.rank < 0 else (fault.rank,)
        return sum(fault.node in (-1, self._world.node(rank)) for rank in ranks) > 1


_ON_FILES = frozenset({
    "open", "stat", "list", "write", "allocate", "truncate", "copy", "link", "unlink", "rmdir", "rename", "mkdir",
    "mknod", "symlink", "bind", "read", "mmap", "seek", "access", "getxattr", "listxattr", "chdir", "chmod", "chown",
    "utime", "setxattr", "removexattr", "flock", "fcntl", "close", "dup", "issue", "store", "readlink", "walk", "fsync",
    "sync", "statfs", "advise", "getcwd", "sleep", "clock", "random",
})  # fmt: skip
"""Families of ops whose footprint, or key of the store, covers all that others can notice of them.  Those of all others
are about threads and processes: one begins, ends, waits, or is asked whether it lives.
"""


_ENDING = frozenset({"exit", "finalise", "kill", "exec"})
"""With these, threads may end at whatever op each of them is."""


def _of_process(op: Op) -> Footprint:
    """Return the things that threads of a rank share besides memory: life and death, working directory, descriptors."""
    touched = {
        Location("life", op.rank): Mode.WRITE if op.call in _ENDING else Mode.READ,
        Location("working directory", op.rank): Mode.WRITE if op.call == "chdir" else Mode.READ,
    }
    for place in op.places:
        if place.open_file:
            touched[Location("open file", place.open_file)] = Mode.WRITE if op.call == "close" else Mode.READ
            # dup2 takes a number from whatever file has it, so it commutes with no other use of a descriptor
            touched[Location("descriptors", op.rank)] = Mode.WRITE if op.call == "dup" else Mode.READ
    if op.call not in _ON_FILES:
        touched[Location("threads", op.rank)] = Mode.WRITE
    return touched
