"""Ops on files, as opposed to those of threads, processes, collectives and the store."""

from __future__ import annotations

from racecheck.model.nouns import Op

_OTHERS = frozenset({"exit", "issue", "store"})
"""Families whose places are no files, or files that a process only leaves."""


def is_on_file(op: Op) -> bool:
    """Return whether a program asks for something about a file in the watched directory by this op."""
    return op.call not in _OTHERS and any(not f"{each.path}/".startswith("TMPDIR/") for each in op.places)
