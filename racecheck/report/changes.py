"""The names below the watched directory that an op changed."""

from __future__ import annotations

from racecheck.model.nouns import Op
from racecheck.model.ops import op_kinds

_CHANGES = op_kinds.ADDS | op_kinds.REMOVES | {"truncate"}


def succeeded(op: Op) -> bool:
    """Return whether the op ended without an error."""
    return op.result is not None and not op.result.errno


def changes(op: Op) -> bool:
    """Return whether the op changed a name, or the whole content of a file."""
    is_change = op.call in _CHANGES or op_kinds.creates(op) or op_kinds.truncates(op)
    return succeeded(op) and is_change and bool(op.places)


def adds(op: Op) -> bool:
    """Return whether the op made a name."""
    return succeeded(op) and bool(op.places) and (op.call in op_kinds.ADDS or op_kinds.creates(op))


def added(op: Op) -> str:
    """Return the path of the name that the op made, "" for none."""
    return op.path if adds(op) else ""


def removed(op: Op) -> str:
    """Return the path of the name that the op removed, "" for none."""
    if not succeeded(op) or not op.places:
        return ""
    if op.call == "rename" and "RENAME_EXCHANGE" not in op.flags:
        return op.places[0].path
    return op.path if op.call in op_kinds.REMOVES else ""


def above(path: str) -> str:
    """Return the directory that a path is in; that of a name in the watched directory is "."."""
    return path.rpartition("/")[0] or "."


def is_at_or_below(path: str, top: str) -> bool:
    """Return whether a path is ``top`` itself or leads through it."""
    return path == top or path.startswith(f"{top}/")
