"""What a node sees of the files: a storage model.

A model is asked by the supervisor:

1. once for a world, `Storage.visible` is at hand;
2. for each pending op, ``visible(op)``: could its result or its effect depend on, or matter to, another rank?  An op
   that is not visible is still performed in order and recorded, but it is no point: nothing is chosen there;
3. by whoever explores, ``footprint(op)``: which other ops could tell when this one happens?
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from racecheck.dependence import Footprint
from racecheck.errors import UsageError
from racecheck.model import Op, World
from racecheck.storage.node_local import NodeLocal
from racecheck.storage.shared import Shared


class Storage(Protocol):
    """A storage model; see the module for who calls what.

    ``per_node``: every node has a disk of its own.  ``has_views``: what a node sees may be what was there before.
    """

    per_node: bool
    has_views: bool

    def visible(self, op: Op) -> bool:
        """Whether other ranks could tell when this op happens."""
        ...

    def footprint(self, op: Op) -> Footprint:
        """What an op touches; of a pending op, what it might touch at most."""
        ...


_MODELS: dict[str, Callable[[World], Storage]] = {"shared": Shared, "node-local": NodeLocal}


def make(world: World) -> Storage:
    """The storage model of a world; raises `UsageError` for one that does not exist."""
    if world.storage not in _MODELS:
        raise UsageError(f"there is no storage {world.storage!r}; there is: {', '.join(sorted(_MODELS))}")
    return _MODELS[world.storage](world)
