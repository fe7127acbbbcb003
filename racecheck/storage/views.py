"""The interface between a storage model with caches and the code that carries calls out.

For each call that is about to happen its node's view is asked (`View.before`) what the node may be shown.  Where that
is one thing only, that happens; else a strategy chooses, the first being what is really there.  When the call has been
answered the view is told (`View.after`), so that it knows the node's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from racecheck.model.nouns import Op

SECOND = 1_000_000_000
"""Virtual time is in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The version of a call's object that a node is shown.

    ``fault`` says in which way that is not what is there ("stale: no entry yet"); "" for what is there, or for a call
    that the storage does not have.  With an ``errno`` (by name) the call fails, and nothing happens.  ``shown`` is a
    copy that was taken earlier (of attributes, of bytes, of a listing) from which the call is answered instead.
    """

    fault: str = ""
    errno: str = ""
    shown: object = None


FRESH = Seen()
"""The call is carried out on the truth."""


class Truth(Protocol):
    """The true state of the object that the current call is about."""

    def attributes(self) -> object:
        """Return a copy of its attributes as ``stat`` has them now; None if nothing is there."""
        ...

    def content(self) -> object:
        """Return a copy of the file's bytes, or of the directory's listing; None if there are none."""
        ...


class View(Protocol):
    """The memory of the nodes of one run; ``now`` is virtual time.

    The op's places say what is really there, and its clock what its thread knows to have happened before.
    """

    def before(self, op: Op, now: int, truth: Truth) -> Sequence[Seen]:
        """Return the versions that the op's node may see; the first is the default."""
        ...

    def after(self, op: Op, seen: Seen, now: int, truth: Truth) -> None:
        """Note that the op, which has its result now, was answered with ``seen``."""
        ...

    def flushes(self, op: Op) -> bool:
        """Return whether an op that is otherwise unnoticed by others (a close, an fsync) shows them something new."""
        ...

    def ended(self, rank: int) -> None:
        """Note that a rank's processes have ended: their open files are closed."""
        ...


def is_watched(path: str) -> bool:
    """Return whether a place's path is on the storage: the others are below TMPDIR or absolute."""
    return not path.startswith(("/", "TMPDIR/")) and path != "TMPDIR"


def ago(now: int, then: int) -> str:
    """Return how long ago something was, in words."""
    return f"{(now - then) / SECOND:.1f} s ago"
