"""What a node sees of the files: a storage model.

A model is asked by the supervisor:

1. once for a world, `Storage.visible` is at hand;
2. for each pending op, ``visible(op)``: could its result or its effect depend on, or matter to, another rank?  An op
   that is not visible is still performed in order and recorded, but it is no point: nothing is chosen there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from racecheck.errors import UsageError
from racecheck.model import Op
from racecheck.storage.node_local import NodeLocal
from racecheck.storage.shared import Shared


class Storage(Protocol):
    """A storage model; see the module for who calls what.  ``per_node``: every node has a disk of its own."""

    per_node: bool

    def visible(self, op: Op) -> bool:
        """Whether other ranks could tell when this op happens."""
        ...


_MODELS: dict[str, Callable[[], Storage]] = {"shared": Shared, "node-local": NodeLocal}


def make(name: str) -> Storage:
    """The storage model of this name; raises `UsageError` for one that does not exist."""
    if name not in _MODELS:
        raise UsageError(f"there is no storage {name!r}; there is: {', '.join(sorted(_MODELS))}")
    return _MODELS[name]()
