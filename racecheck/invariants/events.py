"""The effects of a trace's ops on files: which paths they changed, and whose disk those are on."""

from __future__ import annotations

from collections.abc import Iterator

from racecheck.model.nouns import Op, Outcome
from racecheck.model.ops import op_kinds

_CHANGES = op_kinds.ADDS | op_kinds.RESIZES - op_kinds.WRITES


def done(outcome: Outcome) -> Iterator[tuple[int, Op]]:
    """Yield the ops that succeeded, each with its index in the trace."""
    for index, event in enumerate(outcome.trace):
        if isinstance(event, Op) and event.result is not None and not event.result.errno:
            yield index, event


def has_own_disks(outcome: Outcome) -> bool:
    """Return whether each node has its own disk; paths on disk then begin with the node, those in the trace do not."""
    return outcome.world.storage == "node-local"


def on_disk(outcome: Outcome, op: Op, path: str) -> str:
    """Return a path of an op as in the outcome's ``disk``."""
    return f"node{outcome.world.node(op.rank)}/{path}" if has_own_disks(outcome) else path


def empties(op: Op) -> bool:
    """Return whether an ``open`` leaves its file empty: one that it made, or one that it truncated."""
    return op_kinds.truncates(op) or op_kinds.creates(op)


def writes(op: Op) -> bool:
    """Return whether bytes went into the file of the op's last place."""
    return op.call in op_kinds.WRITES and op.result is not None and (op.result.size > 0 or not op.result.known)


def changed(op: Op) -> tuple[str, ...]:
    """Yield the paths where a successful op has made or changed something."""
    if op.call in _CHANGES or empties(op) or writes(op):
        return (op.path,)
    return ()


def touched(op: Op) -> tuple[str, ...]:
    """Yield the same, and the paths that it has removed."""
    if op.call == "rename":
        return tuple(place.path for place in op.places)
    return (op.path,) if op.call in op_kinds.REMOVES else changed(op)


def is_below(path: str, directory: str) -> bool:
    """Return whether a path is a directory or in it."""
    return path == directory or path.startswith(f"{directory}/")


def is_before(one: Op, other: Op) -> bool:
    """Return whether an op comes before another by the order of threads and collectives, whatever the schedule."""
    return 0 < one.clock.get(one.thread, 0) <= other.clock.get(one.thread, 0)
