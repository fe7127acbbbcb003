"""Signals that the launcher of a program sends to its ranks once one of them has failed."""

from __future__ import annotations

from racecheck.model.nouns import Op

_WHOSE = "the launcher's"


def signal_op(rank: int, thread: str, name: str) -> Op:
    """Return the op of a signal to a rank, by its name ("SIGTERM")."""
    return Op(rank, thread, "kill", name, fault=f"{_WHOSE} {name}")


def is_of_launcher(op: Op) -> bool:
    """Return whether an op is such a signal."""
    return op.call == "kill" and op.fault.startswith(_WHOSE)
