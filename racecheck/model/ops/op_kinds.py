"""The effects of ops on files, by the families of their calls; `racecheck.storage.footprints` has the locations.

`DOES` has one row for each family that does more than ask for its own process.  The sets below follow from it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from racecheck.model.nouns import Op


class Kind(enum.Flag):
    """The effects of a call that succeeds."""

    MAKES = enum.auto()
    """Makes an object, and its name."""
    LINKS = enum.auto()
    """Gives an object a name: it has two places."""
    REMOVES = enum.auto()
    """Removes a name, and nothing else."""
    READS = enum.auto()
    """Reads bytes of a file."""
    WRITES = enum.auto()
    """Puts bytes into a file."""
    RESERVES = enum.auto()
    """Changes how long a file is, or which of its bytes have room."""
    SETS = enum.auto()
    """Sets attributes."""
    LOOKS = enum.auto()
    """Asks about the object under a name."""
    ASKS = enum.auto()
    """Changes nothing, and has an answer."""
    CLOSES = enum.auto()
    LOCKS = enum.auto()


DOES: Mapping[str, Kind] = {
    "mkdir": Kind.MAKES,
    "mknod": Kind.MAKES,
    "symlink": Kind.MAKES,
    "link": Kind.LINKS,
    "rename": Kind.LINKS,
    "rmdir": Kind.REMOVES,
    "unlink": Kind.REMOVES,
    "read": Kind.READS | Kind.ASKS,
    "copy": Kind.READS | Kind.WRITES,
    "write": Kind.WRITES,
    "allocate": Kind.RESERVES,
    "truncate": Kind.RESERVES,
    "chmod": Kind.SETS,
    "chown": Kind.SETS,
    "utime": Kind.SETS,
    "setxattr": Kind.SETS,
    "removexattr": Kind.SETS,
    "stat": Kind.LOOKS | Kind.ASKS,
    "access": Kind.LOOKS | Kind.ASKS,
    "readlink": Kind.ASKS,
    "list": Kind.ASKS,
    "seek": Kind.ASKS,
    "statfs": Kind.ASKS,
    "getxattr": Kind.ASKS,
    "listxattr": Kind.ASKS,
    "close": Kind.CLOSES,
    "dup": Kind.CLOSES,
    "flock": Kind.LOCKS,
    "fcntl": Kind.LOCKS,
}
"""By family.  ``open`` follows its flags: `creates`, `truncates`."""


def _all(kinds: Kind) -> frozenset[str]:
    return frozenset(family for family, does in DOES.items() if does & kinds)


MAKES = _all(Kind.MAKES)
LINKS = _all(Kind.LINKS)
ADDS = MAKES | LINKS
"""Families that add a name."""
REMOVES = _all(Kind.REMOVES)
MOVES = _all(Kind.READS | Kind.WRITES)
"""Families that move bytes."""
READS = _all(Kind.READS)
WRITES = _all(Kind.WRITES)
FILLS = WRITES | {"allocate"}
"""Families that take room on a disk."""
RESIZES = _all(Kind.WRITES | Kind.RESERVES)
"""Families that may change how long a file is."""
SETS = _all(Kind.SETS)
LOOKS = _all(Kind.LOOKS)
ASKS = _all(Kind.ASKS)
CLOSES = _all(Kind.CLOSES)
LOCKS = _all(Kind.LOCKS)
CHANGES = ADDS | REMOVES | RESIZES | SETS
"""Families that change something on a disk."""

CREAT = frozenset({"O_CREAT", "O_TRUNC", "O_WRONLY"})
"""creat(2) is an open with these flags, and its op has them."""


def may_create(op: Op) -> bool:
    """Return whether an op is an ``open`` that creates the file if there is none."""
    return op.call == "open" and "O_CREAT" in op.flags


def creates(op: Op) -> bool:
    """Return whether an op is an ``open`` that creates its file: nothing was there."""
    return may_create(op) and bool(op.places) and not op.places[-1].inode


def truncates(op: Op) -> bool:
    """Return whether an op is an ``open`` that empties its file."""
    return op.call == "open" and "O_TRUNC" in op.flags


def opens_to_write(op: Op) -> bool:
    """Return whether an op is an ``open`` for a descriptor to write to."""
    return op.call == "open" and not {"O_WRONLY", "O_RDWR"}.isdisjoint(op.flags)
